#include "pipeline/reconnect_reason.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace walpost::pipeline {
namespace {

// Alerts are written with these: docs/metrics.md, walpost_reconnects_total.
TEST(ReconnectReasonTest, NamesAreThoseOfTheMetrics) {
  std::vector<std::string_view> names;
  for (const ReconnectReason reason : kAllReconnectReasons) {
    names.push_back(ReconnectReasonName(reason));
  }
  EXPECT_THAT(names, ::testing::ElementsAre("connect_failed", "login_refused", "slot_in_use",
                                            "lost", "server_error", "server_stopping", "taken_over",
                                            "planned", "promoted"));
}

}  // namespace
}  // namespace walpost::pipeline
