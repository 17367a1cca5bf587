#include "base/state.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

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

}  // namespace
}  // namespace walpost::base
