// An input is one frame of the replication stream. Whatever it is: it is rejected, or what it was
// decoded to means exactly its bytes.
#include <glog/logging.h>

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "pgoutput/decoder.h"
#include "support/golden_messages.h"
#include "support/pgoutput_bytes.h"
#include "unit/pgoutput/encode_message.h"

namespace walpost::fuzz {
namespace {

void CheckPayload(std::string_view payload) {
  pgoutput::Decoder decoder;
  pgoutput::Message message;
  const absl::Status status = decoder.Decode(payload, &message);
  if (!status.ok()) {
    CHECK(absl::IsDataLoss(status)) << status;
    return;
  }
  // Updates and deletes are only counted: the message does not show their bytes.
  CHECK(pgoutput::EncodeMessage(message).value_or(std::string(payload)) == payload);
}

void CheckFrame(std::string_view bytes) {
  const absl::StatusOr<pgoutput::Frame> frame = pgoutput::DecodeFrame(bytes);
  if (!frame.ok()) {
    CHECK(absl::IsDataLoss(frame.status())) << frame.status();
    return;
  }
  if (const auto* data = std::get_if<pgoutput::XLogData>(&*frame)) {
    CheckPayload(data->payload);
    return;
  }
  const auto& keepalive = std::get<pgoutput::Keepalive>(*frame);
  const std::string again =
      testing::KeepaliveFrame(keepalive.wal_end, keepalive.reply_requested, keepalive.server_time);
  CHECK(again.substr(0, again.size() - 1) == bytes.substr(0, bytes.size() - 1));
}

}  // namespace

std::vector<std::string> MoreInputs() {
  std::vector<std::string> inputs;
  for (const char* name : {"v15-text", "v15-binary"}) {
    for (const std::string& message : testing::GoldenMessages(name)) {
      inputs.push_back(testing::XLogDataFrame(message));
    }
  }
  return inputs;
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  walpost::fuzz::CheckFrame(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
