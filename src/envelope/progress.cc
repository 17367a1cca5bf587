#include "envelope/progress.h"

#include <chrono>

#include "absl/strings/str_format.h"
#include "walpost/v1/progress.pb.h"

namespace walpost::envelope {
namespace {

constexpr std::uint32_t kFormat = 1;
constexpr std::int64_t kMicrosPerSecond = 1'000'000;

}  // namespace

std::string EncodeProgress(const base::Progress& progress) {
  v1::Progress message;
  message.set_format(kFormat);
  message.set_epoch(progress.epoch);
  message.set_system_identifier(progress.system_identifier);
  message.set_timeline(progress.timeline);
  message.set_end_lsn(progress.end_lsn.value());
  const std::int64_t micros = progress.recorded_at.time_since_epoch().count();
  message.mutable_recorded_at()->set_seconds(micros / kMicrosPerSecond);
  message.mutable_recorded_at()->set_nanos(static_cast<int>(micros % kMicrosPerSecond) * 1'000);
  v1::Fingerprint* const fingerprint = message.mutable_fingerprint();
  fingerprint->set_publication_oid(progress.publication_oid);
  for (const base::PublishedTable& table : progress.tables) {
    v1::Table* const added = fingerprint->add_tables();
    added->set_oid(table.oid);
    added->set_schema(table.schema);
    added->set_name(table.name);
  }
  for (const std::string& prefix : progress.message_prefixes) {
    fingerprint->add_prefixes(prefix);
  }
  return message.SerializeAsString();
}

absl::StatusOr<base::Progress> DecodeProgress(std::string_view value) {
  v1::Progress message;
  if (!message.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
    return absl::DataLossError(
        absl::StrFormat("a record of %u bytes is not a walpost.v1.Progress message", value.size()));
  }
  if (message.format() != kFormat) {
    return absl::DataLossError(
        absl::StrFormat("a record has format %u, this walpost reads format %u: it was written by a "
                        "newer version, or by something else",
                        message.format(), kFormat));
  }
  base::Progress progress;
  progress.epoch = message.epoch();
  progress.system_identifier = message.system_identifier();
  progress.timeline = message.timeline();
  progress.end_lsn = base::Lsn(message.end_lsn());
  progress.recorded_at =
      base::WallTime(std::chrono::seconds(message.recorded_at().seconds()) +
                     std::chrono::microseconds(message.recorded_at().nanos() / 1'000));
  progress.publication_oid = message.fingerprint().publication_oid();
  for (const v1::Table& table : message.fingerprint().tables()) {
    progress.tables.push_back(base::PublishedTable{table.oid(), table.schema(), table.name()});
  }
  const auto& prefixes = message.fingerprint().prefixes();
  progress.message_prefixes.assign(prefixes.begin(), prefixes.end());
  return progress;
}

}  // namespace walpost::envelope
