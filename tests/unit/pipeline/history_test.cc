#include "pipeline/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace walpost::pipeline {
namespace {

using base::Fingerprint;
using base::HaltReason;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

class FingerprintTest : public ::testing::Test {
 protected:
  FingerprintTest() {
    before_.publication_oid = 500;
    before_.publication_xmin = 700;
    before_.tables = {{16'400, "outbox", "events", {501, 502}}, {16'410, "shop", "events", {503}}};
    before_.looked_lsn = base::Lsn(0x1934A50);
    before_.looked_at = base::WallTime(std::chrono::seconds(1'700'000'100));
    now_ = before_;
    now_.looked_lsn = base::Lsn(0x2000000);
  }

  void ExpectHalt(HaltReason reason, const std::string& what) {
    const std::optional<Halt> halt = FindEdit(before_, now_);
    ASSERT_TRUE(halt);
    EXPECT_EQ(halt->reason, reason);
    EXPECT_THAT(
        halt->detail,
        AllOf(HasSubstr(what),
              HasSubstr("rows committed after 0/1934A50 (2023-11-14T22:15:00Z) may be missing"),
              HasSubstr("`walpost replay --missing --in-place`"),
              HasSubstr(base::HaltReasonName(reason))));
  }

  Fingerprint before_;
  Fingerprint now_;
};

TEST_F(FingerprintTest, TheSameIsNoEdit) { EXPECT_FALSE(FindEdit(before_, now_)); }

TEST_F(FingerprintTest, EveryInputOfTheServersDecisionCounts) {
  now_.tables[1].memberships = {504};
  ExpectHalt(HaltReason::kPublicationMissing, "table shop.events was taken out of the publication");
  now_ = before_;
  ++now_.publication_xmin;
  ExpectHalt(HaltReason::kPublicationMissing, "the publication was altered");
  now_ = before_;
  ++now_.publication_oid;
  ExpectHalt(HaltReason::kPublicationMissing, "the publication is OID 501 but was OID 500");
  now_ = before_;
  now_.tables[0].oid = 16'500;
  ExpectHalt(HaltReason::kTableReplaced, "table outbox.events is OID 16500 but was OID 16400");
}

TEST_F(FingerprintTest, TableIsPublishedAsLongAsOneWayStays) {
  now_.tables[0].memberships = {502, 600};
  EXPECT_FALSE(FindEdit(before_, now_));
  now_.tables[0].memberships = {600};
  EXPECT_TRUE(FindEdit(before_, now_));
  now_.tables[0].memberships = {};
  EXPECT_TRUE(FindEdit(before_, now_));
}

// FOR ALL TABLES has no such rows.
TEST_F(FingerprintTest, TableOfAnotherNameIsComparedByItsOid) {
  now_.tables[0].name = "renamed";
  EXPECT_FALSE(FindEdit(before_, now_));
  now_.tables[0].memberships = {504};
  ExpectHalt(HaltReason::kPublicationMissing, "table outbox.renamed was taken out");
}

TEST_F(FingerprintTest, WhatIsNotKnownIsNotCompared) {
  before_.tables[0].memberships = {};
  EXPECT_FALSE(FindEdit(before_, now_));
  before_ = Fingerprint();
  EXPECT_FALSE(FindEdit(before_, now_));
  before_.publication_xmin = 701;
  EXPECT_THAT(FindEdit(before_, now_)->detail,
              AllOf(HasSubstr("rows of the time between may be missing"), Not(HasSubstr("1970"))));
}

TEST_F(FingerprintTest, OutboxThatIsNoLongerOneIsNotCompared) {
  now_.tables.pop_back();
  EXPECT_FALSE(FindEdit(before_, now_));
  now_.tables.push_back({16'420, "shop", "others", {505}});
  EXPECT_FALSE(FindEdit(before_, now_));
}

// Rows of before are no events, however often it connects.
TEST_F(FingerprintTest, WhatIsNewHoldsEventsFromWhereItWasAdopted) {
  const auto adopted = [](std::uint64_t lsn) {
    return base::Since{base::Lsn(lsn), base::WallTime(std::chrono::seconds(lsn))};
  };
  before_.tables[1].since = adopted(0x300);
  before_.message_prefixes = {"billing", "shop"};
  before_.prefixes_since = {{"shop", adopted(0x200)}};
  now_.tables[0].name = "renamed";
  now_.tables.push_back({16'420, "outbox", "others", {505}});
  now_.tables.push_back({16'421, "other", "events", {506}});
  now_.message_prefixes = {"billing", "new", "shop"};
  EXPECT_TRUE(KeepSince(before_, adopted(0x500),
                        base::Adoption{adopted(0x500), {base::FullXid{900}}}, &now_));
  std::vector<base::Since> since;
  for (const base::PublishedTable& table : now_.tables) {
    since.push_back(table.since);
  }
  EXPECT_THAT(since, ElementsAre(base::Since(), adopted(0x300), adopted(0x500), adopted(0x500)));
  EXPECT_THAT(now_.prefixes_since,
              ElementsAre(Pair("new", adopted(0x500)), Pair("shop", adopted(0x200))));
  EXPECT_FALSE(KeepSince(Fingerprint(now_), adopted(0x900),
                         base::Adoption{adopted(0x900), {base::FullXid{1'000}}}, &now_));
  EXPECT_EQ(now_.tables[3].since, adopted(0x500));
  EXPECT_THAT(now_.prefixes_since, SizeIs(2));
  now_.message_prefixes.emplace_back("newest");
  EXPECT_TRUE(KeepSince(Fingerprint(before_), adopted(0x900),
                        base::Adoption{adopted(0x900), {base::FullXid{1'000}}}, &now_));
}

TEST_F(FingerprintTest, OnlyWhatIsNewHoldsNoEventsOfOlderTransactions) {
  before_.tables[1].first_xid.xid = base::FullXid{500};
  now_.tables.push_back({16'421, "other", "events", {506}});
  EXPECT_TRUE(KeepSince(before_, {}, base::Adoption{{}, {base::FullXid{900}}}, &now_));
  std::vector<std::uint64_t> first;
  for (const base::PublishedTable& table : now_.tables) {
    first.push_back(table.first_xid.xid.value);
  }
  EXPECT_THAT(first, ElementsAre(0, 500, 900));
}

TEST_F(FingerprintTest, AllTablesOfAPipelineThatHadNoneAreNew) {
  before_.tables.clear();
  EXPECT_TRUE(KeepSince(before_, {base::Lsn(0x500), {}},
                        base::Adoption{{base::Lsn(0x500), {}}, {base::FullXid{900}}}, &now_));
  EXPECT_EQ(now_.tables[0].since.lsn, base::Lsn(0x500));
}

TEST_F(FingerprintTest, ProgressOfBeforeTablesWereRememberedAdoptsNothing) {
  EXPECT_FALSE(KeepSince(Fingerprint(), {base::Lsn(0x500), {}},
                         base::Adoption{{base::Lsn(0x500), {}}, {base::FullXid{900}}}, &now_));
  EXPECT_EQ(now_.tables[0].since, base::Since());
}

using base::Lsn;
using base::Progress;

class RememberedProgressTest : public ::testing::Test {
 protected:
  RememberedProgressTest() {
    facts_.system_identifier = 77;
    facts_.timeline = 1;
    facts_.confirmed_flush_lsn = Lsn(0x400);
    facts_.server_wal_lsn = Lsn(0x900);
    facts_.publication_oid = 500;
    facts_.tables = {{501, "outbox", "events"}};
  }

  static Progress At(std::uint64_t lsn, std::uint32_t timeline = 1, std::uint64_t epoch = 0) {
    Progress progress;
    progress.epoch = epoch;
    progress.system_identifier = 77;
    progress.timeline = timeline;
    progress.end_lsn = Lsn(lsn);
    progress.publication_oid = 500;
    progress.tables = {{501, "outbox", "events"}};
    return progress;
  }

  void ExpectPosition(const std::vector<Progress>& records, Lsn position) {
    const ProgressCheck check = CheckRememberedProgress(records, facts_);
    EXPECT_FALSE(check.halt) << check.halt->detail;
    ASSERT_TRUE(check.progress);
    EXPECT_EQ(check.progress->end_lsn, position);
  }

  std::string ExpectHalt(const std::vector<Progress>& records, HaltReason reason) {
    const ProgressCheck check = CheckRememberedProgress(records, facts_);
    EXPECT_FALSE(check.progress);
    if (!check.halt) {
      ADD_FAILURE() << "no halt";
      return "";
    }
    EXPECT_EQ(check.halt->reason, reason) << check.halt->detail;
    EXPECT_THAT(check.halt->detail,
                AllOf(HasSubstr("--yes"),
                      HasSubstr("docs/runbook.md, " + std::string(HaltReasonName(reason)))));
    return check.halt->detail;
  }

  base::SourceFacts facts_;
};

// Somebody else wrote it. The next records could not be read.
TEST_F(RememberedProgressTest, EpochThatLeavesNoRoomIsUnreadable) {
  facts_.confirmed_flush_lsn = Lsn(100);
  ExpectPosition({At(200, 1, Progress::kEpochMax - 1)}, Lsn(200));
  const ProgressCheck check = CheckRememberedProgress({At(200, 1, Progress::kEpochMax)}, facts_);
  ASSERT_TRUE(check.halt);
  EXPECT_EQ(check.halt->reason, HaltReason::kProgressUnreadable);
}

TEST_F(RememberedProgressTest, SlotAtOrBelowItGoesOn) {
  ExpectPosition({At(0x400)}, Lsn(0x400));
  ExpectPosition({At(0x500)}, Lsn(0x500));
}

TEST_F(RememberedProgressTest, SlotAboveItWasMovedBySomebodyElse) {
  EXPECT_THAT(ExpectHalt({At(0x3ff)}, HaltReason::kSlotMoved),
              AllOf(HasSubstr("0/400"), HasSubstr("0/3FF")));
}

TEST_F(RememberedProgressTest, HighestCountsAndNotTheLast) {
  ExpectPosition({At(0x500), At(0x600), At(0x300)}, Lsn(0x600));
}

TEST_F(RememberedProgressTest, NewestTimelineCountsEvenWhenLower) {
  facts_.timeline = 2;
  facts_.timeline_history = {{1, Lsn(0x480)}};
  ExpectPosition({At(0x700, 1), At(0x500, 2)}, Lsn(0x500));
}

TEST_F(RememberedProgressTest, StandbyOnAnOlderTimelineCannotBeJudgedYet) {
  facts_.in_recovery = true;
  const ProgressCheck check = CheckRememberedProgress({At(0x500, 2)}, facts_);
  EXPECT_FALSE(check.halt);
  EXPECT_FALSE(check.progress);
  EXPECT_NE(check.not_yet, "");
  facts_.in_recovery = false;
  ExpectHalt({At(0x500, 2)}, HaltReason::kTimelineChanged);
}

TEST_F(RememberedProgressTest, OperatorsDecisionOverrulesHigherPositions) {
  ExpectPosition({At(0x800), At(0x400, 1, 1)}, Lsn(0x400));
  EXPECT_THAT(ExpectHalt({At(0x800), At(0x300, 1, 1)}, HaltReason::kSlotMoved), HasSubstr("0/300"));
}

TEST_F(RememberedProgressTest, FirstStartHasNothingToJudge) {
  facts_.consistent_point = Lsn(0x400);
  const ProgressCheck check = CheckRememberedProgress({}, facts_);
  EXPECT_FALSE(check.halt);
  EXPECT_FALSE(check.progress);
  facts_.consistent_point = Lsn();
  EXPECT_FALSE(CheckRememberedProgress({}, facts_).halt) << "not recorded where it began";
}

// Failure 74.
TEST_F(RememberedProgressTest, SlotThatMovedWithoutARecordIsUnreadable) {
  facts_.consistent_point = Lsn(0x3ff);
  EXPECT_THAT(ExpectHalt({}, HaltReason::kProgressUnreadable),
              AllOf(HasSubstr("0/400"), HasSubstr("0/3FF")));
}

// Failures 22, 75.
TEST_F(RememberedProgressTest, AnotherClusterIsNamed) {
  facts_.system_identifier = 78;
  EXPECT_THAT(ExpectHalt({At(0x500)}, HaltReason::kClusterChanged),
              AllOf(HasSubstr("78"), HasSubstr("77")));
}

// Failure 23.
TEST_F(RememberedProgressTest, ClusterAdoptedByAnOperatorIsOurs) {
  Progress old = At(0x800);
  old.system_identifier = 76;
  ExpectPosition({old, At(0x400, 1, 1)}, Lsn(0x400));
}

// Failure 21.
TEST_F(RememberedProgressTest, TimelineThatLeftItBehindHalts) {
  facts_.timeline = 2;
  facts_.timeline_history = {{1, Lsn(0x480)}};
  EXPECT_THAT(ExpectHalt({At(0x481)}, HaltReason::kTimelineChanged),
              AllOf(HasSubstr("0/480"), HasSubstr("0/481")));
  ExpectPosition({At(0x480)}, Lsn(0x480));
}

TEST_F(RememberedProgressTest, TimelineThatIsNotInTheHistoryHalts) {
  ExpectHalt({At(0x500, 2)}, HaltReason::kTimelineChanged);
  facts_.timeline = 3;
  facts_.timeline_history = {{1, Lsn(0x480)}};
  ExpectHalt({At(0x500, 2)}, HaltReason::kTimelineChanged);
}

// Two servers were promoted, each to timeline 2.
TEST_F(RememberedProgressTest, TimelineThatBeganLaterInThisHistoryHalts) {
  facts_.timeline = 2;
  facts_.timeline_history = {{1, Lsn(0x600)}};
  ExpectHalt({At(0x500, 2)}, HaltReason::kTimelineChanged);
  ExpectPosition({At(0x600, 2)}, Lsn(0x600));
}

// What was delivered is older than the copy, but the adoption is of a timeline that the copy does
// not have.
TEST_F(RememberedProgressTest, AdoptionThatIsOfAnotherHistoryHalts) {
  const auto adopted_at = [](std::uint64_t lsn, std::uint32_t timeline) {
    Progress progress = At(0x450);
    progress.tables[0].since = {Lsn(lsn), base::WallTime(), timeline};
    return progress;
  };
  ExpectPosition({adopted_at(0x480, 1)}, Lsn(0x450));
  ExpectPosition({adopted_at(0x480, 0)}, Lsn(0x450));
  EXPECT_THAT(ExpectHalt({adopted_at(0x480, 2)}, HaltReason::kTimelineChanged),
              AllOf(HasSubstr("table outbox.events"), HasSubstr("0/480 of timeline 2")));
  Progress by_xid = At(0x450);
  by_xid.tables[0].first_xid = {base::FullXid{9}, 2, Lsn(0x480)};
  ExpectHalt({by_xid}, HaltReason::kTimelineChanged);
  Progress prefix = At(0x450);
  prefix.prefixes_since["p"] = {Lsn(0x480), base::WallTime(), 2};
  ExpectHalt({prefix}, HaltReason::kTimelineChanged);
  // Two servers were promoted, each to timeline 2. A failover that lost the adoption is no other
  // history.
  facts_.timeline = 2;
  facts_.timeline_history = {{1, Lsn(0x490)}};
  ExpectHalt({adopted_at(0x480, 2)}, HaltReason::kTimelineChanged);
  ExpectPosition({adopted_at(0x4a0, 1)}, Lsn(0x450));
}

// Failure 21.
TEST_F(RememberedProgressTest, ServerWhoseLogEndsBeforeItHalts) {
  ExpectPosition({At(0x900)}, Lsn(0x900));
  EXPECT_THAT(ExpectHalt({At(0x901)}, HaltReason::kTimelineChanged),
              AllOf(HasSubstr("0/900"), HasSubstr("0/901")));
}

// It may catch up again, or be of a copy that was set back: then it has events that it would not
// send.
TEST_F(RememberedProgressTest, StandbyIsWaitedForUntilItHasReplayedWhatWasRead) {
  facts_.in_recovery = true;
  facts_.looked_lsn = Lsn(0x900);
  ExpectPosition({At(0x900)}, Lsn(0x900));
  const ProgressCheck check = CheckRememberedProgress({At(0x901)}, facts_);
  EXPECT_FALSE(check.halt);
  EXPECT_FALSE(check.progress);
  EXPECT_NE(check.not_yet, "");
}

TEST_F(RememberedProgressTest, ReplacedPublicationHalts) {
  facts_.publication_oid = 600;
  EXPECT_THAT(ExpectHalt({At(0x500)}, HaltReason::kPublicationMissing),
              AllOf(HasSubstr("600"), HasSubstr("500")));
}

TEST_F(RememberedProgressTest, ReplacedTableHalts) {
  facts_.tables[0].oid = 601;
  EXPECT_THAT(ExpectHalt({At(0x500)}, HaltReason::kTableReplaced),
              AllOf(HasSubstr("outbox.events"), HasSubstr("601"), HasSubstr("501")));
}

TEST_F(RememberedProgressTest, OtherTablesOfThePublicationDoNotMatter) {
  facts_.tables.push_back({700, "public", "other"});
  ExpectPosition({At(0x500)}, Lsn(0x500));
  Progress without = At(0x500);
  without.tables.clear();
  without.publication_oid = 0;
  ExpectPosition({without}, Lsn(0x500));
}

TEST_F(RememberedProgressTest, PrefixThatIsNotListedAnyMoreHaltsAndIsNamed) {
  Progress progress = At(0x500);
  progress.message_prefixes = {"shop", "billing"};
  facts_.message_prefixes = {"billing"};
  EXPECT_THAT(ExpectHalt({progress}, HaltReason::kInitIncomplete),
              AllOf(HasSubstr("prefix 'shop'"), HasSubstr("messages.prefixes")));
}

TEST_F(RememberedProgressTest, PrefixThatIsListedAnewIsFine) {
  Progress progress = At(0x500);
  progress.message_prefixes = {"shop"};
  facts_.message_prefixes = {"billing", "shop"};
  ExpectPosition({progress}, Lsn(0x500));
}

TEST_F(RememberedProgressTest, PrefixThatIsListedAnewWhileEventsWithRowsComeAgainHalts) {
  facts_.message_prefixes = {"shop"};
  facts_.dead_letters_come_again = true;
  const std::optional<Halt> halt = CheckRememberedProgress({At(0x500)}, facts_).halt;
  ASSERT_TRUE(halt);
  EXPECT_EQ(halt->reason, HaltReason::kInitIncomplete);
  EXPECT_THAT(halt->detail, HasSubstr("prefix 'shop'"));
  Progress progress = At(0x500);
  progress.message_prefixes = {"shop"};
  ExpectPosition({progress}, Lsn(0x500));
}

TEST_F(RememberedProgressTest, TableThatIsNotListedAnyMoreHaltsAndIsNamed) {
  facts_.tables = {{16'410, "shop", "events", {}}};
  Progress progress = At(0x500);
  progress.tables = {{16'400, "outbox", "events", {}}, {16'410, "shop", "events", {}}};
  EXPECT_THAT(ExpectHalt({progress}, HaltReason::kInitIncomplete),
              AllOf(HasSubstr("table outbox.events"), HasSubstr("slot advance --yes")));
}

TEST_F(RememberedProgressTest, TableThatIsListedByItsNewNameIsFine) {
  facts_.tables = {{16'400, "outbox", "renamed", {}}};
  Progress progress = At(0x500);
  progress.tables = {{16'400, "outbox", "events", {}}};
  ExpectPosition({progress}, Lsn(0x500));
}

}  // namespace
}  // namespace walpost::pipeline
