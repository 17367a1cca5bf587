#include "delivery/lasting_rejections.h"

#include <chrono>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace walpost::delivery {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kWait{10'000};
constexpr milliseconds kPause{200};
constexpr std::int64_t kLimit = 1'000'000;

class LastingRejectionsTest : public ::testing::Test {
 protected:
  static envelope::Record RecordOf(std::size_t bytes) {
    static const std::string kBytes(2 * static_cast<std::size_t>(kLimit), 'x');
    envelope::Record record;
    record.topic = "orders";
    record.key = "key";
    record.value = std::string_view(kBytes).substr(0, bytes);
    return record;
  }

  static Failure TooLarge(std::int64_t limit = kLimit) {
    return {FailureKind::kRecordTooLarge, "too large", /*must_last=*/true, limit};
  }

  static Failure NoKey() {
    return {FailureKind::kRecordInvalid, "no key", /*must_last=*/true, /*limit=*/1};
  }

  milliseconds Count(const envelope::Record& record, const Failure& failure) {
    return rejections_.Count(record, failure, kPause, now_);
  }

  // How long it does not count.
  milliseconds Await(const envelope::Record& record, const Failure& failure) {
    const base::MonotonicTime since = now_;
    while (Count(record, failure).count() > 0) {
      now_ += kPause;
    }
    return std::chrono::duration_cast<milliseconds>(now_ - since);
  }

  void RejectAlmostForLong(const envelope::Record& record, const Failure& failure) {
    for (const base::MonotonicTime end = now_ + kWait - kPause; now_ < end; now_ += kPause) {
      EXPECT_GT(Count(record, failure).count(), 0);
    }
  }

  const envelope::Record large_ = RecordOf(static_cast<std::size_t>(2 * kLimit));
  LastingRejections rejections_{kWait};
  base::MonotonicTime now_{milliseconds(1'000'000)};
};

TEST_F(LastingRejectionsTest, FirstOneCountsWhenItHasLasted) {
  EXPECT_EQ(Count(large_, TooLarge()), kWait);
  EXPECT_EQ(Await(large_, TooLarge()), kWait);
}

TEST_F(LastingRejectionsTest, ContradictionEndsAllTimesOfBefore) {
  Failure failure = TooLarge();
  RejectAlmostForLong(large_, failure);
  failure.contradicted_at = now_;
  now_ += kPause;
  EXPECT_EQ(Await(large_, failure), kWait) << "the one that ran";
  now_ += kPause;
  EXPECT_EQ(Count(large_, failure), milliseconds(0)) << "nobody has said otherwise since";
  failure.contradicted_at = now_;
  now_ += kPause;
  EXPECT_EQ(Await(large_, failure), kWait) << "the one that had lasted";
}

TEST_F(LastingRejectionsTest, OneThatNeedNotLastCountsAtOnce) {
  EXPECT_EQ(Count(large_, Failure{FailureKind::kRecordTooLarge, "too large"}), milliseconds(0));
  EXPECT_TRUE(rejections_.empty());
}

TEST_F(LastingRejectionsTest, NoWaitIsConfiguredThenEachCountsAtOnce) {
  LastingRejections at_once(milliseconds(0));
  EXPECT_EQ(at_once.Count(large_, TooLarge(), kPause, now_), milliseconds(0));
}

TEST_F(LastingRejectionsTest, TimeInWhichNobodyAnsweredDoesNotCount) {
  Count(large_, TooLarge());
  now_ += 10 * kWait;
  EXPECT_EQ(Count(large_, TooLarge()), kWait - kPause);
  now_ += LastingRejections::kKept;
  EXPECT_EQ(Count(large_, TooLarge()), kWait);
}

TEST_F(LastingRejectionsTest, NextOnesCountAtOnceAndLaterOnesSoon) {
  Await(large_, TooLarge());
  EXPECT_EQ(Await(large_, TooLarge()), milliseconds(0));
  now_ += LastingRejections::kAtOnce;
  EXPECT_EQ(Await(large_, TooLarge()), LastingRejections::kWaitAgain);
  EXPECT_EQ(Await(large_, TooLarge()), milliseconds(0));
}

TEST_F(LastingRejectionsTest, LongAfterwardsItMustLastAsLongAsBefore) {
  Await(large_, TooLarge());
  now_ += LastingRejections::kKept + 2 * kWait;
  EXPECT_EQ(Await(large_, TooLarge()), kWait);
}

// A writer of large records does not shorten the time of one that the topic takes.
TEST_F(LastingRejectionsTest, RecordThatNeedsMuchLessHasATimeOfItsOwn) {
  Await(large_, TooLarge());
  EXPECT_EQ(Await(RecordOf(static_cast<std::size_t>(kLimit)), TooLarge()), kWait);
  EXPECT_EQ(Await(large_, TooLarge()), milliseconds(0));
}

TEST_F(LastingRejectionsTest, TimeOfALargeRecordIsNotThatOfASmallOne) {
  RejectAlmostForLong(large_, TooLarge());
  EXPECT_EQ(Await(RecordOf(static_cast<std::size_t>(kLimit)), TooLarge()), kWait);
}

TEST_F(LastingRejectionsTest, OneThatCountedSoonSaysNothingOfRecordsThatNeedLessThanTheFirst) {
  Await(large_, TooLarge());
  const std::size_t four_fifths = static_cast<std::size_t>(2 * kLimit) * 4 / 5;
  EXPECT_EQ(Await(RecordOf(four_fifths), TooLarge()), milliseconds(0));
  EXPECT_EQ(Await(RecordOf(four_fifths * 4 / 5), TooLarge()), kWait);
}

// He would wait for the whole time only a few times.
TEST_F(LastingRejectionsTest, WriterMakesEachRecordALittleSmallerThenFewMustLast) {
  int lasted = 0;
  for (auto bytes = static_cast<std::size_t>(2 * kLimit); bytes > kLimit / 10; bytes -= 5'000) {
    lasted += Await(RecordOf(bytes), TooLarge()) == kWait ? 1 : 0;
  }
  EXPECT_LE(lasted, 12);
}

TEST_F(LastingRejectionsTest, LimitWasRaisedThenTheTimeBeginsAnew) {
  RejectAlmostForLong(large_, TooLarge());
  EXPECT_EQ(Await(large_, TooLarge(3 * kLimit)), kWait);
  EXPECT_EQ(Await(large_, TooLarge(3 * kLimit)), milliseconds(0));
  EXPECT_EQ(Await(large_, TooLarge()), milliseconds(0)) << "what the larger one did not take";
  EXPECT_EQ(Await(large_, TooLarge(4 * kLimit)), kWait);
}

// One broker has not heard of a change, and the record is larger than both.
TEST_F(LastingRejectionsTest, TwoLimitsInTurnDecideInTheEnd) {
  const base::MonotonicTime since = now_;
  for (bool raised = false; Count(large_, TooLarge(raised ? 2 * kLimit : kLimit)).count() > 0;
       raised = !raised) {
    ASSERT_LT(now_ - since, 3 * kWait);
    now_ += kPause;
  }
}

TEST_F(LastingRejectionsTest, SomethingElseIsSaidInBetweenThenTheTimeBeginsAnew) {
  RejectAlmostForLong(large_, TooLarge());
  rejections_.OnOther("orders");
  EXPECT_EQ(Await(large_, TooLarge()), kWait);
  rejections_.OnOther("orders");
  EXPECT_EQ(Count(large_, TooLarge()), milliseconds(0)) << "what has lasted stays";
}

TEST_F(LastingRejectionsTest, AnotherLimitIsReadInBetweenThenTheTimeBeginsAnew) {
  RejectAlmostForLong(large_, TooLarge());
  rejections_.OnLimit("orders", FailureKind::kRecordTooLarge, kLimit);
  rejections_.OnLimit("orders", FailureKind::kRecordInvalid, 7);
  EXPECT_LE(Count(large_, TooLarge()), kPause);
  rejections_.OnLimit("orders", FailureKind::kRecordTooLarge, 3 * kLimit);
  EXPECT_EQ(Count(large_, TooLarge()), kWait);
}

TEST_F(LastingRejectionsTest, RecordAsLargeIsTakenThenTheTimeBeginsAnew) {
  RejectAlmostForLong(large_, TooLarge());
  rejections_.OnTaken(large_, now_);
  EXPECT_TRUE(rejections_.empty());
  EXPECT_EQ(Count(large_, TooLarge()), kWait);
}

TEST_F(LastingRejectionsTest, SmallRecordIsTakenThenTheTimeGoesOn) {
  RejectAlmostForLong(large_, TooLarge());
  rejections_.OnTaken(RecordOf(1), now_);
  EXPECT_LE(Count(large_, TooLarge()), kPause);
}

// How large a record is when it is packed is not known. Zeros pass where noise does not.
TEST_F(LastingRejectionsTest, RecordsThatAreTakenAndNotInTurnThenTheyHoldTheTopicOnce) {
  Await(large_, TooLarge());
  for (int i = 0; i < 5; ++i) {
    rejections_.OnTaken(large_, now_);
    EXPECT_EQ(Count(large_, TooLarge()), milliseconds(0));
  }
}

TEST_F(LastingRejectionsTest, LargeRecordsThatCountSoonerDoNotEndTheTimeOfASmallOne) {
  Await(large_, TooLarge());
  const envelope::Record small = RecordOf(static_cast<std::size_t>(kLimit));
  RejectAlmostForLong(small, TooLarge());
  EXPECT_EQ(Count(large_, TooLarge()), milliseconds(0));
  EXPECT_LE(Count(small, TooLarge()), kPause);
}

TEST_F(LastingRejectionsTest, RecordWithAKeySaysNothingOfOneWithout) {
  envelope::Record without_key = RecordOf(1);
  without_key.key.reset();
  RejectAlmostForLong(without_key, NoKey());
  rejections_.OnTaken(large_, now_);
  EXPECT_LE(Count(without_key, NoKey()), kPause);
  rejections_.OnTaken(without_key, now_);
  EXPECT_EQ(Count(without_key, NoKey()), kWait);
}

// A broker that rejects it may be behind. What it says of a record that is too large may be right.
TEST_F(LastingRejectionsTest, RecordThatFitsTheLimitHasATimeOfItsOwn) {
  Failure fits = TooLarge();
  fits.limit_wanted = kLimit;
  Await(large_, TooLarge());
  EXPECT_EQ(Await(large_, fits), kWait);
  EXPECT_EQ(Await(large_, fits), milliseconds(0));
  rejections_.OnLimit("orders", FailureKind::kRecordTooLarge, 3 * kLimit);
  EXPECT_TRUE(Count(large_, fits) == kWait && Count(large_, TooLarge()) == kWait);
}

// Somebody lowered it by mistake. What was said of larger records says nothing of this one.
TEST_F(LastingRejectionsTest, SmallerLimitThenWhatTheOneBeforeTookMustLastAsLong) {
  constexpr FailureKind kKind = FailureKind::kRecordTooLarge;
  const auto await = [this](std::int64_t limit, std::int64_t limit_wanted) {
    const base::MonotonicTime since = now_;
    while (rejections_.Count("orders", {kKind, limit, limit_wanted}, kPause, now_).count() > 0) {
      now_ += kPause;
    }
    return std::chrono::duration_cast<milliseconds>(now_ - since);
  };
  EXPECT_EQ(await(100, 200), kWait);
  EXPECT_EQ(await(50, 200), milliseconds(0)) << "neither takes it";
  EXPECT_EQ(await(50, 80), kWait);
  EXPECT_EQ(await(50, 60), milliseconds(0));
  EXPECT_EQ(await(50, 200), milliseconds(0));
  EXPECT_EQ(await(20, 40), kWait) << "once more";
}

TEST_F(LastingRejectionsTest, SmallerLimitThenATimeOfLargerRecordsDoesNotCount) {
  constexpr FailureKind kKind = FailureKind::kRecordTooLarge;
  rejections_.Count("orders", {kKind, 100, 200}, kWait, now_);
  now_ += kWait - kPause;
  EXPECT_EQ(rejections_.Count("orders", {kKind, 50, 200}, kWait, now_), kPause);
  EXPECT_EQ(rejections_.Count("orders", {kKind, 50, 80}, kWait, now_), kWait);
  now_ += kPause;
  EXPECT_EQ(rejections_.Count("orders", {kKind, 50, 200}, kWait, now_), kWait - kPause);
}

TEST_F(LastingRejectionsTest, TopicIsForgottenThenItsNextOneMustLast) {
  Await(large_, TooLarge());
  rejections_.ForgetTopic("refunds");
  EXPECT_EQ(Count(large_, TooLarge()), milliseconds(0));
  rejections_.ForgetTopic("orders");
  EXPECT_EQ(Count(large_, TooLarge()), kWait);
}

// An operator grants it, and a leader learns of it a moment later.
TEST_F(LastingRejectionsTest, MissingRightIsNotShortenedForMinutes) {
  const Failure no_right{FailureKind::kTopicNotAuthorized, "no", /*must_last=*/true};
  Await(large_, no_right);
  EXPECT_EQ(Count(large_, no_right), milliseconds(0));
  now_ += LastingRejections::kAtOnce;
  EXPECT_EQ(Await(large_, no_right), kWait);
}

TEST_F(LastingRejectionsTest, ForgottenThenTheFirstOneMustLast) {
  Await(large_, TooLarge());
  rejections_.Forget();
  EXPECT_EQ(Count(large_, TooLarge()), kWait);
}

TEST_F(LastingRejectionsTest, KindsAndTopicsHaveTimesOfTheirOwn) {
  Await(large_, TooLarge());
  envelope::Record other = large_;
  other.topic = "refunds";
  EXPECT_EQ(Count(other, TooLarge()), kWait);
  envelope::Record without_key = large_;
  without_key.key.reset();
  EXPECT_EQ(Count(without_key, NoKey()), kWait);
  EXPECT_EQ(Count(large_, TooLarge()), milliseconds(0));
}

TEST_F(LastingRejectionsTest, RejectionsInTurnDecideInTheEnd) {
  envelope::Record without_key = large_;
  without_key.key.reset();
  const base::MonotonicTime since = now_;
  while (Count(without_key, TooLarge()).count() > 0 && Count(without_key, NoKey()).count() > 0) {
    now_ += kPause;
  }
  EXPECT_EQ(now_ - since, kWait);
}

TEST_F(LastingRejectionsTest, WhatIsOldIsForgottenWithTheNextRecordThatIsTaken) {
  Await(large_, TooLarge());
  now_ += LastingRejections::kKept + 2 * kWait;
  rejections_.OnTaken(RecordOf(1), now_);
  EXPECT_TRUE(rejections_.empty());
}

TEST_F(LastingRejectionsTest, MoreTopicsThanItRemembersThenThoseThatWaitAreKnown) {
  for (std::size_t i = 0; i < LastingRejections::kTopicsMax; ++i) {
    const std::string topic = "a" + std::to_string(i);
    rejections_.Count(topic, {FailureKind::kPartitionUnknown}, kWait, now_);
    EXPECT_EQ(rejections_.Count(topic, {FailureKind::kPartitionUnknown}, kWait, now_ + kWait),
              milliseconds(0));
  }
  now_ += kWait;
  for (const milliseconds left : {kWait, kWait - kPause}) {
    for (const char* topic : {"0", "1"}) {
      EXPECT_EQ(rejections_.Count(topic, {FailureKind::kPartitionUnknown}, kPause, now_), left);
    }
    now_ += kPause;
  }
}

TEST_F(LastingRejectionsTest, AnswerOfOnlySomeBrokersMustLastSixTimesAsLong) {
  const Rejection silent{.kind = FailureKind::kPartitionUnknown, .silent = true};
  EXPECT_EQ(rejections_.Count("orders", silent, kWait, now_), 6 * kWait);
  EXPECT_EQ(rejections_.Count("orders", silent, 6 * kWait, now_ += 3 * kWait), 3 * kWait);
  EXPECT_EQ(rejections_.Count("orders", silent, 6 * kWait, now_ += 3 * kWait), milliseconds(0));
}

TEST_F(LastingRejectionsTest, TimeInWhichABrokerWasSilentDoesNotCountForAnswersOfAll) {
  const Rejection silent{.kind = FailureKind::kPartitionUnknown, .silent = true};
  const Rejection clear{.kind = FailureKind::kPartitionUnknown};
  const base::MonotonicTime since = now_;
  for (int i = 0; rejections_.Count("orders", i % 2 == 0 ? clear : silent, kWait, now_).count() > 0;
       ++i) {
    ASSERT_LT(now_, since + 20 * kWait);
    now_ += kWait / 10;
  }
  EXPECT_GE(now_, since + 6 * kWait);
}

TEST_F(LastingRejectionsTest, ContradictionBeforeASilentAnswerIsNotForgotten) {
  const Rejection silent{.kind = FailureKind::kPartitionUnknown, .silent = true};
  Rejection clear{.kind = FailureKind::kPartitionUnknown};
  rejections_.Count("orders", clear, kWait, now_);
  EXPECT_LE(rejections_.Count("orders", clear, kWait, now_ += kWait - milliseconds(10)),
            milliseconds(10));
  clear.contradicted_at = now_ += milliseconds(1);
  rejections_.Count("orders", silent, kWait, now_ += milliseconds(1));
  EXPECT_EQ(rejections_.Count("orders", clear, kWait, now_ += kWait), kWait);
}

// A silent broker made them doubtful for a moment. Nobody waits for that time any more.
TEST_F(LastingRejectionsTest, TimeThatNobodyWaitsForKeepsNoPlace) {
  const Rejection doubtful{.kind = FailureKind::kPartitionUnknown, .silent = true};
  const auto count_all = [&](const delivery::Rejection& rejection) {
    for (std::size_t i = 0; i < LastingRejections::kTopicsMax; ++i) {
      rejections_.Count("a" + std::to_string(i), rejection, kWait, now_);
    }
  };
  count_all(doubtful);
  for (int time = 0; time < 8; ++time) {
    now_ += kWait;
    count_all({FailureKind::kPartitionUnknown});
  }
  EXPECT_EQ(rejections_.Count("other", {FailureKind::kPartitionUnknown}, kWait, now_), kWait);
  EXPECT_EQ(rejections_.Count("other", {FailureKind::kPartitionUnknown}, kWait, now_ + kWait),
            milliseconds(0));
}

TEST_F(LastingRejectionsTest, MoreTopicsWaitThanItRemembersThenAllCountInTheEnd) {
  std::set<std::string> waiting;
  for (std::size_t i = 0; i < LastingRejections::kTopicsMax + 10; ++i) {
    waiting.insert(std::to_string(i));
  }
  for (int round = 0; round < 6; ++round) {
    std::erase_if(waiting, [&](const std::string& topic) {
      return rejections_.Count(topic, {FailureKind::kPartitionUnknown}, kWait / 2, now_).count() ==
             0;
    });
    now_ += kWait / 2;
  }
  EXPECT_TRUE(waiting.empty()) << waiting.size();
}

}  // namespace
}  // namespace walpost::delivery
