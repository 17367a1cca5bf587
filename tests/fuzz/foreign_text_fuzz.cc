// An input is a text from a server or a library, by its first byte: a timeline history of PostgreSQL's,
// or librdkafka's statistics.
#include <glog/logging.h>

#include <string>
#include <string_view>

#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "kafka/statistics.h"
#include "postgres/start_replication.h"

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
  return {nested, brokers, history};
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const walpost::fuzz::Bounds bounds;
  if (data[0] == 'h') {
    walpost::fuzz::CheckHistory(rest);
  } else {
    walpost::fuzz::CheckStatistics(rest);
  }
  bounds.Check();
  return 0;
}
