#include "pgoutput/frame.h"

#include "absl/strings/str_format.h"
#include "base/byte_reader.h"

namespace walpost::pgoutput {
namespace {

// Tag, start LSN, end LSN, send time.
constexpr std::size_t kXLogDataHeaderBytes = 25;
constexpr std::size_t kKeepaliveBytes = 18;

void AppendU64(std::uint64_t value, std::string* bytes) {
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes->push_back(static_cast<char>((value >> shift) & 0xFF));
  }
}

absl::Status BadFrame(std::string_view name, std::size_t size) {
  return absl::DataLossError(
      absl::StrFormat("replication stream: %s frame of %u bytes", name, size));
}

}  // namespace

absl::StatusOr<Frame> DecodeFrame(std::string_view bytes) {
  if (bytes.empty()) {
    return BadFrame("empty", 0);
  }
  if (bytes[0] == 'w') {
    if (bytes.size() < kXLogDataHeaderBytes) {
      return BadFrame("short XLogData", bytes.size());
    }
    base::ByteReader reader(bytes.substr(1));
    XLogData data;
    data.start = base::Lsn(reader.U64());
    reader.U64();  // the end of the log, as far as the walsender says: the same as `start`
    data.server_time = base::FromPostgresMicros(reader.I64());
    data.payload = bytes.substr(kXLogDataHeaderBytes);
    return Frame(data);
  }
  if (bytes[0] == 'k') {
    if (bytes.size() != kKeepaliveBytes) {
      return BadFrame("misshaped keepalive", bytes.size());
    }
    base::ByteReader reader(bytes.substr(1));
    Keepalive keepalive;
    keepalive.wal_end = base::Lsn(reader.U64());
    keepalive.server_time = base::FromPostgresMicros(reader.I64());
    keepalive.reply_requested = reader.U8() != 0;
    return Frame(keepalive);
  }
  return absl::DataLossError(absl::StrFormat("replication stream: unknown frame 0x%02x of %u bytes",
                                             static_cast<unsigned char>(bytes[0]), bytes.size()));
}

std::string EncodeStandbyStatus(const StandbyStatus& status) {
  std::string bytes;
  bytes.reserve(34);
  bytes.push_back('r');
  AppendU64(status.write.value(), &bytes);
  AppendU64(status.flush.value(), &bytes);
  AppendU64(status.apply.value(), &bytes);
  AppendU64(static_cast<std::uint64_t>(base::ToPostgresMicros(status.client_time)), &bytes);
  bytes.push_back(status.reply_requested ? 1 : 0);
  return bytes;
}

}  // namespace walpost::pgoutput
