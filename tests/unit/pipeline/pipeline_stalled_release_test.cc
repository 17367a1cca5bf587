// What goes on while the record of a release has no answer.
#include "park_fixture.h"

namespace walpost::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class StalledReleaseTest : public ParkTest {
 protected:
  // The first record of key a is on its way again, and stays there.
  void ReleaseA() {
    RetryA();
    Look();
    ASSERT_THAT(sink_.outstanding(), SizeIs(1));
  }

  // "b1" is parked, too, and of another topic.
  void RetryAWhileItsTopicWaits(const std::vector<std::string>& ids) {
    Connect();
    ParkA(100, ids);
    ParkB(200);
    dead_letters_.rows.back().topic = "other";
    Transaction(300, {"c1"});
    RetryA();
    Look();
  }

  // No answer for a while.
  void Wait() {
    for (int i = 0; i < 100; ++i) {
      Advance(milliseconds(50));
    }
  }

  // "a1" is on its way again when the table answers a look, and is discarded before that arrives.
  DeadLetterReply LookBeforeADiscard() {
    Connect();
    ParkA(100, {"a1"});
    ReleaseA();
    serve_dead_letters_ = false;
    Wait();
    const auto look = pipeline().TakeDeadLetterRequest(now_);
    CHECK(look && look->kind == DeadLetterRequest::Kind::kLookAgain);
    DeadLetterReply reply = dead_letters_.CarryOut(*look);
    DiscardA();
    return reply;
  }

  void ExpectNothingSentAfter(const DeadLetterReply& reply) {
    Settle();
    pipeline().OnDeadLetterReply(reply, now_);
    serve_dead_letters_ = true;
    Settle();
    Run();
    EXPECT_THAT(Visible('a'), IsEmpty());
    EXPECT_THAT(Rows(), ElementsAre("closed:a1"));
  }
};

// Another instance may have the slot by then, and send the key's events in its turn.
TEST_F(StalledReleaseTest, WithoutAConnectionForLongItIsSuspendedUntilTheNextOne) {
  facts_.wal_sender_timeout_ms = 5'000;
  Connect();
  ParkA(100, {"a1", "a2"});
  ReleaseA();
  ASSERT_TRUE(pipeline().tracker().empty());
  End(base::StreamEnd::Kind::kLost);
  Advance(milliseconds(4'999));
  EXPECT_FALSE(sink_.closed());
  Advance(milliseconds(1));
  Settle();
  EXPECT_TRUE(sink_.closed());
  EXPECT_THAT(Visible('a'), IsEmpty());
  Connect(/*start=*/base::Lsn(100));
  Transaction(100, {"a1", "a2"});
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

// As when it names a partition that is not there, which must last.
TEST_F(StalledReleaseTest, RecordThatHasItsTopicLookedUpEachTimeLetsEventsOfTheTopicGoOn) {
  Connect();
  ParkA(100, {"a1"});
  sink_.LookUpForOwn("orders");
  RetryA();
  Look();
  Transaction(200, {"b1"});
  Run();
  EXPECT_THAT(Visible('b'), ElementsAre("b1"));
  EXPECT_THAT(Visible('a'), IsEmpty()) << "it waits still";
}

// Before it is read, the rows are awaited that earlier events of the topic may become.
TEST_F(StalledReleaseTest, RetryThatIsTakenBackBeforeItBeginsSendsNothing) {
  Connect();
  ParkA(100, {"a1", "a2"});
  Transaction(200, {"b1"});
  RetryA();
  Look();
  ASSERT_THAT(sink_.outstanding(), SizeIs(1)) << "b1";
  dead_letters_.Decide(0, Decision::kNone, /*of_key=*/true);
  Run();
  EXPECT_THAT(Visible('a'), IsEmpty());
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2"));
}

// The same decision would be found again each time, and no other.
TEST_F(StalledReleaseTest, RetryOfWhichOneRowWasTakenBackStopsNoOtherKey) {
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  ParkB(200);
  RetryA();
  dead_letters_.Decide(1, Decision::kNone, /*of_key=*/false);
  dead_letters_.Decide(3, Decision::kRetry, /*of_key=*/true);
  Look();
  Run();
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_THAT(Rows(), ElementsAre("parked:a2", "parked:a3"));
  EXPECT_FALSE(dead_letters_.rows[1].retry()) << "it fails with the row before it";
  EXPECT_THAT(Visible('b'), ElementsAre("b1"));
}

// Of a topic that waits for long: nothing of the release is on its way.
TEST_F(StalledReleaseTest, DiscardOfItsKeyEndsItWhileItWaitsForItsTopic) {
  Connect();
  ParkA(100, {"a1", "a2"});
  Transaction(200, {"c1"});
  RetryA();
  Look();
  ASSERT_THAT(sink_.outstanding(), SizeIs(1)) << "c1";
  DiscardA();
  Wait();
  EXPECT_THAT(Rows(), ElementsAre("closed:a1", "closed:a2"));
  EXPECT_THAT(sink_.outstanding(), SizeIs(1)) << "c1";
  Run();
  EXPECT_THAT(Visible('a'), IsEmpty());
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

// Before its own decision is looked at for the first time.
TEST_F(StalledReleaseTest, DiscardOfItsKeyLetsRetriesOfOtherKeysGoOn) {
  RetryAWhileItsTopicWaits({"a1", "a2"});
  DiscardA();
  Look();
  ASSERT_THAT(Rows(), ElementsAre("closed:a1", "closed:a2", "parked:b1"));
  dead_letters_.Decide(2, Decision::kRetry, /*of_key=*/true);
  Wait();
  EXPECT_THAT(sink_.outstanding(), SizeIs(2)) << "c1 and b1";
}

// By a statement of somebody else, which walpost did not carry out.
TEST_F(StalledReleaseTest, ReleaseWhoseRowsAreGoneLetsRetriesOfOtherKeysGoOn) {
  RetryAWhileItsTopicWaits({"a1"});
  dead_letters_.rows[0].closed = true;
  dead_letters_.Decide(1, Decision::kRetry, /*of_key=*/true);
  Wait();
  EXPECT_THAT(sink_.outstanding(), SizeIs(2)) << "c1 and b1";
}

TEST_F(StalledReleaseTest, RetryOfAnotherTopicGoesOnWhenItIsTakenBackWhileItWaitsForItsTopic) {
  RetryAWhileItsTopicWaits({"a1"});
  dead_letters_.Decide(0, Decision::kNone, /*of_key=*/false);
  dead_letters_.Decide(1, Decision::kRetry, /*of_key=*/true);
  Wait();
  ASSERT_THAT(sink_.outstanding(), SizeIs(2)) << "c1 and b1";
}

// A single row, which parks no key.
TEST_F(StalledReleaseTest, SingleRowIsSuspendedAsWell) {
  facts_.wal_sender_timeout_ms = 5'000;
  options_.on_undeliverable = OnUndeliverable::kDeadLetter;
  Connect();
  ParkA(100, {"a1"});
  ASSERT_EQ(pipeline().parked_keys(), 0U);
  dead_letters_.Decide(0, Decision::kRetry, /*of_key=*/false);
  Look();
  ASSERT_THAT(sink_.outstanding(), SizeIs(1));
  End(base::StreamEnd::Kind::kLost);
  Advance(milliseconds(5'000));
  Settle();
  EXPECT_TRUE(sink_.closed());
}

// Its answer is waited for one at a time, but not for ever: then the line goes on beside it.
TEST_F(StalledReleaseTest, LineGoesOnAfterASessionFailed) {
  Connect();
  ParkA(100, {"a1"});
  ReleaseA();
  sink_.FailSession("gone");
  Wait();
  Wait();
  EXPECT_TRUE(pipeline().want_frame());
  Transaction(200, {"b1"});
  Deliver(sink_.outstanding().back());
  EXPECT_THAT(Visible('b'), ElementsAre("b1"));
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

// Its answers say nothing about what the producer that sends one at a time is there for.
TEST_F(StalledReleaseTest, ReleaseThatGoesOnDoesNotHoldTheLineBesideAPartitionWithoutALeader) {
  Connect();
  ParkA(100, std::vector<std::string>(100, "a1"));
  ReleaseA();
  Transaction(200, {"b1"});
  const delivery::Sequence b1 = pipeline().tracker().next_sequence() - 1;
  sink_.FailSession("gone");
  Settle();
  ASSERT_EQ(sink_.session().mode, delivery::Sink::Mode::kOneAtATime);
  ASSERT_FALSE(pipeline().want_frame());
  // A large record each second; the partition of b1 gives no report.
  for (auto waited = milliseconds(0); waited < 2 * Dispatcher::kReportWaitMin;
       waited += milliseconds(1'000)) {
    for (const delivery::Sequence sequence : sink_.outstanding()) {
      if (sequence != b1) {
        sink_.Deliver(sequence);
      }
    }
    Advance(milliseconds(1'000));
    Settle();
  }
  EXPECT_EQ(pipeline().parked_keys(), 1U) << "the release goes on";
  EXPECT_EQ(sink_.session().mode, delivery::Sink::Mode::kPipelined);
  EXPECT_TRUE(pipeline().want_frame());
}

TEST_F(StalledReleaseTest, LineThatItHoldsGoesOnAfterAWhile) {
  Connect();
  ParkA(100, {"a1"});
  ReleaseA();
  SendPayload(Begin(200));
  Event("a2");
  EXPECT_FALSE(pipeline().want_frame());
  Wait();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2"));
  EXPECT_TRUE(pipeline().want_frame());
  Event("b1");
  SendPayload(Commit(200));
  Deliver(sink_.outstanding().back());
  EXPECT_THAT(Visible('b'), ElementsAre("b1"));
  EXPECT_THAT(Visible('a'), IsEmpty());
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(StalledReleaseTest, LineIsHeldAgainOnceAnswersCome) {
  Connect();
  ParkA(100, {"a1", "a2"});
  ReleaseA();
  Wait();
  Deliver(sink_.outstanding().front());
  ASSERT_THAT(Visible('a'), ElementsAre("a1"));
  SendPayload(Begin(200));
  Event("a3");
  EXPECT_FALSE(pipeline().want_frame());
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2", "a3"));
}

TEST_F(StalledReleaseTest, HalfFullTableDoesNotWaitForIt) {
  options_.dead_letters_max = 6;
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  ReleaseA();
  EXPECT_FALSE(pipeline().want_frame()) << "decisions may make room";
  Wait();
  EXPECT_TRUE(pipeline().want_frame());
}

TEST_F(StalledReleaseTest, HalfFullTableWaitsForTheNextDecision) {
  options_.dead_letters_max = 4;
  Connect();
  ParkA(100, {"a1", "a2"});
  dead_letters_.rows[1].key = "b";
  dead_letters_.rows[0].value.reset();
  dead_letters_.rows[0].truncated_bytes = 5;
  RetryA();
  dead_letters_.Decide(1, Decision::kDiscard, /*of_key=*/true);
  serve_dead_letters_ = false;
  Advance(DeadLetters::kLookEvery);
  for (int i = 0; i < 20 && dead_letters_.rows[0].detail.find("no record") == std::string::npos;
       ++i) {
    if (const auto asked = pipeline().TakeDeadLetterRequest(now_)) {
      pipeline().OnDeadLetterReply(dead_letters_.CarryOut(*asked), now_);
    }
  }
  EXPECT_FALSE(pipeline().want_frame()) << "the retry has failed, and the discard may make room";
  serve_dead_letters_ = true;
  Advance(DeadLetters::kLookEvery);
  Run();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "closed:a2"));
  EXPECT_TRUE(pipeline().want_frame());
}

// Who decides may hold the rows, too.
TEST_F(StalledReleaseTest, HalfFullTableDoesNotWaitForADiscardThatFails) {
  options_.dead_letters_max = 6;
  Connect();
  ParkA(100, {"a1", "a2", "a3"});
  DiscardA();
  serve_dead_letters_ = false;
  Advance(DeadLetters::kLookEvery);
  auto asked = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(asked);
  pipeline().OnDeadLetterReply(dead_letters_.CarryOut(*asked), now_);
  EXPECT_FALSE(pipeline().want_frame()) << "it may make room";
  asked = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(asked);
  ASSERT_EQ(asked->kind, DeadLetterRequest::Kind::kKeyDiscarded);
  pipeline().OnDeadLetterReply({.id = asked->id, .status = absl::UnavailableError("held")}, now_);
  EXPECT_TRUE(pipeline().want_frame());
  serve_dead_letters_ = true;
  Advance(DeadLetters::kAskAgainAfter);
  Run();
  EXPECT_THAT(Rows(), ElementsAre("closed:a1", "closed:a2", "closed:a3"));
}

TEST_F(StalledReleaseTest, DiscardThatFailsStopsNoRetry) {
  Connect();
  ParkA(100, {"a1"});
  ParkB(200);
  DiscardA();
  serve_dead_letters_ = false;
  Look();
  const auto carry_out = [this](bool discards_fail) {
    const auto request = pipeline().TakeDeadLetterRequest(now_);
    if (!request) {
      return;
    }
    if (discards_fail && request->kind == DeadLetterRequest::Kind::kKeyDiscarded) {
      pipeline().OnDeadLetterReply({.id = request->id, .status = absl::UnavailableError("held")},
                                   now_);
    } else {
      pipeline().OnDeadLetterReply(dead_letters_.CarryOut(*request), now_);
    }
  };
  for (int i = 0; i < 3; ++i) {
    carry_out(/*discards_fail=*/true);
  }
  dead_letters_.Decide(1, Decision::kRetry, /*of_key=*/true);
  for (int i = 0; i < 50; ++i) {
    Advance(milliseconds(100));
    carry_out(/*discards_fail=*/true);
    sink_.DeliverAll();
  }
  EXPECT_THAT(Visible('b'), ElementsAre("b1"));
  EXPECT_THAT(Rows(), ElementsAre("parked:a1"));
  for (int i = 0; i < 50; ++i) {
    Advance(milliseconds(100));
    carry_out(/*discards_fail=*/false);
  }
  EXPECT_THAT(Rows(), ElementsAre("closed:a1"));
  EXPECT_THAT(Visible('a'), IsEmpty());
}

// Without progress the server may fall back to the position that it has on its disk.
TEST_F(StalledReleaseTest, WithoutProgressTheRowStaysWhileTheServerMayFallBackBeforeIt) {
  facts_.restart_lsn = base::Lsn(50);
  Connect();
  ParkA(100, {"a1"});
  RetryA();
  Look();
  Run();
  EXPECT_EQ(Confirmed(), base::Lsn(108));
  EXPECT_THAT(Rows(), ElementsAre("closed:a1"));
}

TEST_F(StalledReleaseTest, DiscardOfAnotherKeyIsCarriedOut) {
  Connect();
  ParkA(100, {"a1"});
  ParkB(200);
  ReleaseA();
  dead_letters_.Decide(1, Decision::kDiscard, /*of_key=*/true);
  Look();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "closed:b1"));
  EXPECT_EQ(pipeline().parked_keys(), 1U);
  Transaction(300, {"b2"});
  Deliver(sink_.outstanding().back());
  EXPECT_THAT(Visible('b'), ElementsAre("b2"));
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

TEST_F(StalledReleaseTest, RowsThatCameAfterADiscardAreSentWhenItHasEnded) {
  Connect();
  ParkA(100, {"a1"});
  ParkB(200);
  ReleaseA();
  dead_letters_.Decide(1, Decision::kDiscard, /*of_key=*/true);
  Transaction(300, {"b2"});
  Look();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "closed:b1", "parked:b2"));
  EXPECT_TRUE(dead_letters_.rows[2].retry()) << "a restart knows of it too";
  Run();
  Look();
  Run();
  EXPECT_THAT(Visible('b'), ElementsAre("b2"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

// Its row is written only when the discard was carried out.
TEST_F(StalledReleaseTest, EventThatWaitsToBeWrittenBehindADiscardIsSentToo) {
  Connect();
  ParkA(100, {"a1"});
  ParkB(200);
  ReleaseA();
  serve_dead_letters_ = false;
  dead_letters_.Decide(1, Decision::kDiscard, /*of_key=*/true);
  Advance(DeadLetters::kLookEvery);
  const auto look = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(look);
  pipeline().OnDeadLetterReply(dead_letters_.CarryOut(*look), now_);
  const auto discard = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(discard);
  Transaction(300, {"b2"});
  pipeline().OnDeadLetterReply(dead_letters_.CarryOut(*discard), now_);
  serve_dead_letters_ = true;
  Run();
  Look();
  Run();
  EXPECT_THAT(Visible('b'), ElementsAre("b2"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

TEST_F(StalledReleaseTest, DiscardOfItsKeyEndsIt) {
  Connect();
  ParkA(100, {"a1", "a2"});
  ReleaseA();
  DiscardA();
  Wait();
  EXPECT_EQ(pipeline().counters().producers_after_recall, 1U);
  EXPECT_THAT(Visible('a'), IsEmpty());
  EXPECT_THAT(Rows(), ElementsAre("closed:a1", "closed:a2"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
  Transaction(200, {"a3"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a3"));
}

// It is with no producer any more, so none is ended for it.
TEST_F(StalledReleaseTest, RecordThatIsRejectedWhenItIsToBeSentNoMoreEndsOneSession) {
  Connect();
  ParkA(100, {"a1"});
  ReleaseA();
  DiscardA();
  serve_dead_letters_ = false;
  Advance(DeadLetterRelease::kStalledAfter);
  std::optional<DeadLetterRequest> request = pipeline().TakeDeadLetterRequest(now_);
  for (; request; request = pipeline().TakeDeadLetterRequest(now_)) {
    pipeline().OnDeadLetterReply(dead_letters_.CarryOut(*request), now_);
    if (request->kind == DeadLetterRequest::Kind::kLookAgain) {
      break;
    }
  }
  ASSERT_TRUE(request);
  sink_.Fail(DeadLetters::kFirstSequence + 1, delivery::FailureKind::kTopicInvalid);
  Wait();  // for the producer that sends one at a time
  Wait();
  EXPECT_EQ(pipeline().counters().producers_after_recall, 0U);
  Transaction(200, {"b1"});
  DeliverAll();
  EXPECT_THAT(Visible('b'), ElementsAre("b1")) << "although the table is away";
  serve_dead_letters_ = true;
  Run();
  EXPECT_THAT(Rows(), ElementsAre("closed:a1"));
}

TEST_F(StalledReleaseTest, DiscardThatComesTooLateSaysThatTheRowWasSent) {
  Connect();
  ParkA(100, {"a1"});
  ReleaseA();
  DiscardA();
  sink_.HoldClose(true);
  Wait();
  ASSERT_TRUE(sink_.session().closed || !sink_.outstanding().empty());
  sink_.Deliver(DeadLetters::kFirstSequence + 1);
  Tick();
  sink_.HoldClose(false);
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_THAT(Rows(), IsEmpty()) << "sent, and not discarded";
  EXPECT_EQ(pipeline().parked_keys(), 0U);
}

// What has no order is closed by the database at once.
TEST_F(StalledReleaseTest, RowThatIsClosedMeanwhileEndsIt) {
  Connect();
  ParkA(100, {"a1"});
  base::DeadLetter row = dead_letters_.rows[0];
  row.seq = 99;
  row.position = "elsewhere";
  row.parked = false;
  dead_letters_.rows.push_back(row);
  dead_letters_.Decide(1, Decision::kRetry, /*of_key=*/false);
  Look();
  ASSERT_THAT(sink_.outstanding(), SizeIs(1));
  dead_letters_.rows[1].closed = true;
  Wait();
  EXPECT_THAT(sink_.outstanding(), IsEmpty());
  RetryA();
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

// What the table answered before says nothing about what is decided by now.
TEST_F(StalledReleaseTest, RecordThatIsLostDuringALookIsLookedAtOnceMore) {
  const DeadLetterReply reply = LookBeforeADiscard();
  sink_.FailSession("fenced");
  ExpectNothingSentAfter(reply);
}

TEST_F(StalledReleaseTest, RecordThatIsRejectedDuringALookIsLookedAtOnceMore) {
  const DeadLetterReply reply = LookBeforeADiscard();
  sink_.Fail(sink_.outstanding().front(), delivery::FailureKind::kTopicInvalid);
  ExpectNothingSentAfter(reply);
}

}  // namespace
}  // namespace walpost::pipeline
