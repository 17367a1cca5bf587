// An input is a text from a server, a library or a writer of events, by its first byte: a timeline
// history of PostgreSQL's, librdkafka's statistics, a topic's configuration in lines name=value, an
// LSN, the position that a record's header names, the setting synchronous_standby_names, or what is
// shown to people.
#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/lsn.h"
#include "base/text.h"
#include "envelope/control_records.h"
#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "kafka/client.h"
#include "kafka/topic_limits.h"
#include "postgres/preflight.h"
#include "postgres/replication_stream.h"

namespace walpost::fuzz {
namespace {

void CheckHistory(std::string_view content) {
  const auto history = postgres::ParseTimelineHistory(content);
  if (!history.ok()) {
    CHECK(absl::IsDataLoss(history.status())) << history.status();
    return;
  }
  CHECK_LE(history->size(), content.size());
  for (std::size_t i = 1; i < history->size(); ++i) {
    CHECK_LT((*history)[i - 1].timeline, (*history)[i].timeline);
  }
}

void CheckStatistics(std::string_view text) {
  const auto brokers = kafka::ReadBrokers(text);
  for (std::size_t i = 0; i < brokers.size(); ++i) {
    CHECK(i == 0 || brokers[i - 1].address <= brokers[i].address);
    CHECK_GE(brokers[i].round_trip_p99, 0);
    CHECK_GE(brokers[i].throttle_max, 0);
  }
}

void CheckTopicConfiguration(std::string_view text) {
  std::vector<std::pair<std::string_view, std::string_view>> configuration;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::string_view name = line.substr(0, line.find('='));
    configuration.emplace_back(name, line.substr(std::min(name.size() + 1, line.size())));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  const kafka::TopicLimits limits = kafka::LimitsOf(configuration);
  CHECK(!limits.age_max || limits.age_max->count() >= 0);
  CHECK_GE(limits.ahead_max.count(), 0);
  CHECK_LE(limits.ahead_max, kafka::kClockSlack);
  CHECK_GE(limits.tombstone_retention.count(), 0);
  CHECK(limits.has_cleanup_policy || (!limits.compacts && !limits.deletes));
  constexpr std::int64_t kNowMs = 1'700'000'000'000;
  const base::WallTime now{std::chrono::milliseconds(kNowMs)};
  CHECK_LE(kafka::SafeTimestampMs(kNowMs * 2, limits, now), kNowMs);
  CHECK_GE(kafka::SafeTimestampMs(1, limits, now), 1);
}

void CheckLsn(std::string_view text) {
  if (const auto lsn = base::Lsn::Parse(text); lsn.ok()) {
    CHECK(*base::Lsn::Parse(lsn->ToString()) == *lsn);
  }
}

void CheckPosition(std::string_view text) {
  if (const auto position = envelope::Position::Parse(text); position.ok()) {
    CHECK(*envelope::Position::Parse(position->ToString()) == *position);
  }
}

void CheckStandbyNames(std::string_view setting) {
  (void)postgres::IsSynchronousStandby(setting, "walpost");
}

void CheckShown(std::string_view text) {
  constexpr std::size_t kBytesMax = 100;
  constexpr std::size_t kDots = 3;
  const std::string shown = base::Printable(text);
  CHECK(base::IsUtf8(shown));
  for (const unsigned char c : shown) {
    CHECK(c >= ' ' && c != 0x7f);
  }
  CHECK_EQ(base::Printable(shown), shown);
  CHECK_LE(base::Printable(text, kBytesMax).size(), kBytesMax + kDots);
}

}  // namespace

std::vector<std::string> MoreInputs() {
  constexpr int kDeep = 100'000;
  std::string nested = "s{\"brokers\":";
  std::string brokers = "s{\"brokers\":{";
  std::string history = "h";
  for (int i = 0; i < kDeep; ++i) {
    nested += "{\"a\":";
    brokers += "\"" + std::to_string(i) + "\":{\"nodeid\":1,\"nodename\":\"k:1\"},";
    history += std::to_string(i) + "\t0/A0\tx\n";
  }
  return {nested, brokers, history, "n" + std::string(kDeep, '('), "n" + std::string(kDeep, ',')};
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const walpost::fuzz::Bounds bounds;
  switch (data[0]) {
    case 'h':
      walpost::fuzz::CheckHistory(rest);
      break;
    case 'c':
      walpost::fuzz::CheckTopicConfiguration(rest);
      break;
    case 'l':
      walpost::fuzz::CheckLsn(rest);
      break;
    case 'p':
      walpost::fuzz::CheckPosition(rest);
      break;
    case 'n':
      walpost::fuzz::CheckStandbyNames(rest);
      break;
    case 't':
      walpost::fuzz::CheckShown(rest);
      break;
    default:
      walpost::fuzz::CheckStatistics(rest);
  }
  bounds.Check();
  return 0;
}
