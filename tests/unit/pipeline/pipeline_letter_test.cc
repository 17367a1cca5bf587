// delivery.on_undeliverable: skip and dead_letter.
#include <map>

#include "envelope/letter.h"
#include "pipeline_fixture.h"

namespace walpost::pipeline {
namespace {

using base::HaltReason;
using base::Lsn;
using delivery::Failure;
using delivery::FailureKind;
using delivery::Sink;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class LetterPolicyTest : public PipelineFixture {
 protected:
  void Policy(OnUndeliverable policy) {
    options_.on_undeliverable = policy;
    Connect();
  }

  // The values of the letters that were acknowledged.
  std::vector<std::string> Letters() {
    std::vector<std::string> values;
    for (const auto& each : sink_.Log("dead-letters", 0)) {
      values.push_back(each.value.value_or("(stub)"));
    }
    return values;
  }

  // What the letter at `sequence` says, as long as it is in flight.
  envelope::Letter LetterAt(delivery::Sequence sequence) {
    const auto letter = envelope::ParseLetter(pipeline().tracker().entry(sequence).record.headers);
    EXPECT_TRUE(letter.ok() && *letter);
    return **letter;
  }

  std::vector<Decision> Told() {
    std::vector<Decision> decisions;
    while (std::optional<Decision> decision = pipeline().TakeDecision()) {
      decisions.push_back(*std::move(decision));
    }
    return decisions;
  }
};

TEST_F(LetterPolicyTest, SkippedEventIsCountedToldAndPassed) {
  Policy(OnUndeliverable::kSkip);
  sink_.Refuse(1, Failure{FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1", "b2", "a3"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a3"));
  EXPECT_EQ(Confirmed(), Lsn(108));
  EXPECT_EQ(pipeline().counters().events_skipped, 1U);
  ExpectAccounted();
  const std::vector<Decision> told = Told();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].kind, Decision::Kind::kSkipped);
  EXPECT_EQ(told[0].event.id, "b2");
  EXPECT_EQ(told[0].event.key, "b");
  EXPECT_EQ(told[0].event.topic, "orders");
  EXPECT_EQ(told[0].event.reason, "record_too_large");
  EXPECT_EQ(told[0].event.attempts, 1U);
  EXPECT_EQ(told[0].detail, "too large");
}

TEST_F(LetterPolicyTest, LastEventOfAllSkippedIsConfirmedWithItsTransaction) {
  Policy(OnUndeliverable::kSkip);
  sink_.Refuse(0, Failure{FailureKind::kTopicUnknown, "no such topic"});
  Transaction(100, {"a1"});
  Settle();
  EXPECT_EQ(Confirmed(), Lsn(108));
}

TEST_F(LetterPolicyTest, RefusedEventIsConfirmedOnlyWhenItsLetterIsAcknowledged) {
  Policy(OnUndeliverable::kDeadLetter);
  sink_.Refuse(1, Failure{FailureKind::kRecordTooLarge, "too large"}, "orders");
  Transaction(100, {"a1", "b2", "a3"});
  EXPECT_EQ(LetterAt(1).reason, "record_too_large");
  EXPECT_EQ(LetterAt(1).id, "b2");
  EXPECT_EQ(LetterAt(1).table, "outbox.events");
  EXPECT_EQ(LetterAt(1).topic, "orders");
  EXPECT_EQ(LetterAt(1).pipeline, "shop");
  EXPECT_EQ(LetterAt(1).position, "0000000000c0ffee-00000003-0000000000000064-00000001");
  Deliver(0);
  Deliver(2);
  EXPECT_EQ(Confirmed(), Lsn());
  Deliver(1);
  EXPECT_EQ(Confirmed(), Lsn(108));
  EXPECT_EQ(pipeline().counters().events_dead_lettered, 1U);
  EXPECT_EQ(pipeline().counters().events_delivered, 2U);
  ExpectAccounted();
}

TEST_F(LetterPolicyTest, VerdictOfACarefulProducerSendsTheLetterThroughTheNextOneAtOnce) {
  Policy(OnUndeliverable::kDeadLetter);
  Transaction(100, {"a1", "b2", "b3"});
  sink_.Fail(1, FailureKind::kRecordInvalid);
  Settle();
  Deliver(0);
  ASSERT_THAT(sink_.outstanding(), ElementsAre(1));
  const std::size_t generations = sink_.generations().size();
  sink_.Fail(1, FailureKind::kRecordInvalid, "refused by the broker");
  Settle();
  EXPECT_EQ(sink_.generations().size(), generations + 1) << "without a back-off";
  ASSERT_THAT(sink_.outstanding(), ElementsAre(1));
  EXPECT_EQ(LetterAt(1).detail, "refused by the broker");
  EXPECT_EQ(LetterAt(1).attempts, 1U);
  EXPECT_THAT(Visible('b'), IsEmpty()) << "nothing goes before the letter is acknowledged";
  DeliverAll();
  Settle();
  DeliverAll();
  EXPECT_THAT(Letters(), ElementsAre("payload of b2"));
  EXPECT_THAT(Visible('b'), ElementsAre("b3"));
  EXPECT_EQ(Confirmed(), Lsn(108));
  EXPECT_FALSE(pipeline().halt());
  ExpectAccounted();
}

TEST_F(LetterPolicyTest, UnclearFailureIsALetterAfterAttemptsMax) {
  Policy(OnUndeliverable::kDeadLetter);
  Transaction(100, {"a1"});
  sink_.Fail(0, FailureKind::kOther);
  for (int attempt = 1; attempt <= 3; ++attempt) {
    Settle();
    Advance(kBackOff);
    Settle();
    ASSERT_THAT(sink_.outstanding(), ElementsAre(0)) << attempt;
    EXPECT_EQ(pipeline().tracker().entry(0).form, delivery::Tracker::Form::kEvent);
    sink_.Fail(0, FailureKind::kOther, "who knows");
  }
  Settle();
  EXPECT_EQ(LetterAt(0).reason, "refused");
  EXPECT_EQ(LetterAt(0).attempts, 3U);
  const std::vector<Decision> told = Told();
  ASSERT_THAT(told, SizeIs(3));
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(told[i].kind, Decision::Kind::kRetried);
    EXPECT_EQ(told[i].event.id, "a1");
    EXPECT_EQ(told[i].event.attempts, i + 1);
    EXPECT_EQ(told[i].detail, "who knows");
  }
  EXPECT_EQ(told[2].kind, Decision::Kind::kDeadLettered);
  EXPECT_EQ(told[2].event.attempts, 3U);
}

TEST_F(LetterPolicyTest, LetterThatDoesNotFitEitherGoesAsAStub) {
  Policy(OnUndeliverable::kDeadLetter);
  Transaction(100, {"a1"});
  sink_.Fail(0, FailureKind::kRecordTooLarge);
  Settle();
  sink_.Fail(0, FailureKind::kRecordTooLarge, "too large");
  Settle();
  sink_.Fail(0, FailureKind::kRecordTooLarge, "too large for letters");
  Settle();
  EXPECT_EQ(LetterAt(0).reason, "record_too_large") << "of the event";
  EXPECT_THAT(LetterAt(0).detail, HasSubstr("too large; the dead-letter topic does not take it "
                                            "either: too large for letters"));
  EXPECT_GT(LetterAt(0).left_out_bytes, 512U);
  DeliverAll();
  EXPECT_THAT(Letters(), ElementsAre("(stub)"));
  EXPECT_EQ(Confirmed(), Lsn(108));
}

TEST_F(LetterPolicyTest, RefusedStubHalts) {
  Policy(OnUndeliverable::kDeadLetter);
  Transaction(100, {"a1"});
  sink_.Refuse(0, Failure{FailureKind::kRecordTooLarge, "too large"});
  sink_.Fail(0, FailureKind::kRecordTooLarge);
  ExpectHalted(HaltReason::kDeadLetterFailed,
               "the letter of event a1 of outbox.events, commit LSN 0/64, ordinal 0, cannot be "
               "written to the dead-letter topic dead-letters: too large; see "
               "docs/runbook.md, dead_letter_failed");
  EXPECT_EQ(confirmed_, Lsn());
  EXPECT_EQ(pipeline().counters().events_discarded, 1U);
}

TEST_F(LetterPolicyTest, MissingDeadLetterTopicHaltsWithoutAStub) {
  Policy(OnUndeliverable::kDeadLetter);
  Transaction(100, {"a1"});
  sink_.Refuse(0, Failure{FailureKind::kTopicUnknown, "no such topic"});
  sink_.Fail(0, FailureKind::kTopicUnknown);
  ExpectHalted(HaltReason::kDeadLetterFailed,
               "the letter of event a1 of outbox.events, commit LSN 0/64, ordinal 0, cannot be "
               "written to the dead-letter topic dead-letters: no such topic; see "
               "docs/runbook.md, dead_letter_failed");
}

TEST_F(LetterPolicyTest, LetterLostWithItsGenerationIsSentAgain) {
  Policy(OnUndeliverable::kDeadLetter);
  Transaction(100, {"a1", "b1"});
  sink_.Fail(0, FailureKind::kRecordInvalid);
  Settle();
  sink_.Fail(0, FailureKind::kRecordInvalid);
  Settle();
  sink_.FailGeneration("fenced");
  Settle();
  Advance(kBackOff);
  Settle();
  ASSERT_THAT(sink_.outstanding(), ElementsAre(0));
  DeliverAll();
  Settle();
  DeliverAll();
  EXPECT_THAT(Letters(), ElementsAre("payload of a1"));
  EXPECT_EQ(Confirmed(), Lsn(108));
}

// --- Rows that become no record ---

TEST_F(LetterPolicyTest, RowThatBecomesNoRecordIsAStubInItsPlace) {
  Policy(OnUndeliverable::kDeadLetter);
  SendPayload(Begin(100));
  Event("a1");
  SendPayload(EventBytes("b2", "b", "no such/topic"));
  Event("a3");
  SendPayload(Commit(100));
  EXPECT_EQ(LetterAt(1).reason, "row_unfit");
  EXPECT_EQ(LetterAt(1).id, "b2");
  EXPECT_THAT(LetterAt(1).detail, HasSubstr("which Kafka does not allow"));
  EXPECT_EQ(LetterAt(1).position, "0000000000c0ffee-00000003-0000000000000064-00000001");
  EXPECT_GT(LetterAt(1).left_out_bytes, 0U);
  EXPECT_EQ(Confirmed(), Lsn());
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a3"));
  EXPECT_THAT(Letters(), ElementsAre("(stub)"));
  EXPECT_EQ(Confirmed(), Lsn(108));
  ExpectAccounted();
}

// Operators look for letters by it.
TEST_F(LetterPolicyTest, RowThatBecomesNoRecordSaysWhyInAWord) {
  options_.outboxes[0].table.topics.allowed = {"orders"};
  Policy(OnUndeliverable::kDeadLetter);
  SendPayload(Begin(100));
  SendPayload(EventBytes("b1", "b", "elsewhere"));
  SendPayload(Commit(100));
  EXPECT_EQ(LetterAt(0).reason, "topic_not_allowed");
  EXPECT_EQ(LetterAt(0).topic, "elsewhere");
}

TEST_F(LetterPolicyTest, RowThatBecomesNoRecordIsSkippedAndNotDoubledByAReconnect) {
  Policy(OnUndeliverable::kSkip);
  SendPayload(Begin(100));
  SendPayload(EventBytes("b2", "b", "no such/topic"));
  End(base::StreamEnd::Kind::kLost);
  Connect();
  SendPayload(Begin(100));
  SendPayload(EventBytes("b2", "b", "no such/topic"));
  SendPayload(Commit(100));
  Settle();
  EXPECT_EQ(pipeline().counters().events_skipped, 1U);
  EXPECT_EQ(pipeline().counters().events_repeated, 1U);
  EXPECT_EQ(Confirmed(), Lsn(108));
  ExpectAccounted();
}

// --- What is told ---

TEST_F(LetterPolicyTest, DecisionsTooManyToTellAreCounted) {
  Policy(OnUndeliverable::kSkip);
  const std::size_t many = Decider::kUntoldMax + 7;
  for (std::size_t i = 0; i < many; ++i) {
    sink_.Refuse(i, Failure{FailureKind::kTopicUnknown, "no such topic"});
  }
  Transaction(100, std::vector<std::string>(many, "a"));
  Settle();
  EXPECT_THAT(Told(), SizeIs(Decider::kUntoldMax));
  sink_.Refuse(many, Failure{FailureKind::kTopicUnknown, "no such topic"});
  Transaction(200, {"b1"});
  Settle();
  const std::vector<Decision> told = Told();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].not_told, 7U);
  EXPECT_EQ(pipeline().counters().events_skipped, many + 1);
}

}  // namespace
}  // namespace walpost::pipeline
