#include "base/log_event.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace walpost::base {
namespace {

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
