// What the log says to operators about a pipeline that goes through its states.
#include "runtime/status_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "unit/pipeline/pipeline_fixture.h"

namespace walpost::runtime {
namespace {

using base::HaltReason;
using base::Lsn;
using base::State;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class StatusReporterTest : public pipeline::PipelineFixture {
 protected:
  static RunOptions Options() {
    RunOptions options;
    options.name = "shop";
    options.source.slot = "walpost_slot";
    options.source.publication = "walpost_pub";
    options.pipeline.in_flight_bytes_max = 12'345;
    return options;
  }

  // What Observe has for the log.
  std::string Observe() {
    ::testing::internal::CaptureStderr();
    status_reporter_.Observe(pipeline(), kafka_, now_);
    return ::testing::internal::GetCapturedStderr();
  }

  observe::Snapshot TakeSnapshot() {
    return status_reporter_.TakeSnapshot(pipeline(), kafka_, now_);
  }

  kafka::KafkaFacts kafka_;
  StatusReporter status_reporter_{Options(), now_};
};

TEST_F(StatusReporterTest, StateChangesAreLoggedOnce) {
  EXPECT_EQ(Observe(), "") << "starting is where it began";
  Connect();
  EXPECT_THAT(Observe(), AllOf(HasSubstr("state_changed"), HasSubstr("streaming"),
                               HasSubstr("walpost_slot"), HasSubstr("shop")));
  EXPECT_EQ(Observe(), "");
}

// Below min.insync.replicas, for one, Kafka says nothing at all.
// Failure 65.
TEST_F(StatusReporterTest, MinuteWithoutAnAcknowledgementIsLoggedOnceAndSoIsItsEnd) {
  Connect();
  Transaction(100, {"a1", "a2"});
  Observe();
  Advance(milliseconds(59'000));
  EXPECT_THAT(Observe(), Not(HasSubstr("delivery_stalled"))) << "leaders change";
  Advance(milliseconds(2'000));
  EXPECT_THAT(Observe(), AllOf(HasSubstr("delivery_stalled"), HasSubstr("oldest of 2 events"),
                               HasSubstr("waited 61 s"), HasSubstr("topic orders"),
                               HasSubstr("min.insync.replicas"), HasSubstr("user not write?")));
  Advance(milliseconds(300'000));
  EXPECT_THAT(Observe(), Not(HasSubstr("delivery_stalled"))) << "once";
  Deliver(0);
  EXPECT_THAT(Observe(), AllOf(HasSubstr("delivery_resumed"), HasSubstr("after 361.0 s"),
                               HasSubstr("2 events in flight")));
  Advance(milliseconds(61'000));
  EXPECT_THAT(Observe(), HasSubstr("delivery_stalled")) << "the next outage";
}

TEST_F(StatusReporterTest, BacklogThatMovesIsNotStalledHoweverOldItIs) {
  Connect();
  Transaction(100, {"a1", "a2", "a3", "a4", "a5"});
  for (delivery::Sequence next = 0; next < 5; ++next) {
    Observe();
    Advance(milliseconds(50'000));
    EXPECT_THAT(Observe(), Not(HasSubstr("delivery_stalled")));
    Deliver(next);
  }
  EXPECT_THAT(Observe(), Not(HasSubstr("delivery_resumed")));
}

// No event of the stream waits for it.
TEST_F(StatusReporterTest, DeadLetterThatIsSentAgainWithoutAnAnswerIsLoggedOnce) {
  options_.on_undeliverable = pipeline::OnUndeliverable::kDeadLetter;
  Connect();
  sink_.Reject(0, delivery::Failure{delivery::FailureKind::kRecordTooLarge, "too large"});
  Transaction(100, {"a1"});
  Settle();
  dead_letters_.Decide(0, base::DeadLetter::Decision::kRetry, /*of_key=*/false);
  Advance(pipeline::DeadLetters::kLookEvery);
  Settle();
  Observe();
  Advance(milliseconds(59'000));
  EXPECT_THAT(Observe(), Not(HasSubstr("delivery_stalled")));
  Advance(milliseconds(2'000));
  EXPECT_THAT(Observe(), AllOf(HasSubstr("delivery_stalled"), HasSubstr("for topic orders")));
  EXPECT_THAT(Observe(), Not(HasSubstr("delivery_stalled"))) << "once";
}

TEST_F(StatusReporterTest, DecisionsAreLoggedWithTheirEventAFewASecond) {
  options_.on_undeliverable = pipeline::OnUndeliverable::kSkip;
  Connect();
  Observe();
  const std::size_t many = StatusReporter::kDecisionsPerSecond + 5;
  for (std::size_t i = 0; i < many; ++i) {
    sink_.Reject(i, delivery::Failure{delivery::FailureKind::kTopicUnknown, "no such topic"});
  }
  Transaction(100, std::vector<std::string>(many, "a1"));
  const auto logged = [this] {
    ::testing::internal::CaptureStderr();
    status_reporter_.ReportDecisions(&pipeline(), now_);
    const std::string lines = ::testing::internal::GetCapturedStderr();
    return std::pair(lines, std::count(lines.begin(), lines.end(), '\n'));
  };
  const auto [lines, count] = logged();
  EXPECT_EQ(count, StatusReporter::kDecisionsPerSecond);
  EXPECT_THAT(lines, AllOf(HasSubstr("event_skipped"), HasSubstr("event_id=a1"),
                           HasSubstr("aggregate_id=a "), HasSubstr("attempt=1"),
                           HasSubstr("reason=topic_unknown"), HasSubstr("no such topic")));
  EXPECT_EQ(logged().second, 0) << "in this second";
  Advance(milliseconds(1'000));
  EXPECT_EQ(logged().second, 5);
  EXPECT_EQ(TakeSnapshot().counters.events_skipped, many);
}

// It is whoever writes events who chooses them; each line would have the id three times.
TEST_F(StatusReporterTest, HugeIdsAreCutAndTheReasonIsNot) {
  options_.on_undeliverable = pipeline::OnUndeliverable::kSkip;
  Connect();
  Observe();
  SendPayload(pipeline::Begin(100));
  const std::string endless(1'000'000, 'x');
  Event(endless);
  SendPayload(pipeline::EventBytes(endless, "k", "no topic"));
  ::testing::internal::CaptureStderr();
  status_reporter_.ReportDecisions(&pipeline(), now_);
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_LT(lines.size(), 20'000U);
  EXPECT_THAT(lines,
              AllOf(HasSubstr("more than the 1024"), HasSubstr("asks for topic 'no topic'")));
}

TEST_F(StatusReporterTest, HaltOfAnEventWithAHugeIdIsCutEverywhere) {
  Connect();
  SendPayload(pipeline::Begin(100));
  Event(std::string(1'000'000, 'x'));
  for (int i = 0; i < 100 && !pipeline().halted(); ++i) {
    Advance(milliseconds(1'000));
  }
  EXPECT_LT(Observe().size(), 20'000U);
  EXPECT_LT(TakeSnapshot().halt_detail.size(), 5'000U);
  EXPECT_THAT(TakeSnapshot().halt_detail, HasSubstr("more than the 1024"));
  EXPECT_LT(status_reporter_.StatusLine(pipeline()).size(), 5'000U);
}

TEST_F(StatusReporterTest, TroubleIsLoggedOnceAndShown) {
  Connect();
  Observe();
  End(base::StreamEnd::Kind::kLost, "connection reset by peer");
  EXPECT_THAT(Observe(), AllOf(HasSubstr("source_error"), HasSubstr("connection reset by peer"),
                               HasSubstr("reconnecting")));
  EXPECT_EQ(Observe(), "");
  const observe::Snapshot snapshot = TakeSnapshot();
  EXPECT_EQ(snapshot.last_error.text, "connection reset by peer");
  EXPECT_EQ(snapshot.last_error.at, now_.wall);
  EXPECT_EQ(snapshot.source_error.text, "connection reset by peer");
  EXPECT_EQ(snapshot.state, State::kReconnecting);
  EXPECT_FALSE(snapshot.source_connected);
}

TEST_F(StatusReporterTest, BeforeThereIsAPipelineTheSnapshotSaysWhoseItIs) {
  const observe::Snapshot snapshot = status_reporter_.FirstSnapshot(now_);
  EXPECT_EQ(snapshot.state, State::kStarting);
  EXPECT_EQ(snapshot.state_since, now_.wall);
  EXPECT_EQ(snapshot.taken_at, now_.wall);
  EXPECT_EQ(snapshot.name, "shop");
  EXPECT_EQ(snapshot.slot, "walpost_slot");
}

// An outage that repeats its error is one line; the next outage is another, however soon it begins.
TEST_F(StatusReporterTest, SameTroubleAfterARecoveryIsLoggedAgain) {
  Connect();
  Observe();
  End(base::StreamEnd::Kind::kLost, "connection reset by peer");
  Observe();
  const base::WallTime first = now_.wall;
  Connect();
  EXPECT_THAT(Observe(), AllOf(HasSubstr("streaming"), Not(HasSubstr("source_error"))));
  EXPECT_EQ(TakeSnapshot().last_error.text, "connection reset by peer") << "it stays to be seen";
  EXPECT_EQ(TakeSnapshot().last_error.at, first);
  Advance(milliseconds(100));
  End(base::StreamEnd::Kind::kLost, "connection reset by peer");
  EXPECT_THAT(Observe(), HasSubstr("source_error"));
  EXPECT_EQ(TakeSnapshot().last_error.at, now_.wall);
}

TEST_F(StatusReporterTest, NewestErrorOfEitherSideIsShownAndEachSidesOwn) {
  Connect();
  kafka_.OnError("1/1 brokers are down", now_.wall);
  EXPECT_EQ(TakeSnapshot().last_error.text, "1/1 brokers are down");
  Advance(milliseconds(1'000));
  End(base::StreamEnd::Kind::kLost, "connection reset by peer");
  Observe();
  EXPECT_EQ(TakeSnapshot().last_error.text, "connection reset by peer");
  Advance(milliseconds(1'000));
  kafka_.OnError("timed out", now_.wall);
  const observe::Snapshot snapshot = TakeSnapshot();
  EXPECT_EQ(snapshot.last_error.text, "timed out");
  EXPECT_EQ(snapshot.last_error.at, now_.wall);
  EXPECT_EQ(snapshot.source_error.text, "connection reset by peer");
  EXPECT_EQ(snapshot.sink_error.text, "timed out");
}

TEST_F(StatusReporterTest, EndOfAnOutageOfPostgresShowsItsLengthAndWhatHasGathered) {
  Connect();
  Transaction(100, {"a1", "a2"});
  Deliver(0);
  Observe();
  End(base::StreamEnd::Kind::kLost);
  EXPECT_THAT(Observe(), Not(HasSubstr("source_back")));
  Advance(milliseconds(12'500));
  facts_.server_wal_lsn = Lsn(5'000);
  facts_.start_lsn = Lsn(1'000);
  Connect(Lsn(100));
  EXPECT_THAT(Observe(), AllOf(HasSubstr("info    source_back"), HasSubstr("after 12.5 s"),
                               HasSubstr("lag_bytes=4000"), HasSubstr("in_flight_events=1"),
                               HasSubstr("in_flight_bytes=")));
  EXPECT_EQ(Observe(), "");
}

TEST_F(StatusReporterTest, FirstConnectionAfterFailedAttemptsIsTheEndOfAnOutageToo) {
  pipeline();
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  End(base::StreamEnd::Kind::kLost, "connection refused");
  Observe();
  Advance(milliseconds(3'000));
  Connect();
  EXPECT_THAT(Observe(), AllOf(HasSubstr("source_back"), HasSubstr("after 3.0 s")));
}

TEST_F(StatusReporterTest, StandbyThatTakesOverReportsNoOutage) {
  ASSERT_TRUE(pipeline().TakeConnect(now_));
  End(base::StreamEnd::Kind::kSlotInUse, "slot is active");
  Observe();
  Advance(milliseconds(60'000));
  Connect();
  EXPECT_THAT(Observe(), AllOf(HasSubstr("streaming"), Not(HasSubstr("source_back"))));
}

TEST_F(StatusReporterTest, EndOfAnOutageOfKafkaShowsItsLengthAndWhatHasGathered) {
  Connect();
  Observe();
  kafka_.down = true;
  EXPECT_EQ(Observe(), "") << "the sink has reported it";
  Transaction(100, {"a1", "a2", "a3"});
  Advance(milliseconds(42'000));
  EXPECT_EQ(Observe(), "");
  DeliverAll();  // by the same answer
  kafka_.OnAnswer();
  EXPECT_THAT(Observe(), AllOf(HasSubstr("info    kafka_brokers_back"), HasSubstr("after 42.0 s"),
                               HasSubstr("in_flight_events=3"), HasSubstr("lag_bytes=")));
  EXPECT_EQ(Observe(), "");
}

// Each cycle is a state change or two, and may be as short as a back-off.
TEST_F(StatusReporterTest, WhatFlapsIsLoggedSomeTimesAndItsLastStateAlways) {
  std::string lines;
  for (int cycle = 0; cycle < 30; ++cycle) {
    Connect();
    lines += Observe();
    End(base::StreamEnd::Kind::kLost);
    lines += Observe();
  }
  const auto count = [&lines](const char* what) {
    int found = 0;
    for (std::size_t at = lines.find(what); at != std::string::npos;
         at = lines.find(what, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count("state_changed"), StatusReporter::kStatesPerInterval);
  EXPECT_EQ(count("source_error"), observe::RepeatLimiter::kAtOnce);
  EXPECT_EQ(count("source_back"), observe::RepeatLimiter::kAtOnce);
  Connect();
  EXPECT_EQ(Observe(), "");
  Advance(observe::RepeatLimiter::kEvery);
  EXPECT_THAT(Observe(),
              AllOf(HasSubstr("state_changed: streaming"), HasSubstr("not_reported=50")));
  End(base::StreamEnd::Kind::kLost);
  EXPECT_THAT(Observe(), AllOf(HasSubstr("source_error"), HasSubstr("not_reported=27")));
}

TEST_F(StatusReporterTest, BackPressureIsAWarningAndItsEndIsLoggedWithItsLength) {
  options_.in_flight_bytes_max = 1;
  Connect();
  Observe();
  SendPayload(pipeline::Begin(100));
  Event("a1");
  EXPECT_EQ(Observe(), "") << "a short pause is nothing to report";
  Advance(pipeline::Pipeline::kShowPausedAfter);
  EXPECT_THAT(Observe(), AllOf(HasSubstr("warning"), HasSubstr("backpressured")));
  EXPECT_EQ(TakeSnapshot().state_since, now_.wall);
  Advance(milliseconds(2'500));
  EXPECT_EQ(Observe(), "");
  DeliverAll();
  EXPECT_THAT(Observe(), AllOf(HasSubstr("info"), HasSubstr("streaming, after 2.5 s of back")));
}

TEST_F(StatusReporterTest, RecoveryFromAHaltIsLoggedAndTheReasonGone) {
  Connect();
  SendFrame("x");
  ExpectHalted(HaltReason::kProtocolError, "unknown frame");
  EXPECT_THAT(Observe(), HasSubstr("error   halted"));
  pipeline().Resume(now_);
  Connect();
  EXPECT_THAT(Observe(), HasSubstr("streaming"));
  const observe::Snapshot snapshot = TakeSnapshot();
  EXPECT_EQ(snapshot.state, State::kStreaming);
  EXPECT_EQ(snapshot.halt_detail, "");
}

TEST_F(StatusReporterTest, HaltIsLoggedWithItsReasonAndWayOut) {
  Connect();
  Observe();
  SendFrame("x");
  EXPECT_THAT(Observe(), AllOf(HasSubstr("halted"), HasSubstr("protocol_error"),
                               HasSubstr("unknown frame 0x78")));
  const observe::Snapshot snapshot = TakeSnapshot();
  EXPECT_EQ(snapshot.state, State::kHalted);
  EXPECT_EQ(snapshot.halt_reason, HaltReason::kProtocolError);
  EXPECT_THAT(snapshot.halt_detail, HasSubstr("unknown frame 0x78"));
}

TEST_F(StatusReporterTest, SnapshotAccountsForEveryEvent) {
  Connect();
  Transaction(100, {"a1", "b1", "c1"});
  Deliver(1);
  Confirmed();
  const observe::Snapshot snapshot = TakeSnapshot();
  EXPECT_EQ(snapshot.counters.events_received, 3U);
  EXPECT_EQ(snapshot.counters.events_delivered, 1U);
  EXPECT_EQ(snapshot.in_flight_events, 2U);
  EXPECT_EQ(snapshot.in_flight_bytes, pipeline().tracker().in_flight_bytes());
  EXPECT_EQ(snapshot.in_flight_bytes_max, 12'345U);
  EXPECT_EQ(snapshot.oldest_undelivered_commit,
            base::WallTime(std::chrono::seconds(1'700'000'000)));
  EXPECT_EQ(snapshot.received_lsn, Lsn(108));
  EXPECT_EQ(snapshot.safe_lsn, Lsn());
  EXPECT_EQ(snapshot.confirmed_lsn, Lsn());
  DeliverAll();
  Confirmed();
  const observe::Snapshot later = TakeSnapshot();
  EXPECT_EQ(later.counters.events_delivered, 3U);
  EXPECT_EQ(later.oldest_undelivered_commit, base::WallTime());
  EXPECT_EQ(later.safe_lsn, Lsn(108));
  EXPECT_EQ(later.confirmed_lsn, Lsn(108));
  EXPECT_EQ(later.counters.delivery_delay.Total(), 3U);
}

TEST_F(StatusReporterTest, SnapshotNamesBothSides) {
  facts_.host = "db:5432";
  facts_.server_version = 150'018;
  kafka_.connected = true;
  kafka_.OnError("topic 'orders' cannot be looked up", now_.wall);
  Connect();
  const observe::Snapshot snapshot = TakeSnapshot();
  EXPECT_EQ(snapshot.name, "shop");
  EXPECT_EQ(snapshot.slot, "walpost_slot");
  EXPECT_EQ(snapshot.publication, "walpost_pub");
  EXPECT_EQ(snapshot.source_host, "db:5432");
  EXPECT_EQ(snapshot.database, "shop");
  EXPECT_EQ(snapshot.system_identifier, 0xC0FFEEU);
  EXPECT_EQ(snapshot.timeline, 3U);
  EXPECT_EQ(snapshot.server_version, 150'018);
  EXPECT_TRUE(snapshot.source_connected);
  EXPECT_TRUE(snapshot.sink_connected);
  EXPECT_EQ(snapshot.last_error.text, "topic 'orders' cannot be looked up");
}

TEST_F(StatusReporterTest, ServerPositionIsNeverBehindWhatWasReceived) {
  facts_.server_wal_lsn = Lsn(50);
  Connect();
  Transaction(100, {"a1"});
  EXPECT_EQ(TakeSnapshot().server_wal_lsn, Lsn(108));
}

// Failure 88.
TEST_F(StatusReporterTest, PayloadsStayOutOfTheLog) {
  Connect();
  Observe();
  Transaction(100, {"a1"});
  sink_.Fail(0, delivery::FailureKind::kRecordTooLarge);
  Settle();
  sink_.Fail(0, delivery::FailureKind::kRecordTooLarge, "too large");
  Settle();
  EXPECT_THAT(Observe(),
              AllOf(HasSubstr("undeliverable_event"), HasSubstr("event_id=a1"),
                    HasSubstr("aggregate_id=a"), HasSubstr("topic=orders"), HasSubstr("attempt=1"),
                    HasSubstr("cause=record_too_large"), Not(HasSubstr("payload of"))));
}

}  // namespace
}  // namespace walpost::runtime
