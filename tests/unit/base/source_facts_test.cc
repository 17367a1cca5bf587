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

// What is written on an operator's decision would otherwise count more than all that follows it.
TEST(SourceFactsTest, ProgressBeforeASwitchIsOfTheOlderTimeline) {
  SourceFacts facts;
  facts.system_identifier = 77;
  facts.timeline = 3;
  facts.timeline_history = {{1, Lsn(100)}, {2, Lsn(200)}};
  facts.publication_oid = 500;
  const Progress progress = facts.ProgressAt(Lsn(150));
  EXPECT_EQ(progress.system_identifier, 77U);
  EXPECT_EQ(progress.timeline, 2U);
  EXPECT_EQ(progress.end_lsn, Lsn(150));
  EXPECT_EQ(progress.publication_oid, 500U);
}

TEST(SourceFactsTest, LogHasWhatItsTimelinesHadBeforeTheyEndedAndNothingBehindItsEnd) {
  SourceFacts facts;
  facts.timeline = 3;
  facts.timeline_history = {{1, Lsn(100)}, {2, Lsn(200)}};
  facts.server_wal_lsn = Lsn(300);
  EXPECT_TRUE(facts.MayHave(1, Lsn(100)));
  EXPECT_FALSE(facts.MayHave(1, Lsn(101)));
  EXPECT_TRUE(facts.MayHave(2, Lsn(200)));
  EXPECT_TRUE(facts.MayHave(3, Lsn(300)));
  EXPECT_FALSE(facts.MayHave(3, Lsn(301)));
  EXPECT_FALSE(facts.MayHave(4, Lsn(1)));
  facts.in_recovery = true;  // may be behind what it replayed before a restart
  EXPECT_TRUE(facts.MayHave(3, Lsn(301)));
}

}  // namespace
}  // namespace walpost::base
