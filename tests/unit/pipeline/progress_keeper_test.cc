#include "pipeline/progress_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "envelope/control_records.h"

namespace walpost::pipeline {
namespace {

using base::Lsn;
using delivery::Failure;
using delivery::FailureKind;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

class ProgressKeeperTest : public ::testing::Test {
 protected:
  ProgressKeeperTest() {
    facts_.system_identifier = 77;
    facts_.publication_oid = 500;
    facts_.tables = {{501, "outbox", "events", {510}}};
    facts_.start_lsn = Lsn(100);
  }

  static PipelineOptions Options(const std::string& topic) {
    PipelineOptions options;
    options.name = "shop";
    options.progress_topic = topic;
    options.outboxes.resize(1);
    options.outboxes[0].table.schema = "outbox";
    options.outboxes[0].table.table = "events";
    return options;
  }

  void Advance(milliseconds time) {
    now_.mono += time;
    now_.wall += time;
  }

  // What the waiting record says.
  base::Progress Waiting() {
    const envelope::Record* const record = keeper_.waiting(now_);
    EXPECT_NE(record, nullptr);
    return record == nullptr ? base::Progress()
                             : envelope::DecodeProgress(*record->value).value_or(base::Progress());
  }

  void Acknowledge() {
    keeper_.OnAccepted();
    keeper_.OnAcknowledged(now_.mono);
  }

  // Connected, and the record of the start acknowledged.
  void Begin() {
    keeper_.OnConnected(facts_);
    keeper_.Tick(Lsn(), 0, false, now_);
    Acknowledge();
    Advance(ProgressKeeper::kEvery);
  }

  base::Now now_{base::MonotonicTime(std::chrono::hours(1)),
                 base::WallTime(std::chrono::seconds(1'700'000'000))};
  base::SourceFacts facts_;
  ProgressKeeper keeper_{Options("progress")};
};

TEST_F(ProgressKeeperTest, OffConfirmsEverythingAndWritesNothing) {
  ProgressKeeper off{Options("")};
  off.OnConnected(facts_);
  off.Tick(Lsn(200), 0, true, now_);
  EXPECT_FALSE(off.on());
  EXPECT_EQ(off.waiting(now_), nullptr);
  EXPECT_EQ(off.Confirmable(Lsn(200)), Lsn(200));
  EXPECT_TRUE(off.Settled(Lsn(200)));
}

TEST_F(ProgressKeeperTest, NothingIsWrittenBeforeItIsKnownWhoseProgressItIs) {
  keeper_.Tick(Lsn(200), 0, true, now_);
  EXPECT_EQ(keeper_.waiting(now_), nullptr);
  EXPECT_EQ(keeper_.Confirmable(Lsn(200)), Lsn());
}

TEST_F(ProgressKeeperTest, WhatWasSeenLastIsRemembered) {
  keeper_.OnLooked(facts_);  // not connected any more
  keeper_.OnConnected(facts_);
  base::Fingerprint seen = facts_;
  seen.tables[0].memberships = {510, 511};
  seen.looked_lsn = Lsn(150);
  keeper_.OnLooked(seen);
  keeper_.Tick(Lsn(), 0, false, now_);
  EXPECT_EQ(Waiting().tables[0].memberships, seen.tables[0].memberships);
  EXPECT_EQ(Waiting().looked_lsn, Lsn(150));
}

// Another process must find it adopted, and not adopt it at another time.
TEST_F(ProgressKeeperTest, WhatIsAdoptedIsWrittenAtOnceWhereTheStreamStands) {
  facts_.progress = facts_.ProgressAt(Lsn(300));
  facts_.tables.push_back({502, "outbox", "others"});
  facts_.tables.back().since = {Lsn(300), now_.wall};
  keeper_.OnConnected(facts_, /*adopted=*/true);
  keeper_.Tick(Lsn(), 0, false, now_);
  EXPECT_EQ(Waiting().end_lsn, Lsn(300));
  ASSERT_EQ(Waiting().tables.size(), 2U);
  EXPECT_EQ(Waiting().tables[1].since, facts_.tables[1].since);
  EXPECT_EQ(Waiting().epoch, 1U) << "a late record of before, wherever it stands, counts for less";
  EXPECT_TRUE(keeper_.adopting());
  keeper_.OnConnected(facts_);  // another connection changes nothing about that
  EXPECT_TRUE(keeper_.adopting());
  keeper_.Tick(Lsn(), 0, false, now_);
  Acknowledge();
  EXPECT_FALSE(keeper_.adopting());
  Advance(ProgressKeeper::kEvery);
  keeper_.Tick(Lsn(300), 0, false, now_);
  EXPECT_FALSE(keeper_.busy()) << "once";
}

// So no record of an earlier one counts for more, wherever it stands and whenever it lands.
TEST_F(ProgressKeeperTest, EachConnectionHasANewerEpoch) {
  facts_.begun_at = base::WallTime(std::chrono::milliseconds(5'000));
  facts_.progress = facts_.ProgressAt(Lsn(300));
  facts_.progress->epoch = 3;
  keeper_.OnConnected(facts_);
  keeper_.Tick(Lsn(), 0, false, now_);
  EXPECT_EQ(Waiting().epoch, 5'000U);
  facts_.begun_at -= std::chrono::seconds(1);  // the server's clock was set back
  keeper_.OnConnected(facts_);
  EXPECT_EQ(keeper_.waiting(now_), nullptr) << "that record is of before";
  keeper_.Tick(Lsn(), 0, false, now_);
  EXPECT_EQ(Waiting().epoch, 5'001U);
  EXPECT_EQ(keeper_.remembered()->epoch, 5'001U);
}

// One of a process before it, with a lower position, may still land.
TEST_F(ProgressKeeperTest, NothingIsConfirmedBeforeARecordOfThisProcessIsAcknowledged) {
  facts_.begun_at = base::WallTime(std::chrono::milliseconds(5'000));
  facts_.progress = facts_.ProgressAt(Lsn(100));
  keeper_.OnConnected(facts_);
  EXPECT_EQ(keeper_.Confirmable(Lsn(100)), Lsn());
  EXPECT_FALSE(keeper_.Settled(Lsn(100)));
  keeper_.Tick(Lsn(), 0, false, now_);
  keeper_.OnAccepted();
  keeper_.OnConnected(facts_);
  keeper_.OnAcknowledged(now_.mono);  // of the connection before
  EXPECT_EQ(keeper_.Confirmable(Lsn(100)), Lsn());
  EXPECT_FALSE(keeper_.adopting());
  keeper_.Tick(Lsn(), 0, false, now_);
  keeper_.OnAccepted();
  keeper_.OnLost();
  EXPECT_EQ(keeper_.Confirmable(Lsn(100)), Lsn());
  EXPECT_EQ(Waiting().epoch, 5'001U) << "it is sent again";
  Acknowledge();
  EXPECT_EQ(keeper_.Confirmable(Lsn(100)), Lsn(100));
  EXPECT_TRUE(keeper_.Settled(Lsn(100)));
}

// Else nothing would ever be confirmed to a server that ends each connection at once.
TEST_F(ProgressKeeperTest, WhatThisProcessHasWrittenIsConfirmedAtOnceOnALaterConnection) {
  facts_.begun_at = base::WallTime(std::chrono::milliseconds(5'000));
  Begin();
  for (std::uint64_t epoch = 5'001; epoch < 5'004; ++epoch) {
    facts_.progress = keeper_.remembered();
    keeper_.OnConnected(facts_);
    EXPECT_EQ(keeper_.Confirmable(Lsn(200)), Lsn(100));
    keeper_.Tick(Lsn(200), 0, false, now_);
    EXPECT_EQ(Waiting().epoch, epoch) << "and a record of this connection is written";
  }
}

// What a lost session, or a rejection, gives back is of the connection before.
TEST_F(ProgressKeeperTest, RecordOfTheConnectionBeforeIsNotSentAgain) {
  for (const bool rejected : {false, true}) {
    SCOPED_TRACE(rejected);
    keeper_.OnConnected(facts_);
    keeper_.Tick(Lsn(), 0, false, now_);
    keeper_.OnAccepted();
    facts_.begun_at += std::chrono::milliseconds(5'000);
    keeper_.OnConnected(facts_);
    rejected ? keeper_.OnRejected(Failure{FailureKind::kRecordTooLarge, "too large"}, now_)
             : keeper_.OnLost();
    Advance(ProgressKeeper::kRetryRejectedAfter);
    EXPECT_EQ(keeper_.waiting(now_), nullptr);
    keeper_.Tick(Lsn(), 0, false, now_);
    EXPECT_GE(Waiting().epoch, 5'000U);
    Acknowledge();
    keeper_.Forget();
    facts_.begun_at = base::WallTime();
  }
}

// The first one, so that nothing was remembered before it.
TEST_F(ProgressKeeperTest, RecordOfTheConnectionBeforeIsAcknowledgedThenTheNextOneSaysNoLess) {
  keeper_.OnConnected(facts_);
  keeper_.Tick(Lsn(200), 0, false, now_);
  keeper_.OnAccepted();
  keeper_.OnConnected(facts_);
  keeper_.OnAcknowledged(now_.mono);
  keeper_.Tick(Lsn(), 0, false, now_);
  EXPECT_EQ(Waiting().end_lsn, Lsn(200));
  Acknowledge();
  EXPECT_EQ(keeper_.Confirmable(Lsn(300)), Lsn(200));
}

TEST_F(ProgressKeeperTest, RecordOfBeforeAnAdoptionDoesNotRememberIt) {
  keeper_.OnConnected(facts_);
  keeper_.Tick(Lsn(), 0, false, now_);
  ASSERT_TRUE(keeper_.waiting(now_));
  keeper_.OnAccepted();
  facts_.progress = facts_.ProgressAt(Lsn(100));
  facts_.tables.push_back({502, "outbox", "others"});
  keeper_.OnConnected(facts_, /*adopted=*/true);
  keeper_.OnAcknowledged(now_.mono);
  EXPECT_TRUE(keeper_.adopting());
  keeper_.Tick(Lsn(), 0, false, now_);
  EXPECT_EQ(Waiting().tables.size(), 2U);
  EXPECT_EQ(Waiting().epoch, 2U);
  Acknowledge();
  EXPECT_FALSE(keeper_.adopting());
}

// Of its epoch a lower position may land late: that of a connection before this one, or of a
// process that is gone.
TEST_F(ProgressKeeperTest, NothingIsConfirmedBeforeWhatIsAdoptedIsRemembered) {
  Begin();
  facts_.progress = facts_.ProgressAt(Lsn(300));
  keeper_.OnConnected(facts_, /*adopted=*/true);
  EXPECT_EQ(keeper_.Confirmable(Lsn(300)), Lsn());
  keeper_.Tick(Lsn(), 0, false, now_);
  keeper_.OnAccepted();
  EXPECT_EQ(keeper_.Confirmable(Lsn(300)), Lsn());
  keeper_.OnAcknowledged(now_.mono);
  EXPECT_EQ(keeper_.Confirmable(Lsn(300)), Lsn(300));
}

// A lower one that lands late would else stay the last one, and compaction keeps the last one.
TEST_F(ProgressKeeperTest, PositionThatDoesNotMoveIsWrittenAgain) {
  Begin();
  keeper_.Tick(Lsn(200), 0, false, now_);
  Acknowledge();
  EXPECT_EQ(keeper_.NextDeadline(Lsn(200)), now_.mono + ProgressKeeper::kAgainAfter);
  Advance(ProgressKeeper::kAgainAfter - milliseconds(1));
  keeper_.Tick(Lsn(200), 0, false, now_);
  EXPECT_FALSE(keeper_.busy());
  Advance(milliseconds(1));
  keeper_.Tick(Lsn(200), 7, false, now_);
  EXPECT_EQ(Waiting().end_lsn, Lsn(200));
  EXPECT_EQ(Waiting().dead_letters, 7U);
  EXPECT_EQ(Waiting().recorded_at, now_.wall);
  EXPECT_EQ(keeper_.Confirmable(Lsn(200)), Lsn(200)) << "meanwhile it is confirmed as before";
  Acknowledge();
  EXPECT_EQ(keeper_.NextDeadline(Lsn(200)), now_.mono + ProgressKeeper::kAgainAfter);
}

TEST_F(ProgressKeeperTest, FirstRecordSaysWhereTheStreamBegan) {
  keeper_.OnConnected(facts_);
  keeper_.Tick(Lsn(), 0, false, now_);
  const base::Progress progress = Waiting();
  EXPECT_EQ(progress.system_identifier, 77U);
  EXPECT_EQ(progress.timeline, 1U);
  EXPECT_EQ(progress.end_lsn, Lsn(100));
  EXPECT_EQ(progress.recorded_at, now_.wall);
  EXPECT_EQ(progress.publication_oid, 500U);
  ASSERT_EQ(progress.tables.size(), 1U);
  EXPECT_EQ(progress.tables[0].oid, 501U);
  EXPECT_EQ(progress.tables[0].memberships, facts_.tables[0].memberships);
  const envelope::Record& record = *keeper_.waiting(now_);
  EXPECT_EQ(record.topic, "progress");
  EXPECT_EQ(record.key, "shop");
}

TEST_F(ProgressKeeperTest, OnlyWhatIsAcknowledgedMayBeConfirmed) {
  Begin();
  EXPECT_EQ(keeper_.Confirmable(Lsn(200)), Lsn(100));
  keeper_.Tick(Lsn(200), 0, false, now_);
  keeper_.OnAccepted();
  EXPECT_EQ(keeper_.Confirmable(Lsn(200)), Lsn(100));
  EXPECT_FALSE(keeper_.Settled(Lsn(200)));
  keeper_.OnAcknowledged(now_.mono);
  EXPECT_EQ(keeper_.Confirmable(Lsn(200)), Lsn(200));
  EXPECT_EQ(keeper_.Confirmable(Lsn(300)), Lsn(200));
  EXPECT_TRUE(keeper_.Settled(Lsn(200)));
  EXPECT_EQ(keeper_.remembered()->end_lsn, Lsn(200));
}

TEST_F(ProgressKeeperTest, AtMostOneASecondUnlessInAHurry) {
  Begin();
  keeper_.Tick(Lsn(200), 0, false, now_);
  Acknowledge();
  Advance(milliseconds(999));
  keeper_.Tick(Lsn(300), 0, false, now_);
  EXPECT_EQ(keeper_.waiting(now_), nullptr);
  EXPECT_EQ(keeper_.NextDeadline(Lsn(300)), now_.mono + milliseconds(1));
  keeper_.Tick(Lsn(300), 0, true, now_);
  EXPECT_EQ(Waiting().end_lsn, Lsn(300));
  Acknowledge();
  Advance(milliseconds(1'000));
  keeper_.Tick(Lsn(300), 0, true, now_);
  EXPECT_EQ(keeper_.waiting(now_), nullptr) << "it did not move";
}

TEST_F(ProgressKeeperTest, WhileOneIsOutstandingItsBytesStay) {
  Begin();
  keeper_.Tick(Lsn(200), 0, false, now_);
  const std::string_view value = *keeper_.waiting(now_)->value;
  const std::string copy(value);
  keeper_.OnAccepted();
  Advance(milliseconds(5'000));
  keeper_.Tick(Lsn(300), 0, true, now_);
  EXPECT_EQ(keeper_.waiting(now_), nullptr);
  EXPECT_EQ(value, copy);
}

TEST_F(ProgressKeeperTest, LostRecordWaitsAgainWithTheNewestPosition) {
  Begin();
  keeper_.Tick(Lsn(200), 0, false, now_);
  keeper_.OnAccepted();
  keeper_.OnLost();
  EXPECT_EQ(Waiting().end_lsn, Lsn(200));
  keeper_.Tick(Lsn(300), 0, false, now_);
  EXPECT_EQ(Waiting().end_lsn, Lsn(300));
  EXPECT_EQ(keeper_.Confirmable(Lsn(300)), Lsn(100));
}

TEST_F(ProgressKeeperTest, RejectedRecordIsNoDeadlineAnyMoreWhenItsTimeHasCome) {
  Begin();
  keeper_.Tick(Lsn(200), 0, true, now_);
  keeper_.OnRejected(Failure{FailureKind::kTopicUnknown, "topic is gone"}, now_);
  Advance(ProgressKeeper::kRetryRejectedAfter);
  keeper_.Tick(Lsn(200), 0, true, now_);
  EXPECT_NE(keeper_.waiting(now_), nullptr);
  EXPECT_EQ(keeper_.NextDeadline(Lsn(200)), std::nullopt) << "the loop would spin";
}

TEST_F(ProgressKeeperTest, RejectedRecordIsTriedAgainAndHaltsAfterAMinute) {
  Begin();
  keeper_.Tick(Lsn(200), 0, false, now_);
  keeper_.OnRejected(Failure{FailureKind::kTopicUnknown, "topic is gone"}, now_);
  EXPECT_EQ(keeper_.waiting(now_), nullptr);
  EXPECT_TRUE(keeper_.Settled(Lsn(200))) << "an end does not wait for it";
  EXPECT_EQ(keeper_.Confirmable(Lsn(200)), Lsn(100)) << "but nothing is confirmed";
  EXPECT_EQ(keeper_.NextDeadline(Lsn(200)), now_.mono + ProgressKeeper::kRetryRejectedAfter);
  Advance(ProgressKeeper::kRetryRejectedAfter);
  EXPECT_NE(keeper_.waiting(now_), nullptr);
  keeper_.OnRejected(Failure{FailureKind::kTopicUnknown, "topic is gone"}, now_);
  EXPECT_FALSE(keeper_.Unwritten(now_.wall));
  std::optional<Halt> halt;
  for (auto rejected = ProgressKeeper::kRetryRejectedAfter; rejected < ProgressKeeper::kRejectedMax;
       rejected += ProgressKeeper::kRetryRejectedAfter) {
    EXPECT_FALSE(halt);
    Advance(ProgressKeeper::kRetryRejectedAfter);
    keeper_.OnRejected(Failure{FailureKind::kTopicUnknown, "topic is gone"}, now_);
    halt = keeper_.Unwritten(now_.wall);
  }
  ASSERT_TRUE(halt);
  EXPECT_EQ(halt->reason, base::HaltReason::kProgressUnreadable);
  EXPECT_THAT(halt->detail, HasSubstr("topic is gone"));
  keeper_.OnAccepted();
  keeper_.OnAcknowledged(now_.mono);
  EXPECT_FALSE(keeper_.Unwritten(now_.wall));
}

// As when brokers restart: the first answers that it does not know the topic, then none answers.
TEST_F(ProgressKeeperTest, RejectionBeforeAnOutageIsNoMinuteOfRejections) {
  Begin();
  keeper_.Tick(Lsn(200), 0, false, now_);
  for (int rejection = 0; rejection < 3; ++rejection) {
    keeper_.OnRejected(Failure{FailureKind::kTopicUnknown, "topic is gone"}, now_);
    Advance(ProgressKeeper::kRetryRejectedAfter);
    ASSERT_NE(keeper_.waiting(now_), nullptr);
    keeper_.OnAccepted();
    Advance(10 * ProgressKeeper::kRejectedMax);
    EXPECT_FALSE(keeper_.Unwritten(now_.wall - 10 * ProgressKeeper::kRejectedMax))
        << "Kafka being away is no reason to halt";
  }
}

TEST_F(ProgressKeeperTest, SilenceHaltsOnlyWhenEventsAreDeliveredMeanwhile) {
  Begin();
  const base::WallTime before = now_.wall;
  keeper_.Tick(Lsn(200), 0, false, now_);
  keeper_.OnAccepted();
  EXPECT_FALSE(keeper_.Late(now_));
  Advance(ProgressKeeper::kUnansweredMax);
  EXPECT_TRUE(keeper_.Late(now_));
  EXPECT_FALSE(keeper_.Unwritten(before)) << "Kafka is away, which is no reason to halt";
  EXPECT_FALSE(keeper_.Unwritten(now_.wall)) << "it is just back; the record's turn comes";
  std::optional<Halt> halt;
  for (milliseconds answering{0}; answering < ProgressKeeper::kUnansweredMax && !halt;
       answering += milliseconds(5'000)) {
    EXPECT_LT(answering, ProgressKeeper::kUnansweredMax);
    Advance(milliseconds(5'000));
    halt = keeper_.Unwritten(now_.wall);
  }
  EXPECT_TRUE(halt) << "events are delivered all the time, but not this one";
}

TEST_F(ProgressKeeperTest, OutageLongerThanThatIsOverWithTheFirstAcknowledgement) {
  Begin();
  keeper_.Tick(Lsn(200), 0, false, now_);
  keeper_.OnAccepted();
  EXPECT_FALSE(keeper_.Unwritten(now_.wall));
  for (int outage = 0; outage < 40; ++outage) {
    Advance(2 * ProgressKeeper::kUnansweredMax);
    EXPECT_FALSE(keeper_.Unwritten(now_.wall)) << "an event first, its own record after it";
    keeper_.OnAcknowledged(now_.mono);
    keeper_.Tick(Lsn(201 + static_cast<std::uint64_t>(outage)), 0, true, now_);
    keeper_.OnAccepted();
  }
}

TEST_F(ProgressKeeperTest, WhatThisProcessMayHaveWrittenIsReported) {
  Begin();
  keeper_.Tick(Lsn(200), 0, true, now_);
  base::Progress other;
  other.end_lsn = Lsn(200);
  EXPECT_TRUE(keeper_.IsOurs(other)) << "not acknowledged, but it may have landed";
  other.end_lsn = Lsn(201);
  EXPECT_FALSE(keeper_.IsOurs(other));
  other.end_lsn = Lsn(50);
  other.epoch = 2;
  EXPECT_FALSE(keeper_.IsOurs(other)) << "an operator decided";
}

TEST_F(ProgressKeeperTest, PositionBeforeTheSwitchIsOfTheOlderTimeline) {
  facts_.timeline = 2;
  facts_.timeline_history = {{1, Lsn(250)}};
  Begin();
  keeper_.Tick(Lsn(200), 0, false, now_);
  EXPECT_EQ(Waiting().timeline, 1U);
  keeper_.Tick(Lsn(300), 0, false, now_);
  EXPECT_EQ(Waiting().timeline, 2U);
}

TEST_F(ProgressKeeperTest, ForgottenProgressConfirmsNothing) {
  Begin();
  keeper_.Forget();
  EXPECT_EQ(keeper_.Confirmable(Lsn(100)), Lsn());
  EXPECT_FALSE(keeper_.remembered());
}

TEST_F(ProgressKeeperTest, MessagePrefixesArePartOfWhatIsRemembered) {
  facts_.message_prefixes = {"shop"};
  keeper_.OnConnected(facts_);
  keeper_.Tick(Lsn(), 0, false, now_);
  EXPECT_THAT(Waiting().message_prefixes, ::testing::ElementsAre("shop"));
}

}  // namespace
}  // namespace walpost::pipeline
