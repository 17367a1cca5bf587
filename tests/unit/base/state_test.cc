#include "base/state.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

#include "base/log_event.h"

namespace walpost::base {
namespace {

TEST(StateTest, EveryStateAndReasonHasItsOwnName) {
  std::set<std::string_view> names;
  for (const State state : kAllStates) {
    EXPECT_NE(StateName(state), "unknown");
    EXPECT_NE(StateName(state), "");
    EXPECT_TRUE(names.insert(StateName(state)).second);
  }
  for (const HaltReason reason : kAllHaltReasons) {
    EXPECT_NE(HaltReasonName(reason), "unknown");
    EXPECT_NE(HaltReasonName(reason), "");
    EXPECT_TRUE(names.insert(HaltReasonName(reason)).second);
  }
}

TEST(StateTest, ExitCodesFollowSysexits) {
  EXPECT_EQ(HaltExitCode(HaltReason::kAuthFailed), 77);
  EXPECT_EQ(HaltExitCode(HaltReason::kProtocolError), 70);
  EXPECT_EQ(HaltExitCode(HaltReason::kSlotMissing), 78);
}

TEST(LogEventTest, EveryEventHasItsOwnName) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(LogEvent::kDeadLetterTopicFailed); ++i) {
    const std::string_view name = LogEventName(static_cast<LogEvent>(i));
    EXPECT_NE(name, "unknown") << i;
    EXPECT_NE(name, "") << i;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

}  // namespace
}  // namespace walpost::base
