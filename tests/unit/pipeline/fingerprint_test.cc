#include "pipeline/fingerprint.h"

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

}  // namespace
}  // namespace walpost::pipeline
