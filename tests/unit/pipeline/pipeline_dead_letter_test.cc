// delivery.on_undeliverable: skip and dead_letter.
#include <map>

#include "outbox/kept_row.h"
#include "pipeline_fixture.h"

namespace walpost::pipeline {
namespace {

using base::HaltReason;
using base::Lsn;
using base::StreamEnd;
using delivery::Failure;
using delivery::FailureKind;
using delivery::Sink;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

class DeadLetterPolicyTest : public PipelineFixture {
 protected:
  void Policy(OnUndeliverable policy) {
    options_.on_undeliverable = policy;
    Connect();
  }

  const base::DeadLetter& RowAt(std::size_t index) { return dead_letters_.rows.at(index); }

  std::vector<Decision> Reported() {
    std::vector<Decision> decisions;
    while (std::optional<Decision> decision = pipeline().TakeDecision()) {
      decisions.push_back(*std::move(decision));
    }
    return decisions;
  }
};

TEST_F(DeadLetterPolicyTest, SkippedEventIsCountedReportedAndPassed) {
  Policy(OnUndeliverable::kSkip);
  sink_.Reject(1, Failure{FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1", "b2", "a3"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a3"));
  EXPECT_EQ(Confirmed(), Lsn(108));
  EXPECT_EQ(pipeline().counters().events_skipped, 1U);
  ExpectAccounted();
  const std::vector<Decision> reported = Reported();
  ASSERT_THAT(reported, SizeIs(1));
  EXPECT_EQ(reported[0].kind, Decision::Kind::kSkipped);
  EXPECT_EQ(reported[0].event.id, "b2");
  EXPECT_EQ(reported[0].event.key, "b");
  EXPECT_EQ(reported[0].event.topic, "orders");
  EXPECT_EQ(reported[0].event.reason, "record_too_large");
  EXPECT_EQ(reported[0].event.attempts, 1U);
  EXPECT_EQ(reported[0].detail, "too large");
}

// Each of their transactions is remembered until the event before them is delivered.
TEST_F(DeadLetterPolicyTest, SkippedEventsBehindOneThatIsUndeliveredCountTowardsTheLimit) {
  options_.in_flight_bytes_max = 5'000;
  Policy(OnUndeliverable::kSkip);
  Transaction(100, {"a1"});
  std::uint64_t commit_lsn = 100;
  while (pipeline().want_frame() && commit_lsn < 100'000) {
    commit_lsn += 100;
    SendPayload(Begin(commit_lsn));
    SendPayload(EventBytes("b", "b", "no topic/"));
    if (pipeline().want_frame()) {
      SendPayload(Commit(commit_lsn));
    }
  }
  EXPECT_LT(commit_lsn, 30'000U);
  DeliverAll();
  ASSERT_TRUE(pipeline().want_frame());
  SendPayload(Commit(commit_lsn));
  EXPECT_EQ(Confirmed(), Lsn(commit_lsn + 8));
}

TEST_F(DeadLetterPolicyTest, LastEventOfAllSkippedIsConfirmedWithItsTransaction) {
  Policy(OnUndeliverable::kSkip);
  sink_.Reject(0, Failure{FailureKind::kTopicUnknown, "no such topic"});
  Transaction(100, {"a1"});
  Settle();
  EXPECT_EQ(Confirmed(), Lsn(108));
}

TEST_F(DeadLetterPolicyTest, RejectedEventIsConfirmedOnlyWhenItsRowIsCommitted) {
  Policy(OnUndeliverable::kDeadLetter);
  serve_dead_letters_ = false;
  sink_.Reject(1, Failure{FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1", "b2", "a3"});
  sink_.DeliverAll();
  EXPECT_EQ(Confirmed(), Lsn());
  ServeDeadLetters();
  EXPECT_EQ(Confirmed(), Lsn(108));
  EXPECT_THAT(Rows(), ElementsAre("dead:b2"));
  EXPECT_EQ(RowAt(0).reason, "record_too_large");
  EXPECT_EQ(RowAt(0).detail, "too large");
  EXPECT_EQ(RowAt(0).attempts, 1U);
  EXPECT_EQ(RowAt(0).source, "outbox.events");
  EXPECT_EQ(RowAt(0).topic, "orders");
  EXPECT_EQ(RowAt(0).key, "b");
  EXPECT_EQ(RowAt(0).value, "payload of b2");
  EXPECT_EQ(RowAt(0).position, "0000000000c0ffee-00000003-0000000000000064-00000001");
  EXPECT_EQ(pipeline().counters().events_dead_lettered, 1U);
  EXPECT_EQ(pipeline().counters().events_delivered, 2U);
  ExpectAccounted();
}

// Its event counts as delivered, so the server is not asked for it again.
TEST_F(DeadLetterPolicyTest, ServerThatLostTheRowOfADeadLetterHaltsBeforeAnythingIsRead) {
  Policy(OnUndeliverable::kDeadLetter);
  sink_.Reject(0, Failure{FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1"});
  DeliverAll();
  ASSERT_THAT(Rows(), ElementsAre("dead:a1"));
  End(base::StreamEnd::Kind::kLost);
  dead_letters_.rows.clear();
  dead_letters_.written = 0;
  Connect(Lsn(100), /*announce=*/false);
  ExpectHalted(base::HaltReason::kTimelineChanged, "wrote 1 rows");
}

// The verb does not say so, but an operator may write it.
TEST_F(DeadLetterPolicyTest, DiscardOfTheKeyOfARowThatIsNotParkedIsOfTheRow) {
  Policy(OnUndeliverable::kDeadLetter);
  sink_.Reject(0, Failure{FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1"});
  DeliverAll();
  serve_dead_letters_ = false;
  dead_letters_.rows.at(0).decision = base::DeadLetter::Decision::kDiscard;
  dead_letters_.rows.at(0).of_key = true;
  Advance(DeadLetters::kLookEvery);
  for (int i = 0; i < 10; ++i) {
    if (const auto wanted = pipeline().TakeDeadLetterRequest(now_)) {
      pipeline().OnDeadLetterReply(dead_letters_.CarryOut(*wanted), now_);
    }
  }
  EXPECT_THAT(Rows(), ElementsAre("closed:a1"));
}

TEST_F(DeadLetterPolicyTest, DecisionOfWhichNothingCameIsLookedForLater) {
  Policy(OnUndeliverable::kDeadLetter);
  sink_.Reject(0, Failure{FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1"});
  DeliverAll();
  serve_dead_letters_ = false;
  dead_letters_.rows.at(0).decision = base::DeadLetter::Decision::kDiscard;
  Advance(DeadLetters::kLookEvery);
  int requests = 0;
  while (const auto wanted = pipeline().TakeDeadLetterRequest(now_)) {
    ASSERT_LT(++requests, 10) << "it would ask without end";
    DeadLetterReply reply = dead_letters_.CarryOut(*wanted);
    if (wanted->kind == DeadLetterRequest::Kind::kDiscarded) {
      dead_letters_.rows.at(0).closed = false;
      reply.closed = false;
      reply.open_rows = 1;
    }
    pipeline().OnDeadLetterReply(std::move(reply), now_);
  }
  EXPECT_EQ(requests, 2);
}

TEST_F(DeadLetterPolicyTest, StandbyThatLagsWithTheRowsIsWaitedFor) {
  Policy(OnUndeliverable::kDeadLetter);
  sink_.Reject(0, Failure{FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1"});
  DeliverAll();
  End(base::StreamEnd::Kind::kLost);
  dead_letters_.written = 0;
  dead_letters_.in_recovery = true;
  Connect(Lsn(100), /*announce=*/false);
  EXPECT_FALSE(pipeline().halt());
  EXPECT_THAT(pipeline().last_error(), HasSubstr("0 of the 1 rows"));
  EXPECT_FALSE(pipeline().want_frame());
  dead_letters_.written = 1;
  Advance(DeadLetters::kAskAgainAfter);
  Tick();
  SendPayload(walpost::testing::RelationBytes(EventsRelation()));
  Transaction(100, {"a1"});
  Transaction(200, {"b2"});
  DeliverAll();
  EXPECT_THAT(Visible('b'), ElementsAre("b2"));
  EXPECT_FALSE(pipeline().halt());
}

TEST_F(DeadLetterPolicyTest, WithoutARejectionNothingIsAskedOfTheTable) {
  Policy(OnUndeliverable::kDeadLetter);
  serve_dead_letters_ = false;
  Transaction(100, {"a1", "b2"});
  DeliverAll();
  Advance(std::chrono::hours(1));
  EXPECT_FALSE(pipeline().TakeDeadLetterRequest(now_));
  EXPECT_TRUE(pipeline().dead_letters_idle());
}

TEST_F(DeadLetterPolicyTest, RowsAreWrittenNoFasterThanTheRate) {
  options_.dead_letters_per_second = 2;
  Policy(OnUndeliverable::kDeadLetter);
  for (delivery::Sequence i = 0; i < 5; ++i) {
    sink_.Reject(i, Failure{FailureKind::kRecordTooLarge, "too large"});
  }
  Transaction(100, {"a1", "b1", "c1", "d1", "e1"});
  EXPECT_THAT(Rows(), SizeIs(2));
  Advance(milliseconds(500));
  Tick();
  EXPECT_THAT(Rows(), SizeIs(3));
  Advance(milliseconds(1'000));
  Tick();
  EXPECT_THAT(Rows(), SizeIs(5));
  EXPECT_EQ(Confirmed(), Lsn(108));
}

TEST_F(DeadLetterPolicyTest, TableThatDoesNotAnswerIsAskedAgainAndOneThatIsMissingHalts) {
  Policy(OnUndeliverable::kDeadLetter);
  serve_dead_letters_ = false;
  sink_.Reject(0, Failure{FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1"});
  auto wanted = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(wanted);
  EXPECT_FALSE(pipeline().TakeDeadLetterRequest(now_)) << "one at a time";
  pipeline().OnDeadLetterReply({.id = wanted->id, .status = absl::UnavailableError("away")}, now_);
  EXPECT_FALSE(pipeline().TakeDeadLetterRequest(now_));
  EXPECT_FALSE(pipeline().halt());
  EXPECT_THAT(pipeline().last_error(), HasSubstr("away"));
  Advance(DeadLetters::kAskAgainAfter);
  wanted = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(wanted);
  pipeline().OnDeadLetterReply({.id = wanted->id, .status = absl::NotFoundError("no table")}, now_);
  Advance(options_.shutdown_timeout);
  ExpectHalted(HaltReason::kDeadLetterFailed, "the table of dead letters cannot be used: no table");
}

TEST_F(DeadLetterPolicyTest, TableThatIsMissingHaltsAlsoWithoutAStream) {
  Policy(OnUndeliverable::kDeadLetter);
  serve_dead_letters_ = false;
  sink_.Reject(0, Failure{FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1"});
  const auto wanted = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(wanted);
  End(StreamEnd::Kind::kLost);
  pipeline().OnDeadLetterReply({.id = wanted->id, .status = absl::NotFoundError("no table")}, now_);
  ExpectHalted(HaltReason::kDeadLetterFailed, "no table");
}

TEST_F(DeadLetterPolicyTest, RetryOfOneEventSendsItAndItsRowGoes) {
  Policy(OnUndeliverable::kDeadLetter);
  sink_.Reject(0, Failure{FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1", "a2"});
  DeliverAll();
  dead_letters_.Decide(0, base::DeadLetter::Decision::kRetry, /*of_key=*/false);
  Advance(DeadLetters::kLookEvery);
  Tick();
  sink_.DeliverAll();
  Tick();
  EXPECT_THAT(Visible('a'), ElementsAre("a2", "a1"));
  EXPECT_THAT(Rows(), IsEmpty());
  EXPECT_TRUE(pipeline().dead_letters_idle());
}

TEST_F(DeadLetterPolicyTest, TooManyOpenRowsHalt) {
  options_.dead_letters_max = 1;
  Policy(OnUndeliverable::kDeadLetter);
  sink_.Reject(0, Failure{FailureKind::kRecordTooLarge, "too large"});
  sink_.Reject(1, Failure{FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1"});
  Tick();
  SendPayload(Begin(200));
  Event("b1");
  ExpectHalted(HaltReason::kDeadLetterFailed,
               "event b1 of outbox.events at 0000000000c0ffee-00000003-00000000000000c8-00000000 "
               "cannot be delivered (too large) and not become a dead letter either: "
               "delivery.dead_letters_max, 1 of them, are open");
}

// What waited for its topic is offered at once, but for rows that are not written yet there may be
// no room.
TEST_F(DeadLetterPolicyTest, TooManyOpenRowsOfATopicThatWasHeldHalt) {
  options_.dead_letters_max = 2;
  Policy(OnUndeliverable::kDeadLetter);
  sink_.SetPending("orders", true);
  SendPayload(Begin(100));
  for (const char* id : {"a1", "b1", "c1", "d1"}) {
    Event(id);
  }
  for (delivery::Sequence sequence = 0; sequence < 4; ++sequence) {
    sink_.Reject(sequence, Failure{FailureKind::kRecordTooLarge, "too large"}, "orders");
  }
  sink_.SetPending("orders", false);
  for (int i = 0; i < 10; ++i) {
    Advance(milliseconds(100));
  }
  EXPECT_THAT(Rows(), SizeIs(2));
  ExpectHalted(HaltReason::kDeadLetterFailed, "delivery.dead_letters_max, 2 of them, are open");
}

TEST_F(DeadLetterPolicyTest, RejectionOneAtATimeMakesARowAndTheNextProducerGoesOnAtOnce) {
  Policy(OnUndeliverable::kDeadLetter);
  Transaction(100, {"a1", "b2", "b3"});
  sink_.Fail(1, FailureKind::kRecordInvalid);
  Settle();
  Deliver(0);
  ASSERT_EQ(sink_.session().mode, delivery::Sink::Mode::kOneAtATime);
  const std::size_t sessions = sink_.sessions().size();
  sink_.Fail(1, FailureKind::kRecordInvalid, "rejected by the broker");
  Settle();
  EXPECT_GE(sink_.sessions().size(), sessions + 1) << "without a back-off";
  EXPECT_EQ(RowAt(0).detail, "rejected by the broker");
  DeliverAll();
  Settle();
  DeliverAll();
  EXPECT_THAT(Visible('b'), ElementsAre("b3"));
  EXPECT_EQ(Confirmed(), Lsn(108));
  EXPECT_FALSE(pipeline().halt());
  ExpectAccounted();
}

TEST_F(DeadLetterPolicyTest, UnclearFailureIsReportedAndTriedAgain) {
  Policy(OnUndeliverable::kDeadLetter);
  Transaction(100, {"a1"});
  sink_.Fail(0, FailureKind::kOther);
  Settle();
  for (std::uint32_t attempt = 1; attempt <= 3; ++attempt) {
    while (sink_.outstanding().empty()) {
      Advance(kBackOff);
      Settle();
    }
    ASSERT_THAT(sink_.outstanding(), ElementsAre(0)) << attempt;
    EXPECT_EQ(pipeline().tracker().entry(0).form, delivery::Tracker::Form::kEvent);
    sink_.Fail(0, FailureKind::kOther, "who knows");
    Settle();
    const std::vector<Decision> reported = Reported();
    ASSERT_THAT(reported, SizeIs(1));
    EXPECT_EQ(reported[0].kind, Decision::Kind::kRetried);
    EXPECT_EQ(reported[0].event.id, "a1");
    EXPECT_EQ(reported[0].event.attempts, attempt);
    EXPECT_EQ(reported[0].detail, "who knows");
  }
}

TEST_F(DeadLetterPolicyTest, LargerThanADeadLetterMayBeItIsTruncated) {
  Policy(OnUndeliverable::kDeadLetter);
  sink_.Reject(0, Failure{FailureKind::kRecordTooLarge, "too large"});
  const std::string large(base::DeadLetter::kRecordBytesMax, 'x');
  SendPayload(Begin(100));
  SendPayload(EventBytes({testing::TextColumn("b1"), testing::TextColumn("b"),
                          testing::TextColumn("orders"), testing::TextColumn("created"),
                          testing::BinaryColumn(large)}));
  SendPayload(Commit(100));
  Tick();
  EXPECT_THAT(Rows(), ElementsAre("dead:b1"));
  EXPECT_EQ(RowAt(0).reason, "record_too_large");
  EXPECT_GT(RowAt(0).truncated_bytes, large.size());
  EXPECT_EQ(RowAt(0).key, "b");
  EXPECT_FALSE(RowAt(0).value);
  EXPECT_THAT(RowAt(0).headers, IsEmpty());
}

// --- Rows that become no record ---

TEST_F(DeadLetterPolicyTest, RowThatBecomesNoRecordIsTruncatedInItsPlace) {
  Policy(OnUndeliverable::kDeadLetter);
  serve_dead_letters_ = false;
  SendPayload(Begin(100));
  Event("a1");
  SendPayload(EventBytes("b2", "b", "no such/topic"));
  Event("a3");
  SendPayload(Commit(100));
  sink_.DeliverAll();
  EXPECT_EQ(Confirmed(), Lsn());
  ServeDeadLetters();
  EXPECT_EQ(RowAt(0).reason, "row_invalid");
  EXPECT_EQ(RowAt(0).event_id, "b2");
  EXPECT_THAT(RowAt(0).detail, HasSubstr("which Kafka does not allow"));
  EXPECT_EQ(RowAt(0).position, "0000000000c0ffee-00000003-0000000000000064-00000001");
  EXPECT_GT(RowAt(0).truncated_bytes, 0U);
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a3"));
  EXPECT_EQ(Confirmed(), Lsn(108));
  ExpectAccounted();
}

// Its table may not have it any more when an operator decides.
TEST_F(DeadLetterPolicyTest, RowThatBecomesNoRecordIsKept) {
  Policy(OnUndeliverable::kPark);
  SendPayload(Begin(100));
  SendPayload(EventBytes({testing::TextColumn("b2"), testing::TextColumn("b"),
                          testing::TextColumn("no such/topic"), testing::TextColumn("created"),
                          testing::BinaryColumn("of b2")}));
  SendPayload(Commit(100));
  EXPECT_TRUE(RowAt(0).keeps_row());
  EXPECT_THAT(RowAt(0).headers, IsEmpty());
  const auto kept = outbox::KeptRow::Parse(RowAt(0).value.value());
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->relation().name, "events");
  ASSERT_THAT(kept->values(), SizeIs(EventsRelation().columns.size()));
  EXPECT_EQ(kept->values()[0].bytes, "b2");
  EXPECT_EQ(kept->values()[4].bytes, "of b2");
}

TEST_F(DeadLetterPolicyTest, RowLargerThanADeadLetterMayBeIsNotKept) {
  Policy(OnUndeliverable::kDeadLetter);
  SendPayload(Begin(100));
  SendPayload(
      EventBytes({testing::TextColumn("b2"), testing::TextColumn("b"),
                  testing::TextColumn("no such/topic"), testing::TextColumn("created"),
                  testing::BinaryColumn(std::string(base::DeadLetter::kRecordBytesMax, 'x'))}));
  SendPayload(Commit(100));
  EXPECT_EQ(RowAt(0).reason, "row_invalid");
  EXPECT_GT(RowAt(0).truncated_bytes, base::DeadLetter::kRecordBytesMax);
  EXPECT_FALSE(RowAt(0).value);
}

TEST_F(DeadLetterPolicyTest, KeptRowCountsTowardsTheLimitUntilItIsWritten) {
  constexpr std::size_t kBytes = 10'000;
  options_.in_flight_bytes_max = 8 * kBytes;
  Policy(OnUndeliverable::kDeadLetter);
  serve_dead_letters_ = false;
  SendPayload(Begin(100));
  std::size_t taken = 0;
  while (pipeline().want_frame() && taken < 100) {
    SendPayload(
        EventBytes({testing::TextColumn("b" + std::to_string(taken++)), testing::TextColumn("b"),
                    testing::TextColumn("no such/topic"), testing::TextColumn("created"),
                    testing::BinaryColumn(std::string(kBytes, 'x'))}));
  }
  EXPECT_LE(taken, 8U);
  ServeDeadLetters();
  EXPECT_TRUE(pipeline().want_frame()) << "written, they are held no more";
}

// Who writes rows chooses these texts, and the table may be away for long.
TEST_F(DeadLetterPolicyTest, TextsOfARowThatWaitsCountTowardsTheLimit) {
  constexpr std::size_t kTopicBytes = 1'000;
  options_.in_flight_bytes_max = 8 * kTopicBytes;
  Policy(OnUndeliverable::kDeadLetter);
  serve_dead_letters_ = false;
  SendPayload(Begin(100));
  std::size_t taken = 0;
  while (pipeline().want_frame() && taken < 100) {
    SendPayload(
        EventBytes("b" + std::to_string(taken++), "b", std::string(kTopicBytes, 't') + "/"));
  }
  EXPECT_LE(taken, 8U);
  ServeDeadLetters();
  EXPECT_THAT(Rows(), SizeIs(taken));
  EXPECT_TRUE(pipeline().want_frame()) << "written, they are held no more";
}

// Operators look for dead letters by it.
TEST_F(DeadLetterPolicyTest, RowThatBecomesNoRecordSaysWhyInAWord) {
  options_.outboxes[0].table.topics.allowed = {"orders"};
  Policy(OnUndeliverable::kDeadLetter);
  SendPayload(Begin(100));
  SendPayload(EventBytes("b1", "b", "elsewhere"));
  SendPayload(Commit(100));
  EXPECT_EQ(RowAt(0).reason, "topic_not_allowed");
  EXPECT_EQ(RowAt(0).topic, "elsewhere");
}

// What is larger than the limit is not mapped or encoded, but it is still known which event it was.
TEST_F(DeadLetterPolicyTest, RowBeyondTheLimitIsUndeliverable) {
  options_.event_bytes_max = 1'000;
  Policy(OnUndeliverable::kDeadLetter);
  SendPayload(Begin(100));
  SendPayload(EventBytes({testing::TextColumn("b1"), testing::TextColumn("b"),
                          testing::TextColumn("orders"), testing::TextColumn("created"),
                          testing::BinaryColumn(std::string(100'000, 'x'))}));
  SendPayload(EventBytes("b2", "b", "orders"));
  SendPayload(Commit(100));
  EXPECT_EQ(RowAt(0).reason, "event_too_large");
  EXPECT_EQ(RowAt(0).event_id, "b1");
  EXPECT_GT(RowAt(0).truncated_bytes, 100'000U);
  EXPECT_TRUE(RowAt(0).keeps_row()) << "the limit may be raised";
}

TEST_F(DeadLetterPolicyTest, RowThatBecomesNoRecordIsSkippedAndNotDoubledByAReconnect) {
  Policy(OnUndeliverable::kSkip);
  SendPayload(Begin(100));
  SendPayload(EventBytes("b2", "b", "no such/topic"));
  End(base::StreamEnd::Kind::kLost);
  Connect(/*start=*/Lsn(100));
  SendPayload(Begin(100));
  SendPayload(EventBytes("b2", "b", "no such/topic"));
  SendPayload(Commit(100));
  Settle();
  EXPECT_EQ(pipeline().counters().events_skipped, 1U);
  EXPECT_EQ(pipeline().counters().events_repeated, 1U);
  EXPECT_EQ(Confirmed(), Lsn(108));
  ExpectAccounted();
}

// --- What is reported ---

TEST_F(DeadLetterPolicyTest, DecisionsTooManyToReportAreCountedOnce) {
  Policy(OnUndeliverable::kSkip);
  sink_.RejectTopic("orders", Failure{FailureKind::kTopicUnknown, "no such topic"});
  std::uint64_t commit_lsn = 0;
  std::uint64_t skipped = 0;
  const auto skip = [&](std::size_t events) {
    Transaction(commit_lsn += 100, std::vector<std::string>(events, "a"));
    Settle();
    skipped += events;
  };
  for (const std::size_t too_many : {7, 3}) {
    skip(Undeliverables::kUnreportedMax + too_many);
    EXPECT_THAT(Reported(), SizeIs(Undeliverables::kUnreportedMax));
    for (const std::size_t not_reported : {too_many, std::size_t{0}}) {
      skip(1);
      const std::vector<Decision> reported = Reported();
      ASSERT_THAT(reported, SizeIs(1));
      EXPECT_EQ(reported[0].not_reported, not_reported);
    }
  }
  EXPECT_EQ(pipeline().counters().events_skipped, skipped);
}

// Whoever writes events invents them.
TEST_F(DeadLetterPolicyTest, TopicsThatTakeNothingThenThoseThatDoAreStillCountedByName) {
  constexpr std::uint64_t kInvented = 1'000;
  Policy(OnUndeliverable::kSkip);
  SendPayload(Begin(100));
  for (std::uint64_t i = 0; i < kInvented; ++i) {
    const std::string topic = "invented-" + std::to_string(i);
    sink_.RejectTopic(topic, Failure{FailureKind::kTopicUnknown, "no such topic"});
    SendPayload(EventBytes("e" + std::to_string(i), "k", topic));
  }
  SendPayload(Commit(100));
  Settle();
  EXPECT_EQ(pipeline().counters().events_skipped, kInvented);
  Transaction(200, {"a1"});
  DeliverAll();
  EXPECT_THAT(pipeline().counters().delivered_by_topic.rows(),
              ElementsAre(Pair("(other)", 0), Pair("orders", 1)));
}

}  // namespace
}  // namespace walpost::pipeline
