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
  EXPECT_THAT(names, ::testing::ElementsAre("connect_failed", "login_rejected", "slot_in_use",
                                            "lost", "server_error", "server_stopping", "taken_over",
                                            "planned", "promoted"));
}

TEST(ReconnectReasonTest, EachEndHasItsReason) {
  using Kind = base::StreamEnd::Kind;
  const auto of = [](Kind kind, bool connecting) {
    base::StreamEnd end;
    end.kind = kind;
    return ReconnectReasonOf(end, connecting);
  };
  for (const bool connecting : {true, false}) {
    EXPECT_EQ(of(Kind::kSlotInUse, connecting), ReconnectReason::kSlotInUse);
    EXPECT_EQ(of(Kind::kOperator, connecting), ReconnectReason::kLoginRejected);
    EXPECT_EQ(of(Kind::kFinished, connecting), ReconnectReason::kServerStopping);
    EXPECT_EQ(of(Kind::kServerError, connecting), ReconnectReason::kServerError);
  }
  EXPECT_EQ(of(Kind::kLost, true), ReconnectReason::kConnectFailed);
  EXPECT_EQ(of(Kind::kLost, false), ReconnectReason::kLost);
}

}  // namespace
}  // namespace walpost::pipeline
