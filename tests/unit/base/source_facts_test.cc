#include "base/source_facts.h"

#include <gtest/gtest.h>

#include <chrono>

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

class AdoptedTableTest : public ::testing::Test {
 protected:
  // Timeline 1 ended at 150; a table was adopted at `lsn` of it, while older transactions were
  // open.
  AdoptedTableTest() {
    facts_.system_identifier = 77;
    facts_.timeline = 2;
    facts_.timeline_history = {{1, Lsn(150)}};
    facts_.next_xid = FullXid{2'000};
    facts_.tables = {{16'400, "outbox", "events"}};
  }

  Progress AdoptedAt(Lsn lsn) const {
    Progress progress;
    progress.system_identifier = 77;
    progress.tables = facts_.tables;
    progress.tables[0].since = {Lsn(50), kAt};
    progress.tables[0].first_xid = {FullXid{1'000}, 1, lsn};
    return progress;
  }

  static constexpr WallTime kAt{std::chrono::seconds(1'700'000'000)};

  SourceFacts facts_;
};

TEST_F(AdoptedTableTest, IdIsKeptWhereTheLogThatGaveItIs) {
  Progress progress = AdoptedAt(Lsn(150));
  EXPECT_FALSE(facts_.ForgetOtherLog(&progress));
  EXPECT_EQ(progress.tables[0].first_xid.xid, FullXid{1'000});
  EXPECT_EQ(progress.tables[0].since.lsn, Lsn(50));
}

// Its rows of before the switch are nobody's, and those of after it are events.
TEST_F(AdoptedTableTest, WhereTheLogThatGaveItIsLostTheSwitchTakesItsPlace) {
  Progress progress = AdoptedAt(Lsn(151));
  EXPECT_TRUE(facts_.ForgetOtherLog(&progress));
  EXPECT_FALSE(facts_.ForgetOtherLog(&progress)) << "once";
  EXPECT_EQ(progress.tables[0].first_xid, XidAt());
  EXPECT_EQ(progress.tables[0].since, (Since{Lsn(150), kAt, 1}));
}

TEST_F(AdoptedTableTest, WhereIdsAreGivenAgainItsPositionAndTimeTakeItsPlace) {
  Progress progress = AdoptedAt(Lsn(120));
  facts_.next_xid = FullXid{999};
  EXPECT_TRUE(facts_.ForgetOtherLog(&progress));
  EXPECT_EQ(progress.tables[0].first_xid, XidAt());
  EXPECT_EQ(progress.tables[0].since, (Since{Lsn(120), kAt, 1}));
}

TEST_F(AdoptedTableTest, DecisionBeforeItLeavesItsRowsOfBeforeNobodys) {
  const WallTime now = kAt + std::chrono::hours(1);
  const Progress before = facts_.DecisionAt(Lsn(60), now, AdoptedAt(Lsn(120)));
  EXPECT_EQ(before.tables[0].since, (Since{Lsn(120), kAt, 1}));
  EXPECT_EQ(before.tables[0].first_xid, XidAt());
  const Progress behind = facts_.DecisionAt(Lsn(130), now, AdoptedAt(Lsn(120)));
  EXPECT_EQ(behind.tables[0].since, (Since{Lsn(130), now}));
  Progress elsewhere = AdoptedAt(Lsn(120));
  elsewhere.system_identifier = 78;
  EXPECT_EQ(facts_.DecisionAt(Lsn(60), now, elsewhere).tables[0].since, (Since{Lsn(60), now}));
}

TEST_F(AdoptedTableTest, DecisionKeepsPrefixesThatWereAdoptedBehindIt) {
  Progress newest = AdoptedAt(Lsn(120));
  newest.prefixes_since = {{"late", {Lsn(140), kAt, 1}}, {"early", {Lsn(20), kAt, 1}}};
  facts_.message_prefixes = {"late", "early", "new"};
  const WallTime now = kAt + std::chrono::hours(1);
  const Progress decided = facts_.DecisionAt(Lsn(60), now, newest);
  EXPECT_EQ(decided.prefixes_since.at("late"), (Since{Lsn(140), kAt, 1}));
  EXPECT_EQ(decided.prefixes_since.at("early"), (Since{Lsn(60), now}));
  EXPECT_EQ(decided.prefixes_since.at("new"), (Since{Lsn(60), now}));
  EXPECT_EQ(decided.passed_at, now);
}

// It may have been made on a server that went on after the failover, where it says nothing of this
// one's rows.
TEST_F(AdoptedTableTest, DecisionOfBeforeIsReplaced) {
  const WallTime now = kAt + std::chrono::hours(1);
  facts_.message_prefixes = {"shop"};
  Progress newest = facts_.DecisionAt(Lsn(170), kAt, std::nullopt);
  const Progress decided = facts_.DecisionAt(Lsn(60), now, newest);
  EXPECT_EQ(decided.tables[0].since, (Since{Lsn(60), now}));
  EXPECT_EQ(decided.prefixes_since.at("shop"), (Since{Lsn(60), now}));
}

// Of a timeline that began later here: the server was set back and promoted once more. It would
// halt again.
TEST_F(AdoptedTableTest, DecisionForgetsAnAdoptionOfAnotherHistory) {
  facts_.message_prefixes = {"shop"};
  Progress newest = AdoptedAt(Lsn(120));
  newest.tables[0].since = {Lsn(120), kAt, 2};
  newest.tables[0].first_xid = {};
  newest.prefixes_since = {{"shop", {Lsn(120), kAt, 3}}};
  const Progress decided = facts_.DecisionAt(Lsn(60), kAt, newest);
  EXPECT_EQ(decided.tables[0].since, (Since{Lsn(60), kAt}));
  EXPECT_EQ(decided.prefixes_since.at("shop"), (Since{Lsn(60), kAt}));
}

TEST_F(AdoptedTableTest, PositionBehindTheSwitchOfTimelinesIsOfAnotherHistory) {
  Progress progress = AdoptedAt(Lsn(120));
  progress.tables[0].since = {Lsn(170), kAt, 1};
  progress.prefixes_since = {{"shop", {Lsn(180), kAt, 1}}, {"decided", {Lsn(190), kAt}}};
  EXPECT_TRUE(facts_.ForgetOtherLog(&progress));
  EXPECT_EQ(progress.tables[0].since.lsn, Lsn(150));
  EXPECT_EQ(progress.prefixes_since.at("shop").lsn, Lsn(150));
  EXPECT_EQ(progress.prefixes_since.at("decided").lsn, Lsn(190));
  const Progress decided = facts_.DecisionAt(Lsn(160), kAt, progress);
  EXPECT_EQ(decided.tables[0].since, (Since{Lsn(160), kAt}));
}

TEST_F(AdoptedTableTest, PositionBehindTheEndOfTheLogIsOfAnotherHistory) {
  Progress progress;
  progress.tables = facts_.tables;
  progress.tables[0].since = {Lsn(300), kAt, 2};
  facts_.server_wal_lsn = Lsn(250);
  EXPECT_TRUE(facts_.ForgetOtherLog(&progress));
  EXPECT_EQ(progress.tables[0].since.lsn, Lsn(250));
  progress.tables[0].since = {Lsn(300), kAt, 2};
  facts_.in_recovery = true;  // may be behind what it replayed before a restart
  EXPECT_FALSE(facts_.ForgetOtherLog(&progress));
  EXPECT_EQ(progress.tables[0].since.lsn, Lsn(300));
}

TEST(NextEpochTest, ServersClockOrAboveWhatIsKnown) {
  const WallTime at{std::chrono::microseconds(5'000'999)};
  EXPECT_EQ(NextEpoch(0, at), 5'000U);
  EXPECT_EQ(NextEpoch(4'999, at), 5'000U);
  EXPECT_EQ(NextEpoch(5'000, at), 5'001U);
  EXPECT_EQ(NextEpoch(9'000, at), 9'001U) << "the clock was set back";
  EXPECT_EQ(NextEpoch(0, WallTime(std::chrono::seconds(-1))), 1U) << "before 1970";
}

}  // namespace
}  // namespace walpost::base
