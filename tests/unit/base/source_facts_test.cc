#include "base/source_facts.h"

#include <gtest/gtest.h>

namespace walpost::base {
namespace {

TEST(SourceFactsTest, PositionBelongsToTheTimelineThatHadNotEndedAtIt) {
  SourceFacts facts;
  facts.timeline = 3;
  facts.timeline_history = {{1, Lsn(100)}, {2, Lsn(200)}};
  EXPECT_EQ(facts.TimelineOf(Lsn(99)), 1U);
  EXPECT_EQ(facts.TimelineOf(Lsn(100)), 2U);
  EXPECT_EQ(facts.TimelineOf(Lsn(199)), 2U);
  EXPECT_EQ(facts.TimelineOf(Lsn(200)), 3U);
}

}  // namespace
}  // namespace walpost::base
