// Values with a schema of a Schema Registry: who waits for it, what becomes of a rejection, and how
// dead letters get theirs.
#include "pipeline_fixture.h"

namespace walpost::pipeline {
namespace {

using base::HaltReason;
using base::Lsn;
using delivery::Failure;
using delivery::FailureKind;
using envelope::Schema;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using walpost::testing::FakeSink;

class SchemaTest : public PipelineFixture {
 protected:
  SchemaTest() {
    envelope::FramingOptions& framing = options_.outboxes[0].encoder.framing;
    framing.framing = envelope::Framing::kPayload;
    framing.type = envelope::SchemaType::kJson;
    framing.subject = "{topic}-value";
    options_.schema_backoff = {kBackOff, kBackOff, kBackOff};
  }

  // The subjects asked for; all get the same answer.
  std::vector<std::string> Answer(const absl::StatusOr<Schema>& answer) {
    std::vector<std::string> subjects;
    if (const auto wanted = pipeline().TakeSchemaLookUp(now_)) {
      SchemaAnswers answers;
      for (const auto& [ref, need] : wanted->needs) {
        subjects.push_back(need.subject);
        answers.push_back(answer);
      }
      pipeline().OnSchemaAnswers(*wanted, answers, now_);
      Tick();
    }
    return subjects;
  }

  void EventFor(const std::string& id, const std::string& topic) {
    SendPayload(EventBytes(id, "a", topic));
  }

  static Schema Id(std::int32_t id, bool fixed = true) {
    return Schema{id, std::nullopt, {}, fixed};
  }

  std::vector<std::string> Values(const std::string& topic, char key) {
    std::vector<std::string> values;
    for (const FakeSink::Submission& each :
         sink_.Log(topic, static_cast<unsigned char>(key) % FakeSink::kPartitions)) {
      values.push_back(each.value.value_or("(null)"));
    }
    return values;
  }

  static std::string FramedValue(char id, const std::string& event) {
    return std::string("\0\0\0\0", 4) + id + "payload of " + event;
  }

  static absl::Status NoSubject() { return absl::NotFoundError("subject 'orders-value': none"); }
};

TEST_F(SchemaTest, EventWaitsUntilItsSchemaIsKnownAndGoesOutFramed) {
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  EXPECT_THAT(sink_.accepted(), IsEmpty());
  EXPECT_THAT(Answer(Id(7)), ElementsAre("orders-value"));
  EXPECT_TRUE(pipeline().want_frame());
  Event("a2");
  SendPayload(Commit(100));
  EXPECT_THAT(Answer(Id(8)), IsEmpty()) << "known already";
  DeliverAll();
  EXPECT_THAT(Values("orders", 'a'), ElementsAre(FramedValue(7, "a1"), FramedValue(7, "a2")));
  EXPECT_EQ(Confirmed(), Lsn(108));
}

// Who writes events invents topics, and so subjects.
TEST_F(SchemaTest, EventsOfATopicWaitForItsSchemaAndThoseOfOthersGoOn) {
  options_.outboxes[0].table.topics.allowed = {"*"};
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  EXPECT_THAT(Answer(Id(7)), ElementsAre("orders-value"));
  EventFor("b1", "invented");
  EventFor("b2", "invented");
  EventFor("b3", "others");
  ASSERT_TRUE(pipeline().want_frame());
  Event("a2");
  EXPECT_THAT(Values("orders", 'a'), IsEmpty());
  sink_.DeliverAll();
  Settle();
  EXPECT_THAT(Values("orders", 'a'), SizeIs(2));
  EXPECT_THAT(Answer(Id(9)), ElementsAre("invented-value", "others-value")) << "at once";
  SendPayload(Commit(100));
  sink_.DeliverAll();
  Settle();
  EXPECT_THAT(Values("invented", 'a'), SizeIs(2));
}

// A look-up may register it.
TEST_F(SchemaTest, NothingIsAskedAboutATopicThatIsNotThere) {
  options_.outboxes[0].table.topics.allowed = {"*"};
  Connect();
  sink_.SetPending("invented", true);
  SendPayload(Begin(100));
  EventFor("b1", "invented");
  EXPECT_THAT(Answer(Id(7)), IsEmpty());
  sink_.SetPending("invented", false);
  Settle();
  EXPECT_THAT(Answer(Id(7)), ElementsAre("invented-value"));
}

TEST_F(SchemaTest, TombstoneGoesOutAsItIsAndWaitsForNothing) {
  Connect();
  SendPayload(Begin(100));
  using walpost::testing::TextColumn;
  SendPayload(EventBytes({TextColumn("a1"), TextColumn("a"), TextColumn("orders"),
                          TextColumn("created"), walpost::testing::NullColumn()}));
  SendPayload(Commit(100));
  DeliverAll();
  EXPECT_THAT(Values("orders", 'a'), ElementsAre("(null)"));
}

TEST_F(SchemaTest, RegistryThatIsAwayIsAskedAgainAndNothingIsDecided) {
  options_.on_undeliverable = OnUndeliverable::kSkip;
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  EXPECT_THAT(Answer(absl::UnavailableError("connection refused")), SizeIs(1));
  EXPECT_EQ(pipeline().schemas().trouble(), "connection refused");
  EXPECT_THAT(Answer(Id(7)), IsEmpty()) << "not before the back-off is over";
  EXPECT_GT(pipeline().NextDeadline(), now_.mono);
  Advance(kBackOff);
  EXPECT_LE(pipeline().NextDeadline(), now_.mono);
  EXPECT_THAT(Answer(Id(7)), SizeIs(1));
  EXPECT_EQ(pipeline().schemas().trouble(), "");
  SendPayload(Commit(100));
  DeliverAll();
  EXPECT_THAT(Values("orders", 'a'), ElementsAre(FramedValue(7, "a1")));
  EXPECT_EQ(pipeline().counters().events_skipped, 0U);
  EXPECT_EQ(pipeline().schemas().statistics().failures, 1U);
}

TEST_F(SchemaTest, SubjectAboutWhichTheRegistryAnswersNothingIsRejectedAfterAWhile) {
  options_.outboxes[0].table.topics.allowed = {"orders", "payments", "refunds"};
  options_.on_undeliverable = OnUndeliverable::kSkip;
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  const absl::Status forbidden = absl::AbortedError("not about that one");
  // How long it decides nothing.
  const auto await = [&](std::uint64_t skipped) {
    const base::MonotonicTime since = now_.mono;
    while (true) {
      EXPECT_THAT(Answer(forbidden), SizeIs(1));
      if (pipeline().counters().events_skipped == skipped || HasFailure()) {
        return std::chrono::duration_cast<std::chrono::milliseconds>(now_.mono - since);
      }
      Advance(SchemaLookUps::kLookEvery);
    }
  };
  EXPECT_THAT(Answer(forbidden), SizeIs(1));
  EXPECT_THAT(pipeline().schemas().trouble(), HasSubstr("not about that one"));
  Advance(SchemaLookUps::kLookEvery);
  EXPECT_EQ(await(1), SchemaLookUps::kUnclearFor - SchemaLookUps::kLookEvery);
  EXPECT_TRUE(pipeline().want_frame());
  EXPECT_EQ(pipeline().schemas().trouble(), "");

  EventFor("a2", "payments");
  EXPECT_EQ(await(2), (SchemaLookUps::kUnclearAnswers - 1) * SchemaLookUps::kLookEvery)
      << "one minute for all";
  EventFor("a3", "refunds");
  EXPECT_THAT(Answer(absl::UnavailableError("away")), ElementsAre("refunds-value"));
  Advance(kBackOff);
  EXPECT_EQ(await(3), (SchemaLookUps::kUnclearAnswers - 1) * SchemaLookUps::kLookEvery);
}

// A writer may choose as many as it likes.
TEST_F(SchemaTest, SchemasOfEventsThatWaitForTheFirstOfTheirTopicAreAskedForTogether) {
  constexpr std::size_t kMany = SchemaLookUps::kNeedsMax + 2;
  options_.outboxes[0].table.columns.schema_name = {"event_type"};
  options_.outboxes[0].encoder.framing.subject = "{record}";
  options_.on_undeliverable = OnUndeliverable::kSkip;
  Connect();
  SendPayload(Begin(100));
  using walpost::testing::BinaryColumn;
  using walpost::testing::TextColumn;
  for (std::size_t i = 0; i < kMany; ++i) {
    SendPayload(EventBytes({TextColumn("a"), TextColumn("a"), TextColumn("orders"),
                            TextColumn("name" + std::to_string(i)), BinaryColumn("x")}));
  }
  EXPECT_THAT(Answer(NoSubject()), ElementsAre("name0"));
  EXPECT_THAT(Answer(NoSubject()), SizeIs(SchemaLookUps::kNeedsMax));
  EXPECT_THAT(Answer(NoSubject()), SizeIs(1));
  EXPECT_EQ(pipeline().counters().events_skipped, kMany);
}

// As a load balancer gives them while registries are restarted.
TEST_F(SchemaTest, UnclearAnswersBetweenClearOnesDecideNothing) {
  options_.outboxes[0].table.topics.allowed = {"orders", "payments"};
  options_.on_undeliverable = OnUndeliverable::kSkip;
  Connect();
  SendPayload(Begin(100));
  const absl::Status forbidden = absl::AbortedError("not about that one");
  Event("a1");
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Answer(forbidden), SizeIs(1));
    Advance(SchemaLookUps::kLookEvery);
  }
  EXPECT_THAT(Answer(Id(7)), SizeIs(1));
  Advance(SchemaLookUps::kUnclearFor);
  EventFor("a2", "payments");
  EXPECT_THAT(Answer(forbidden), ElementsAre("payments-value"));
  Advance(SchemaLookUps::kLookEvery);
  EXPECT_THAT(Answer(Id(8)), ElementsAre("payments-value"));
  EXPECT_EQ(pipeline().counters().events_skipped, 0U);
}

TEST_F(SchemaTest, WhatIsKnownGoesOnWhileTheRegistryIsAway) {
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  Answer(Id(7, /*fixed=*/false));
  Event("a2");
  Advance(options_.schema_refresh);
  EXPECT_THAT(Answer(absl::UnavailableError("away")), ElementsAre("orders-value")) << "refreshed";
  Event("a3");
  Advance(options_.schema_refresh);
  EXPECT_THAT(Answer(absl::NotFoundError("deleted")), SizeIs(1));
  Event("a4");
  Advance(options_.schema_refresh);
  EXPECT_THAT(Answer(Id(9, /*fixed=*/false)), SizeIs(1));
  Event("a5");
  SendPayload(Commit(100));
  DeliverAll();
  EXPECT_THAT(Values("orders", 'a'),
              ElementsAre(FramedValue(7, "a1"), FramedValue(7, "a2"), FramedValue(7, "a3"),
                          FramedValue(7, "a4"), FramedValue(9, "a5")));
}

TEST_F(SchemaTest, SchemaThatIsExactlyThatOneIsNeverRefreshed) {
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  Answer(Id(7));
  Event("a2");
  Advance(10 * options_.schema_refresh);
  EXPECT_THAT(Answer(Id(8)), IsEmpty());
}

TEST_F(SchemaTest, SchemaThatNobodyUsesIsNotRefreshed) {
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  Answer(Id(7, /*fixed=*/false));
  SendPayload(Commit(100));
  DeliverAll();
  Advance(options_.schema_refresh);
  EXPECT_THAT(Answer(Id(8)), SizeIs(1)) << "a1 used it";
  Advance(options_.schema_refresh);
  EXPECT_THAT(Answer(Id(9)), IsEmpty());
}

TEST_F(SchemaTest, RejectedSchemaHaltsByDefaultAndTheRegistryIsAskedAgainOnSighup) {
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  Answer(NoSubject());
  ExpectHalted(HaltReason::kUndeliverableEvent,
               "cannot be delivered: subject 'orders-value': none");
  pipeline().Resume(now_);
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  EXPECT_THAT(Answer(Id(7)), SizeIs(1));
  SendPayload(Commit(100));
  DeliverAll();
  EXPECT_THAT(Values("orders", 'a'), ElementsAre(FramedValue(7, "a1")));
}

TEST_F(SchemaTest, DeadLetterHasTheValueAsItIsAndNotesWhatItNeeds) {
  options_.on_undeliverable = OnUndeliverable::kDeadLetter;
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  Answer(NoSubject());
  SendPayload(Commit(100));
  DeliverAll();
  EXPECT_EQ(dead_letters_.rows.at(0).value, "payload of a1");
  EXPECT_EQ(dead_letters_.rows.at(0).reason, "schema_rejected");
  EXPECT_EQ(dead_letters_.rows.at(0).schema, "payload json - orders-value");
  EXPECT_THAT(dead_letters_.rows.at(0).detail, HasSubstr("subject 'orders-value': none"));
  EXPECT_EQ(Confirmed(), Lsn(108));
}

TEST_F(SchemaTest, DeadLetterOfAnEventThatKafkaRejectsIsUnframedToo) {
  options_.on_undeliverable = OnUndeliverable::kDeadLetter;
  Connect();
  sink_.Reject(0, Failure{FailureKind::kRecordTooLarge, "too large"}, "orders");
  SendPayload(Begin(100));
  Event("a1");
  Answer(Id(7));
  SendPayload(Commit(100));
  DeliverAll();
  EXPECT_EQ(dead_letters_.rows.at(0).value, "payload of a1");
  EXPECT_EQ(dead_letters_.rows.at(0).schema, "payload json - orders-value");
}

TEST_F(SchemaTest, RejectionIsKeptForAWhileAndThenAskedAboutAgain) {
  options_.on_undeliverable = OnUndeliverable::kDeadLetter;
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  Answer(NoSubject());
  Event("a2");
  EXPECT_THAT(Answer(Id(7)), IsEmpty());
  Advance(SchemaLookUps::kRejectionKept);
  EXPECT_THAT(Answer(Id(7)), IsEmpty()) << "nobody needs it";
  Event("a3");
  EXPECT_THAT(Answer(Id(7)), SizeIs(1));
  SendPayload(Commit(100));
  DeliverAll();
  EXPECT_THAT(dead_letters_.rows, SizeIs(2));
  EXPECT_THAT(Values("orders", 'a'), ElementsAre(FramedValue(7, "a3")));
}

// Whoever writes events invents topics, and what is known of each is about as long as its name.
TEST_F(SchemaTest, WhatNoEventInFlightNeedsIsForgottenBeyondABound) {
  options_.on_undeliverable = OnUndeliverable::kSkip;
  options_.outboxes[0].table.topics.allowed = {"*"};
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  ASSERT_THAT(Answer(Id(7)), SizeIs(1));
  const std::string endless(240, 'x');
  const int invented = 30'000;
  for (int i = 0; i < invented; ++i) {
    SendPayload(EventBytes("b" + std::to_string(i), "b", endless + std::to_string(i)));
    ASSERT_THAT(Answer(NoSubject()), SizeIs(1)) << i;
    ASSERT_LE(pipeline().schemas().table().size(), 20'000U);
  }
  EXPECT_EQ(pipeline().counters().events_skipped, 30'000U);
  Event("a2");
  EXPECT_THAT(Answer(Id(8)), IsEmpty()) << "what is known and in use stays known";
  SendPayload(Commit(100));
  DeliverAll();
  EXPECT_THAT(Values("orders", 'a'), ElementsAre(FramedValue(7, "a1"), FramedValue(7, "a2")));
}

TEST_F(SchemaTest, NewSessionFramesWhatItSubmitsAgain) {
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  Answer(Id(7));
  SendPayload(Commit(100));
  sink_.Fail(0, FailureKind::kSessionEnded);
  Settle();
  DeliverAll();
  EXPECT_THAT(Values("orders", 'a'), ElementsAre(FramedValue(7, "a1")));
}

TEST_F(SchemaTest, ParkedKeyIsReleasedOnceTheSchemaIsThereAndItsEventsAreFramed) {
  options_.on_undeliverable = OnUndeliverable::kPark;
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  Answer(NoSubject());
  Event("a2");
  SendPayload(Commit(100));
  DeliverAll();
  ASSERT_EQ(pipeline().parked_keys(), 1U);
  EXPECT_EQ(dead_letters_.rows.at(1).schema, "payload json - orders-value");
  dead_letters_.Decide(0, base::DeadLetter::Decision::kRetry, /*of_key=*/true);
  Advance(DeadLetters::kLookEvery);
  Tick();
  EXPECT_THAT(sink_.outstanding(), IsEmpty()) << "asked anew, also within kRejectionKept";
  EXPECT_THAT(Answer(Id(7)), SizeIs(1));
  for (int i = 0; i < 20; ++i) {
    sink_.DeliverAll();
    Advance(milliseconds(50));
  }
  EXPECT_THAT(Values("orders", 'a'), ElementsAre(FramedValue(7, "a1"), FramedValue(7, "a2")));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(SchemaTest, ReleaseOfAKeyWhoseSchemaIsStillRejectedFailsAndTheKeyStaysParked) {
  options_.on_undeliverable = OnUndeliverable::kPark;
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  Answer(NoSubject());
  SendPayload(Commit(100));
  DeliverAll();
  dead_letters_.Decide(0, base::DeadLetter::Decision::kRetry, /*of_key=*/true);
  Advance(DeadLetters::kLookEvery);
  for (int i = 0; i < 400; ++i) {
    Answer(NoSubject());
    sink_.DeliverAll();
    Advance(kBackOff);
  }
  EXPECT_EQ(dead_letters_.rows.at(0).decision, base::DeadLetter::Decision::kNone);
  EXPECT_THAT(dead_letters_.rows.at(0).detail, HasSubstr("subject 'orders-value': none"));
  EXPECT_EQ(pipeline().parked_keys(), 1U);
}

// An answer that says nothing about the schema must not let others overtake the message.
TEST_F(SchemaTest, MessageLeavesItsKeyOnlyWhenItsSchemaIsRejected) {
  options_.on_undeliverable = OnUndeliverable::kPark;
  for (const absl::Status& answer : {absl::AbortedError("not the leader"), NoSubject()}) {
    Restart();
    dead_letters_.rows.clear();
    Connect();
    SendPayload(Begin(100));
    Event("a1");
    Answer(NoSubject());
    SendPayload(Commit(100));
    DeliverAll();
    dead_letters_.rows.at(0).source = "message:shop";
    dead_letters_.Decide(0, base::DeadLetter::Decision::kRetry, /*of_key=*/true);
    for (int i = 0; i < 2'000 && dead_letters_.rows.at(0).retry(); ++i) {
      Answer(answer);
      Advance(kBackOff);
    }
    EXPECT_THAT(dead_letters_.rows.at(0).detail, HasSubstr(std::string(answer.message())));
    EXPECT_EQ(dead_letters_.rows.at(0).parked, absl::IsAborted(answer));
  }
}

}  // namespace
}  // namespace walpost::pipeline
