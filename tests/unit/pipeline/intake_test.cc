#include "pipeline/intake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <optional>
#include <string>
#include <vector>

#include "intake_fixture.h"

namespace walpost::pipeline {
namespace {

using base::HaltReason;
using base::Lsn;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using walpost::testing::BinaryColumn;
using walpost::testing::NullColumn;
using walpost::testing::TextColumn;

class IntakeTest : public IntakeFixture {};

TEST_F(IntakeTest, RowBecomesARecordInFlightWithItsPosition) {
  TakeAll({Begin(100), EventBytes("e1", "k1", "orders"), EventBytes("e2", "k2", "invoices")});
  ASSERT_EQ(tracker_.in_flight_events(), 2U);
  const delivery::Tracker::Entry& entry = tracker_.entry(1);
  EXPECT_EQ(entry.record.topic, "invoices");
  EXPECT_EQ(entry.record.key, "k2");
  EXPECT_EQ(entry.record.value, "payload of e2");
  EXPECT_EQ(entry.commit_lsn, Lsn(100));
  EXPECT_EQ(entry.ordinal, 1U);
  EXPECT_EQ(Header(1, "walpost-position"), "0000000000c0ffee-00000003-0000000000000064-00000001");
}

TEST_F(IntakeTest, PositionNamesTheTimelineTheTransactionBelongsTo) {
  TakeAll({Begin(15), EventBytes("e1")});
  EXPECT_EQ(Header(0, "walpost-position"), "0000000000c0ffee-00000002-000000000000000f-00000000");
}

// A replication origin may send 'infinity'. What identifies the transaction stays exact.
TEST_F(IntakeTest, CommitTimeThatNoEnvelopeCanHoldIsClamped) {
  const base::WallTime infinity = base::FromPostgresMicros(INT64_MAX);
  TakeAll({walpost::testing::BeginBytes(Lsn(100), base::Xid{77}, infinity), EventBytes("e1")});
  EXPECT_EQ(tracker_.entry(0).commit_time, base::ClampToYears(infinity));
  EXPECT_TRUE(base::IsWithinYears(tracker_.entry(0).commit_time));
  EXPECT_THAT(intake_.known().LastBefore(Lsn(900)), IsEmpty());
  TakeAll({walpost::testing::CommitBytes(Lsn(100), Lsn(108), infinity)});
  EXPECT_THAT(intake_.known().LastBefore(Lsn(900)),
              ElementsAre(base::CommittedTransaction{Lsn(100), base::Xid{77}, infinity}));
}

TEST_F(IntakeTest, DeliveredTransactionIsConfirmedAtItsEnd) {
  TakeAll({Begin(100), EventBytes("e1"), Commit(100)});
  EXPECT_EQ(tracker_.safe_lsn(), Lsn());
  EXPECT_EQ(intake_.received_lsn(), Lsn(108));
  tracker_.Settle(0);
  EXPECT_EQ(tracker_.safe_lsn(), Lsn(108));
}

// Failures 51, 56.
TEST_F(IntakeTest, OrdinalCountsEventsAlone) {
  pgoutput::Relation other = EventsRelation();
  other.id.oid = 9;
  other.name = "customers";
  Take(Begin(100));
  Take(walpost::testing::RelationBytes(other));
  Take(walpost::testing::InsertBytes(other.id, {TextColumn("row of another table")}));
  Take(walpost::testing::LogicalMessageBytes(true, Lsn(90), "audit", "x"));
  Take(walpost::testing::LogicalMessageBytes(false, Lsn(91), "audit", "x"));
  Take(walpost::testing::UpdateBytes(other.id, {TextColumn("u")}));
  Take(EventBytes("e1"));
  EXPECT_EQ(tracker_.entry(0).ordinal, 0U);
  EXPECT_EQ(counters_.changes_ignored, 4U);
}

// Failure 40.
TEST_F(IntakeTest, WhatIsNoInsertIsCountedAndIgnored) {
  const pgoutput::RelationId events{kEventsOid};
  Take(Begin(100));
  Take(walpost::testing::UpdateBytes(events, {TextColumn("u")}));
  Take(walpost::testing::DeleteBytes(events, 'K', {TextColumn("d")}));
  Take(walpost::testing::TruncateBytes({events}));
  Take(Commit(100));
  EXPECT_EQ(counters_.changes_ignored, 3U);
  EXPECT_EQ(counters_.events_received, 0U);
  EXPECT_EQ(tracker_.safe_lsn(), Lsn(108));
}

// Failure 42.
TEST_F(IntakeTest, RowDeletedByItsOwnTransactionIsAnEventAllTheSame) {
  const pgoutput::RelationId events{kEventsOid};
  TakeAll({Begin(100), EventBytes("e1"),
           walpost::testing::DeleteBytes(events, 'K', {TextColumn("e1")}), Commit(100)});
  EXPECT_THAT(Ids(), ElementsAre("e1"));
  EXPECT_EQ(counters_.changes_ignored, 1U);
}

// Failure 57.
TEST_F(IntakeTest, TypesAndOriginsAreNoChanges) {
  TakeAll({Begin(100), walpost::testing::OriginBytes(Lsn(5), "elsewhere"),
           walpost::testing::TypeBytes(70'000, "public", "mood"), EventBytes("e1"), Commit(100)});
  EXPECT_EQ(counters_.changes_ignored, 0U);
  EXPECT_EQ(tracker_.entry(0).ordinal, 0U);
}

// PostgreSQL 18 sends it without being asked for streaming.
TEST_F(IntakeTest, AbortBetweenTransactionsIsPassedOver) {
  const std::string abort = walpost::testing::StreamAbortBytes(base::Xid{70}, base::Xid{71});
  TakeAll({abort, Begin(100), EventBytes("e1"), Commit(100), abort});
  EXPECT_EQ(tracker_.entry(0).ordinal, 0U);
  Take(Begin(200));
  EXPECT_EQ(Rejected(abort).reason, HaltReason::kProtocolError);
}

TEST_F(IntakeTest, KeepalivePositionInsideATransactionIsNotTakenAsReceived) {
  Take(Begin(100));
  intake_.TakePosition(Lsn(400));
  EXPECT_EQ(intake_.received_lsn(), Lsn());
  TakeAll({EventBytes("e1"), Commit(100)});
  EXPECT_EQ(intake_.received_lsn(), Lsn(108));
  intake_.TakePosition(Lsn(400));
  EXPECT_EQ(intake_.received_lsn(), Lsn(400));
  EXPECT_EQ(tracker_.safe_lsn(), Lsn(100)) << "e1 is undelivered";
}

TEST_F(IntakeTest, ReceivedIsCountedByTable) {
  TakeAll({Begin(100), EventBytes("e1"), EventBytes("e2"), Commit(100)});
  ASSERT_EQ(counters_.received_by_table.size(), 1U);
  EXPECT_EQ(counters_.received_by_table[0].first, "outbox.events");
  EXPECT_EQ(counters_.received_by_table[0].second, 2U);
  EXPECT_EQ(counters_.transactions, 1U);
}

TEST_F(IntakeTest, TransactionsAreCountedByTheirEvents) {
  TakeAll({Begin(100), EventBytes("e1"), EventBytes("e2"), EventBytes("e3"), Commit(100)});
  TakeAll({Begin(200), Commit(200)});
  TakeAll({Begin(300), EventBytes("e4"), Commit(300)});
  EXPECT_EQ(counters_.transactions, 3U);
  EXPECT_EQ(counters_.transaction_sizes.sum, 4U);
  EXPECT_EQ(counters_.transaction_sizes.counts[0], 1U) << "at most 1, and the empty one is none";
  EXPECT_EQ(counters_.transaction_sizes.counts[2], 1U) << "at most 5";
}

// Whoever writes events invents them. A sanitizer's own allocator counts nothing here.
TEST_F(IntakeTest, TopicsAreForgottenWithTheirEvents) {
  const auto take = [this](int from, int to) {
    Take(Begin(static_cast<std::uint64_t>(from) + 100));
    for (int i = from; i < to; ++i) {
      Take(EventBytes("e", "k", "topic" + std::to_string(i)));
      tracker_.Settle(tracker_.oldest_unsettled());
    }
    Take(Commit(static_cast<std::uint64_t>(from) + 100));
  };
  take(0, 2'000);
  const std::size_t before = mallinfo2().uordblks;
  take(2'000, 52'000);
  EXPECT_LT(mallinfo2().uordblks, before + 1024 * 1024);
}

// --- After a reconnect ---

TEST_F(IntakeTest, RepeatedTransactionIsDropped) {
  TakeAll({Begin(100), EventBytes("e1"), EventBytes("e2"), Commit(100)});
  intake_.Leave();
  Reconnect();
  TakeAll({Begin(100), EventBytes("e1"), EventBytes("e2"), Commit(100)});
  TakeAll({Begin(200), EventBytes("e3"), Commit(200)});
  EXPECT_THAT(Ids(), ElementsAre("e1", "e2", "e3"));
  EXPECT_EQ(counters_.events_repeated, 2U);
  EXPECT_EQ(counters_.events_received, 3U);
}

// Failure 45.
TEST_F(IntakeTest, TransactionCutByTheReconnectGoesOnWhereItWasCut) {
  TakeAll({Begin(100), EventBytes("e1"), EventBytes("e2")});
  intake_.Leave();
  Reconnect();
  TakeAll({Begin(100), EventBytes("e1"), EventBytes("e2"), EventBytes("e3"), Commit(100)});
  EXPECT_THAT(Ids(), ElementsAre("e1", "e2", "e3"));
  EXPECT_EQ(tracker_.entry(2).ordinal, 2U);
  EXPECT_EQ(counters_.events_repeated, 2U);
}

// The server may send rows of other tables the first time and not the second, or the other way
// round.
TEST_F(IntakeTest, CutTransactionGoesOnWhereItWasCutWhicheverOtherRowsCome) {
  pgoutput::Relation other = EventsRelation();
  other.id.oid = 9;
  other.name = "customers";
  const std::string announced = walpost::testing::RelationBytes(other);
  const std::string row = walpost::testing::InsertBytes(other.id, {TextColumn("x")});
  TakeAll({Begin(100), announced, row, row, EventBytes("e1")});
  intake_.Leave();
  Reconnect();
  TakeAll({Begin(100), EventBytes("e1"), EventBytes("e2")});
  intake_.Leave();
  Reconnect();
  TakeAll({Begin(100), announced, row, row, EventBytes("e1"), EventBytes("e2"), row,
           EventBytes("e3"), Commit(100)});
  EXPECT_THAT(Ids(), ElementsAre("e1", "e2", "e3"));
  EXPECT_EQ(tracker_.entry(2).ordinal, 2U);
}

TEST_F(IntakeTest, CutTransactionThatComesAgainWithOtherEventsHalts) {
  Take(Begin(100));
  Take(EventBytes("e1"), Lsn(80));
  Take(EventBytes("e2"), Lsn(90));
  intake_.Leave();
  Reconnect();
  Take(Begin(100));
  Take(EventBytes("e2"), Lsn(90));
  EXPECT_EQ(Rejected(EventBytes("e3"), Lsn(95)).reason, HaltReason::kPublicationMissing);
  EXPECT_THAT(Ids(), ElementsAre("e1", "e2"));
}

TEST_F(IntakeTest, CutTransactionThatComesAgainWithFewerEventsHalts) {
  TakeAll({Begin(100), EventBytes("e1"), EventBytes("e2")});
  intake_.Leave();
  Reconnect();
  TakeAll({Begin(100), EventBytes("e1")});
  EXPECT_EQ(Rejected(Commit(100)).reason, HaltReason::kPublicationMissing);
  EXPECT_EQ(tracker_.safe_lsn(), Lsn());
}

TEST_F(IntakeTest, CutTransactionIsNotConfirmedByItsFirstHalf) {
  TakeAll({Begin(100), EventBytes("e1")});
  tracker_.Settle(0);
  intake_.Leave();
  Reconnect();
  EXPECT_EQ(tracker_.safe_lsn(), Lsn());
  TakeAll({Begin(100), EventBytes("e1"), Commit(100)});
  EXPECT_EQ(tracker_.safe_lsn(), Lsn(108)) << "its only event was delivered on the old connection";
}

TEST_F(IntakeTest, RowThatWasNotThereBeforeIsOfAnotherHistory) {
  TakeAll({Begin(100), EventBytes("e1"), Commit(100)});
  intake_.TakePosition(Lsn(500));
  intake_.Leave();
  Reconnect();
  TakeAll({Begin(100), EventBytes("e1"), Commit(100), Begin(300)});
  const Halt halt = Rejected(EventBytes("e0"));
  EXPECT_EQ(halt.reason, HaltReason::kTimelineChanged);
  EXPECT_THAT(halt.detail, HasSubstr("an event there that it did not have"));
}

TEST_F(IntakeTest, NothingCountsAsTakenAfterForget) {
  TakeAll({Begin(100), EventBytes("e1"), Commit(100)});
  intake_.TakePosition(Lsn(500));
  tracker_.DiscardAll();
  intake_.Forget();
  tracker_.ForgetPositions();
  Reconnect();
  TakeAll({Begin(100), EventBytes("e1"), Commit(100)});
  EXPECT_THAT(Ids(), ElementsAre("e1"));
  EXPECT_EQ(counters_.events_repeated, 0U);
}

// --- Halts ---

// Failure 58.
TEST_F(IntakeTest, ImpossibleOrderIsAProtocolErrorThatNamesThePlace) {
  struct Case {
    std::vector<std::string> before;
    std::string payload;
    const char* what;
  };

  const Case cases[] = {
      {{Begin(100)}, Begin(200), "Begin inside a transaction"},
      {{}, Commit(100), "Commit outside a transaction"},
      {{}, EventBytes("e1"), "Insert outside a transaction"},
      {{Begin(100)}, Commit(200), "does not belong to the Begin"},
      {{Begin(100)}, walpost::testing::CommitBytes(Lsn(100), Lsn(100)), "does not belong"},
      {{Begin(100), Commit(100)}, Begin(99), "arrived after position 0/6C"},
      {{},
       walpost::testing::LogicalMessageBytes(true, Lsn(1), "p", "c"),
       "transactional Message outside a transaction"},
      {{Begin(100)}, "Zgarbage", "unknown message"},
      {{Begin(100)}, EventBytes("e1").substr(0, 12), "ends too early"},
  };
  for (const Case& each : cases) {
    delivery::Tracker tracker;
    Counters counters;
    const PipelineOptions options = OptionsOf(EventsOutbox());
    DeadLetters dead_letters(options, &tracker);
    Undeliverables undeliverables(options, &tracker, &counters, &dead_letters);
    Intake intake(options, &tracker, &counters, &undeliverables);
    intake.Start(facts_);
    ASSERT_FALSE(intake.TakePayload(walpost::testing::RelationBytes(EventsRelation()), {}));
    for (const std::string& payload : each.before) {
      ASSERT_FALSE(intake.TakePayload(payload, {})) << each.what;
    }
    const std::optional<Halt> halt = intake.TakePayload(each.payload, {});
    ASSERT_TRUE(halt) << each.what;
    EXPECT_EQ(halt->reason, HaltReason::kProtocolError) << each.what;
    EXPECT_THAT(halt->detail, HasSubstr(each.what));
    EXPECT_THAT(halt->detail, HasSubstr("database shop"));
    EXPECT_TRUE(tracker.empty()) << each.what;
  }
}

// What the keepalive said is safe by now: the row would be confirmed before it is delivered.
TEST_F(IntakeTest, RowBeforeAPositionReportedInsideATransactionIsOfAnotherHistoryAfterAReconnect) {
  TakeAll({Begin(50), EventBytes("e0"), Commit(50)});
  tracker_.Settle(0);
  Take(Begin(100));
  intake_.TakePosition(Lsn(90));
  EXPECT_EQ(tracker_.safe_lsn(), Lsn(90));
  Reconnect();
  TakeAll({Begin(50), EventBytes("e0"), Commit(50)});
  Take(Begin(80));
  EXPECT_EQ(Rejected(EventBytes("e1")).reason, HaltReason::kTimelineChanged);
}

TEST_F(IntakeTest, RowOfATransactionThatAPositionWasReportedInsideOfIsTakenAfterAReconnect) {
  Take(Begin(100));
  intake_.TakePosition(Lsn(200));
  Reconnect();
  TakeAll({Begin(100), EventBytes("e1"), Commit(100)});
  EXPECT_THAT(Ids(), ElementsAre("e1"));
}

TEST_F(IntakeTest, RowThatCannotBecomeAnEventIsUndeliverableAndNamed) {
  Take(Begin(100));
  const Halt halt = Rejected(EventBytes({TextColumn("e1"), NullColumn(), TextColumn("orders"),
                                         TextColumn("t"), BinaryColumn("secret")}));
  EXPECT_EQ(halt.reason, HaltReason::kUndeliverableEvent);
  EXPECT_THAT(halt.detail, HasSubstr("aggregate_id is NULL in event 'e1'"));
  EXPECT_THAT(halt.detail, HasSubstr("transaction 77, commit LSN 0/64, ordinal 0"));
  EXPECT_THAT(halt.detail, Not(HasSubstr("secret")));
  EXPECT_TRUE(tracker_.empty());
}

TEST_F(IntakeTest, RowThatDoesNotFitItsRelationIsAProtocolError) {
  Take(Begin(100));
  EXPECT_EQ(Rejected(EventBytes({TextColumn("e1")})).reason, HaltReason::kProtocolError);
}

}  // namespace
}  // namespace walpost::pipeline
