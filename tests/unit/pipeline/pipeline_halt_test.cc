// Halts the server's words lead to, and resuming after one.
#include "pipeline_fixture.h"

namespace walpost::pipeline {
namespace {

using base::HaltReason;
using base::Lsn;
using base::State;
using base::StreamEnd;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HaltTest : public PipelineFixture {
 protected:
  // Empty = the server said nothing.
  void Lose(const std::string& sqlstate) {
    StreamEnd end;
    end.kind = StreamEnd::Kind::kLost;
    end.status = absl::UnavailableError("streaming ended");
    end.sqlstate = sqlstate;
    pipeline().OnStreamEnd(end, now_);
    Tick();
  }

  // Each before it has got further.
  void LoseConnectionsBehindParkedKeys() {
    facts_.server_wal_lsn = Lsn(1000);
    for (int i = 1; i <= SourceTimers::kLossesMax; ++i) {
      ASSERT_FALSE(pipeline().halt()) << i;
      serve_dead_letters_ = false;
      Connect({}, /*announce=*/false);
      EXPECT_FALSE(pipeline().want_frame());
      Advance(SourceTimers::kNotReadFor - milliseconds(1));
      serve_dead_letters_ = true;
      Tick();
      Tick();  // with what the table said
      EXPECT_TRUE(pipeline().want_frame());
      Advance(milliseconds(1'500));
      End(StreamEnd::Kind::kLost);
      Advance(SourceTimers::WaitAfterLosses(i));
    }
    ExpectHalted(HaltReason::kPoisonWal, "lost 9 times");
  }
};

TEST_F(HaltTest, WhatOnlyAnOperatorCanMendHaltsWithItsReason) {
  for (const HaltReason reason :
       {HaltReason::kSlotMissing, HaltReason::kSlotInvalidated, HaltReason::kSlotForeign,
        HaltReason::kSlotMoved, HaltReason::kPublicationMissing, HaltReason::kInitIncomplete,
        HaltReason::kAuthFailed}) {
    ASSERT_TRUE(pipeline().TakeConnect(now_));
    EndForOperator(reason, "what is wrong");
    ExpectHalted(reason, "what is wrong");
    pipeline().Resume(now_);
  }
}

TEST_F(HaltTest, HaltBeforeAnythingWasReceivedHasNoStreamToFinish) {
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  EndForOperator(HaltReason::kSlotMissing, "no slot");
  ExpectHalted(HaltReason::kSlotMissing, "no slot");
  EXPECT_EQ(last_command_, StreamCommand::kNone);
}

// Failure 15.
TEST_F(HaltTest, LoginRejectedAfterItOnceWorkedIsTriedSomeTimes) {
  Connect();
  End(StreamEnd::Kind::kLost);
  for (int i = 1; i < Pipeline::kAuthFailuresMax; ++i) {
    Settle();
    ASSERT_TRUE(pipeline().TakeConnect(now_)) << i;
    EndForOperator(HaltReason::kAuthFailed, "password authentication failed");
    EXPECT_EQ(pipeline().state(), State::kReconnecting);
  }
  Settle();
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  EndForOperator(HaltReason::kAuthFailed, "password authentication failed");
  ExpectHalted(HaltReason::kAuthFailed, "password authentication failed");
}

TEST_F(HaltTest, LoginThatWorksAgainForgetsTheRejections) {
  Connect();
  for (int round = 0; round < 3; ++round) {
    End(StreamEnd::Kind::kLost);
    for (int i = 1; i < Pipeline::kAuthFailuresMax; ++i) {
      Settle();
      ASSERT_TRUE(pipeline().TakeConnect(now_));
      EndForOperator(HaltReason::kAuthFailed, "no");
    }
    Connect();
  }
  EXPECT_EQ(pipeline().state(), State::kStreaming);
}

// --- poison_wal ---

// Failure 53.
TEST_F(HaltTest, SameErrorInTheSameTransactionThreeTimesIsPoison) {
  for (int i = 1; i <= ServerErrors::kSameErrorMax; ++i) {
    Connect();
    SendPayload(Begin(100));
    Fail("22012", "slot \"walpost\"");
    EXPECT_EQ(pipeline().halt().has_value(), i == ServerErrors::kSameErrorMax) << i;
  }
  ExpectHalted(HaltReason::kPoisonWal, "commit LSN 0/64");
  EXPECT_THAT(pipeline().halt()->detail, HasSubstr("division by zero"));
}

TEST_F(HaltTest, SameErrorBeforeAnyBeginIsPlacedByItsContext) {
  for (int i = 1; i <= ServerErrors::kSameErrorMax; ++i) {
    Connect();
    Fail("22012", "associated LSN 0/64");
  }
  ExpectHalted(HaltReason::kPoisonWal, "associated LSN 0/64");
}

TEST_F(HaltTest, SameErrorWithoutContextIsPoisonWhenNothingIsReceivedBetween) {
  for (int i = 1; i <= ServerErrors::kSameErrorMax; ++i) {
    Connect();
    Fail("XX000", "");
  }
  ExpectHalted(HaltReason::kPoisonWal, "after 0/0");
}

TEST_F(HaltTest, SameErrorWithoutContextIsRetriedWhileTheStreamGetsOn) {
  for (std::uint64_t i = 1; i <= 10; ++i) {
    Connect();
    Transaction(100 * i, {});
    Fail("XX000", "");
  }
  EXPECT_EQ(pipeline().state(), State::kReconnecting);
}

// As where decoding takes more memory than the server has: each attempt ends it.
// Failure 53.
TEST_F(HaltTest, ConnectionLostAgainAndAgainBeforeItGetsFurtherIsPoison) {
  facts_.server_wal_lsn = Lsn(1000);
  for (int i = 1; i <= SourceTimers::kLossesMax; ++i) {
    Connect();
    SendPayload(Begin(100));
    End(StreamEnd::Kind::kLost);
    ASSERT_EQ(pipeline().halt().has_value(), i == SourceTimers::kLossesMax) << i;
    Advance(SourceTimers::WaitAfterLosses(i) - milliseconds(1));
    EXPECT_TRUE(i <= SourceTimers::kLossesWithoutWait || !pipeline().TakeConnect(now_)) << i;
  }
  ExpectHalted(HaltReason::kPoisonWal, "lost 9 times");
}

// Each connection begins with a moment without reading, for the parked keys.
// Failure 53.
TEST_F(HaltTest, ConnectionLostAgainAndAgainIsPoisonWhileADeadLetterIsOpen) {
  dead_letters_.rows.emplace_back().parked = true;
  LoseConnectionsBehindParkedKeys();
}

// Failure 53.
TEST_F(HaltTest, ConnectionLostAgainAndAgainIsPoisonWhereADeadLetterWasWrittenOnce) {
  facts_.progress = facts_.ProgressAt(Lsn());
  facts_.progress->dead_letters = dead_letters_.written = 1;
  LoseConnectionsBehindParkedKeys();
}

// Such as pg_terminate_backend, again and again, while the server may not send what it has.
TEST_F(HaltTest, ConnectionThatDecodingDidNotEndIsRetriedWithoutALongerWait) {
  facts_.server_wal_lsn = Lsn(1000);
  for (const char* sqlstate : {"57P01", "57014", "55000", "08P01"}) {
    for (int i = 1; i <= SourceTimers::kLossesMax; ++i) {
      Connect();
      SendPayload(Begin(100));
      Lose(sqlstate);
      Advance(kBackOff);
      ASSERT_EQ(pipeline().state(), State::kReconnecting) << sqlstate << i;
    }
  }
}

// Failure 53.
TEST_F(HaltTest, ConnectionLostWithAReasonThatDecodingCanCauseIsPoison) {
  facts_.server_wal_lsn = Lsn(1000);
  for (const char* sqlstate : {"57P02", "53200", "53100"}) {
    Restart();
    for (int i = 1; i <= SourceTimers::kLossesMax; ++i) {
      ASSERT_FALSE(pipeline().halt()) << sqlstate << i;
      Connect();
      SendPayload(Begin(100));
      Lose(sqlstate);
      Advance(SourceTimers::WaitAfterLosses(i));
    }
    ExpectHalted(HaltReason::kPoisonWal, "lost 9 times");
  }
}

// Failure 53.
TEST_F(HaltTest, ConnectionThatDecodingDidNotEndLeavesTheNumberOfLosses) {
  facts_.server_wal_lsn = Lsn(1000);
  for (int i = 1; i <= SourceTimers::kLossesMax; ++i) {
    ASSERT_FALSE(pipeline().halt()) << i;
    for (const char* sqlstate : {"57P01", ""}) {
      Connect();
      SendPayload(Begin(100));
      Lose(sqlstate);
    }
    Advance(SourceTimers::WaitAfterLosses(i));
  }
  ExpectHalted(HaltReason::kPoisonWal, "lost 9 times");
}

// A server that holds the stream back for a standby looks like one that cannot decode.
TEST_F(HaltTest, LostConnectionsHaltWithWhatTheServerWarnedOfLast) {
  facts_.server_wal_lsn = Lsn(1000);
  for (int i = 1; i <= SourceTimers::kLossesMax; ++i) {
    Connect();
    pipeline().OnNotice("55000 StandbySlotsHaveCaughtup: slot \"sb\"");
    End(StreamEnd::Kind::kLost);
    Advance(SourceTimers::WaitAfterLosses(i));
  }
  ExpectHalted(HaltReason::kPoisonWal, "StandbySlotsHaveCaughtup");
}

// Where replay is paused, it has received more than it can decode.
TEST_F(HaltTest, LostConnectionIsRetriedWhereAStandbyHasReplayedNoMore) {
  facts_.in_recovery = true;
  facts_.looked_lsn = Lsn(100);
  facts_.server_wal_lsn = Lsn(1000);
  for (int i = 1; i <= 3 * SourceTimers::kLossesMax; ++i) {
    Connect();
    Keepalive(100);
    End(StreamEnd::Kind::kLost);
    Advance(kBackOff);
    ASSERT_EQ(pipeline().state(), State::kReconnecting) << i;
  }
}

// Failure 53.
TEST_F(HaltTest, ConnectionLostAgainAndAgainIsPoisonWhereAStandbyHasReplayedMore) {
  facts_.in_recovery = true;
  facts_.looked_lsn = facts_.server_wal_lsn = Lsn(1000);
  for (int i = 1; i <= SourceTimers::kLossesMax; ++i) {
    Connect();
    Keepalive(999);
    ASSERT_FALSE(pipeline().halt()) << i;
    End(StreamEnd::Kind::kLost);
    Advance(SourceTimers::WaitAfterLosses(i));
  }
  ExpectHalted(HaltReason::kPoisonWal, "lost 9 times");
}

TEST_F(HaltTest, LostConnectionIsRetriedWhileTheStreamGetsOn) {
  facts_.server_wal_lsn = Lsn(10'000);
  for (std::uint64_t i = 1; i <= 3 * SourceTimers::kLossesMax; ++i) {
    Connect();
    Transaction(100 * i, {});
    End(StreamEnd::Kind::kLost);
  }
  EXPECT_EQ(pipeline().state(), State::kReconnecting);
}

TEST_F(HaltTest, LostConnectionIsRetriedWhereTheServerHasNoMore) {
  for (int i = 1; i <= 3 * SourceTimers::kLossesMax; ++i) {
    Connect();
    End(StreamEnd::Kind::kLost);
  }
  EXPECT_EQ(pipeline().state(), State::kReconnecting);
}

TEST_F(HaltTest, ConnectionLostWhileReadingIsPausedIsRetried) {
  facts_.server_wal_lsn = Lsn(10'000);
  options_.in_flight_bytes_max = 1'200;  // two small events
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  Event("a2");
  for (int i = 1; i <= 3 * SourceTimers::kLossesMax; ++i) {
    ASSERT_FALSE(pipeline().want_frame());
    Advance(SourceTimers::kNotReadFor);
    End(StreamEnd::Kind::kLost);
    Connect(Lsn(100));
    SendPayload(Begin(100));
    while (pipeline().want_frame()) {
      Event("a1");
    }
  }
  EXPECT_FALSE(pipeline().halt());
}

TEST_F(HaltTest, ErrorsAtDifferentPositionsAreRetried) {
  for (std::uint64_t i = 1; i <= 10; ++i) {
    Connect();
    SendPayload(Begin(100 * i));
    Fail("22012", "");
  }
  EXPECT_EQ(pipeline().state(), State::kReconnecting);
}

TEST_F(HaltTest, DifferentErrorsAtOnePositionAreRetried) {
  for (int i = 0; i < 10; ++i) {
    Connect();
    SendPayload(Begin(100));
    Fail(i % 2 == 0 ? "22012" : "53200", "");
  }
  EXPECT_EQ(pipeline().state(), State::kReconnecting);
}

TEST_F(HaltTest, LostConnectionsBetweenDoNotHideThePoison) {
  for (int i = 1; i <= ServerErrors::kSameErrorMax; ++i) {
    Connect();
    SendPayload(Begin(100));
    Fail("22012", "");
    if (i < ServerErrors::kSameErrorMax) {
      Connect();
      End(StreamEnd::Kind::kLost);
    }
  }
  ExpectHalted(HaltReason::kPoisonWal, "0/64");
}

// --- What the stream holds ---

// Failure 58.
TEST_F(HaltTest, UndecodableFrameIsAProtocolErrorAfterWhatCameBeforeIt) {
  Connect();
  Transaction(100, {"a1"});
  SendFrame("x marks nothing");
  EXPECT_FALSE(pipeline().halted());
  EXPECT_EQ(pipeline().state(), State::kStreaming) << "winding up";
  Deliver(0);
  ExpectHalted(HaltReason::kProtocolError, "unknown frame 0x78");
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
  EXPECT_EQ(confirmed_, Lsn(108));
}

TEST_F(HaltTest, UndecodablePayloadIsAProtocolErrorAndNothingIsConfirmedPastIt) {
  Connect();
  SendPayload(Begin(100));
  Event("a1");
  SendPayload("?");
  Deliver(0);
  ExpectHalted(HaltReason::kProtocolError, "unknown message 0x3f");
  EXPECT_EQ(confirmed_, Lsn());
}

TEST_F(HaltTest, TableReplacedWhileStreamingHaltsBeforeItsRows) {
  Connect();
  Transaction(100, {"a1"});
  SendPayload(Begin(200));
  pgoutput::Relation replaced = EventsRelation();
  replaced.id.oid = 17'000;
  SendPayload(walpost::testing::RelationBytes(replaced));
  Deliver(0);
  ExpectHalted(HaltReason::kTableReplaced, "outbox.events is OID 17000 in the stream");
  EXPECT_EQ(confirmed_, Lsn(108));
}

// Failure 35.
TEST_F(HaltTest, TableThatLostAColumnHaltsWithItsFirstRow) {
  Connect();
  pgoutput::Relation shrunk = EventsRelation();
  shrunk.columns.pop_back();
  SendPayload(Begin(100));
  SendPayload(walpost::testing::RelationBytes(shrunk));
  EXPECT_FALSE(pipeline().halt());
  using walpost::testing::TextColumn;
  SendPayload(
      EventBytes({TextColumn("a1"), TextColumn("a"), TextColumn("orders"), TextColumn("t")}));
  ExpectHalted(HaltReason::kSchemaMismatch, "no column payload");
}

// Failure 32.
TEST_F(HaltTest, SkippedPublicationHaltsAtOnceAndConfirmsNothingMore) {
  Connect();
  Transaction(100, {"a1"});
  sink_.DeliverAll();
  pipeline().OnNotice("55000: skipped loading publication \"walpost\"");
  EXPECT_FALSE(TakeStatus());
  ExpectHalted(HaltReason::kPublicationMissing, "skipped loading publication");
  EXPECT_EQ(last_command_, StreamCommand::kClose) << "not even a final status";
  EXPECT_EQ(confirmed_, Lsn());
}

// Failure 32.
TEST_F(HaltTest, SkippedPublicationIsKnownInAnyLanguage) {
  Connect();
  pipeline().OnNotice("55000 LoadPublications: Publikation wird ausgelassen");
  ExpectHalted(HaltReason::kPublicationMissing, "Publikation wird ausgelassen");
}

TEST_F(HaltTest, OtherNoticesAreOnlyLogged) {
  Connect();
  pipeline().OnNotice("01000: something");
  Tick();
  EXPECT_EQ(pipeline().state(), State::kStreaming);
  EXPECT_EQ(pipeline().last_error(), "01000: something");
}

// Else nothing would wake the loop when Kafka says no more.
TEST_F(HaltTest, EndOfAHaltThatWaitsForKafkaIsADeadline) {
  options_.shutdown_timeout = milliseconds(700);
  Connect();
  Transaction(100, {"a1"});
  SendFrame("x");
  while (TakeStatus()) {
  }
  EXPECT_LE(pipeline().NextDeadline(), now_.mono + milliseconds(700));
  Advance(milliseconds(699));
  EXPECT_TRUE(pipeline().connected());
  Advance(milliseconds(1));
  EXPECT_FALSE(pipeline().connected());
  ExpectHalted(HaltReason::kProtocolError, "unknown frame");
}

TEST_F(HaltTest, EndOfAHaltIsNotPutOffWhileItWaits) {
  options_.shutdown_timeout = milliseconds(700);
  Connect();
  sink_.Reject(1, delivery::Failure{delivery::FailureKind::kRecordTooLarge, "too large"}, "orders");
  SendPayload(Begin(100));
  Event("a1");
  Event("b1");
  Advance(milliseconds(600));
  pipeline().OnQuiet(now_);
  Advance(milliseconds(100));
  EXPECT_FALSE(pipeline().connected());
  ExpectHalted(HaltReason::kUndeliverableEvent, "too large");
}

TEST_F(HaltTest, StreamLostDuringAHaltEndsTheHalt) {
  Connect();
  Transaction(100, {"a1"});
  SendFrame("x");
  End(StreamEnd::Kind::kLost);
  ExpectHalted(HaltReason::kProtocolError, "unknown frame");
  EXPECT_EQ(pipeline().counters().events_discarded, 1U);
}

TEST_F(HaltTest, ServerThatStopsDuringAHaltIsLetGo) {
  Connect();
  Transaction(100, {"a1"});
  SendFrame("x");
  pipeline().OnPing(base::PingAnswer::kStopping, now_.mono, now_);
  ExpectHalted(HaltReason::kProtocolError, "unknown frame");
  EXPECT_EQ(last_command_, StreamCommand::kClose);
}

// --- Resume ---

TEST_F(HaltTest, ResumeStartsAfreshFromTheSlot) {
  Connect();
  Transaction(100, {"a1", "a2"});
  SendFrame("x");
  Deliver(0);
  Advance(options_.shutdown_timeout);
  ExpectHalted(HaltReason::kProtocolError, "unknown frame");
  pipeline().Resume(now_);
  EXPECT_EQ(pipeline().state(), State::kStarting);
  EXPECT_FALSE(pipeline().halt());
  facts_.system_identifier = 0xBEEF;  // the operator has looked: nothing remembered holds
  confirmed_ = Lsn();
  Connect(/*start=*/Lsn());
  Transaction(50, {"b1"});
  Transaction(100, {"a1", "a2"});
  DeliverAll();
  EXPECT_EQ(Confirmed(), Lsn(108));
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a1", "a2"));
  EXPECT_EQ(pipeline().counters().events_repeated, 0U);
  ExpectAccounted();
}

TEST_F(HaltTest, ResumeOfAPipelineThatRunsChangesNothing) {
  Connect();
  Transaction(100, {"a1"});
  pipeline().Resume(now_);
  Tick();
  EXPECT_EQ(pipeline().state(), State::kStreaming);
  EXPECT_EQ(pipeline().tracker().in_flight_events(), 1U);
}

TEST_F(HaltTest, ResumeForgetsHowOftenAnErrorWasSeen) {
  for (int i = 1; i <= ServerErrors::kSameErrorMax; ++i) {
    Connect();
    Fail("22012", "associated LSN 0/64");
  }
  ExpectHalted(HaltReason::kPoisonWal, "0/64");
  pipeline().Resume(now_);
  Connect();
  Fail("22012", "associated LSN 0/64");
  EXPECT_FALSE(pipeline().halt());
}

}  // namespace
}  // namespace walpost::pipeline
