// What is held against a topic's limits. That the broker draws the same line is shown by
// tests/conformance/real_sink_test.cc.
#include "kafka/topic_limits.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>

namespace walpost::kafka {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

const base::WallTime kNow{std::chrono::seconds(1'800'000'000)};
constexpr std::int64_t kNowMs = 1'800'000'000'000;
constexpr std::int64_t kHourMs = 3'600'000;

TEST(BatchBytesTest, EmptyRecordIsTheBatchHeaderAndSevenBytes) {
  envelope::Record record;
  EXPECT_EQ(BatchBytesOf(record), 61 + 1 + 6) << "length, attributes, deltas, key, value, headers";
  record.key = std::string_view();
  record.value = std::string_view();
  EXPECT_EQ(BatchBytesOf(record), 61 + 1 + 6) << "null and empty take one byte each";
}

TEST(BatchBytesTest, LengthsGrowByAByteWhereSevenBitsEnd) {
  const std::string longest_in_one(63, 'x');
  const std::string shortest_in_two(64, 'x');
  envelope::Record record;
  record.key = longest_in_one;
  EXPECT_EQ(BatchBytesOf(record), 61 + 2 + 6 + 63);
  record.key = shortest_in_two;
  EXPECT_EQ(BatchBytesOf(record), 61 + 2 + 6 + 1 + 64);
}

TEST(BatchBytesTest, HeadersCountWithNameValueAndLengths) {
  const std::array<envelope::RecordHeader, 2> headers = {envelope::RecordHeader{"id", "7"},
                                                         envelope::RecordHeader{"type", ""}};
  envelope::Record record;
  record.headers = headers;
  EXPECT_EQ(BatchBytesOf(record), 61 + 1 + 6 + (1 + 2 + 1 + 1) + (1 + 4 + 1));
}

TEST(RequestBytesTest, WhatIsNotThereTakesNoBytes) {
  envelope::Record record;
  EXPECT_EQ(RequestBytesOf(record), 40);
  record.key = "12";
  record.value = "345";
  EXPECT_EQ(RequestBytesOf(record), 40 + 2 + 3);
}

TEST(BatchBytesTest, BatchIsALittleSmallerThanTheTopicTakes) {
  EXPECT_EQ(BatchBytesFor(TopicLimits()), std::nullopt);
  EXPECT_EQ(BatchBytesFor(LimitsOf({{"max.message.bytes", "100000"}})), 99'000);
  EXPECT_EQ(BatchBytesFor(LimitsOf({{"max.message.bytes", "1"}})), 1);
  EXPECT_EQ(BatchBytesFor(LimitsOf({{"max.message.bytes", "0"}})), 1) << "librdkafka takes no less";
}

TEST(BatchBytesTest, BatchFitsIntoASegment) {
  const auto with_segment = [](std::string_view bytes) {
    return BatchBytesFor(LimitsOf({{"max.message.bytes", "1000"}, {"segment.bytes", bytes}}));
  };
  EXPECT_EQ(with_segment("500"), 495);
  EXPECT_EQ(with_segment("5000"), 990);
  EXPECT_EQ(with_segment("-1"), 990);
}

using delivery::FailureKind;

TEST(IsTooLargeTest, OnlyWhatIsSentAsItIsIsMeasured) {
  envelope::Record record;
  const TopicLimits limits = LimitsOf({{"max.message.bytes", "68"}});
  EXPECT_EQ(IsTooLarge(record, limits, false), std::optional(false));
  record.value = "x";
  EXPECT_EQ(IsTooLarge(record, limits, false), std::optional(true));
  EXPECT_EQ(IsTooLarge(record, limits, true), std::nullopt);
  EXPECT_EQ(IsTooLarge(record, TopicLimits(), false), std::nullopt);
}

TEST(LimitOfTest, ChangesWithWhatTheRejectionDependsOn) {
  const TopicLimits small = LimitsOf({{"max.message.bytes", "50"}, {"cleanup.policy", "delete"}});
  const TopicLimits large = LimitsOf({{"max.message.bytes", "90"}, {"cleanup.policy", "compact"}});
  for (const FailureKind kind : {FailureKind::kRecordTooLarge, FailureKind::kRecordInvalid}) {
    EXPECT_NE(LimitOf(kind, small), LimitOf(kind, large));
    EXPECT_NE(LimitOf(kind, small), LimitOf(kind, TopicLimits())) << "not known";
    EXPECT_EQ(LimitOf(kind, small), LimitOf(kind, small));
  }
  EXPECT_EQ(LimitOf(FailureKind::kTopicNotAuthorized, small),
            LimitOf(FailureKind::kTopicNotAuthorized, large));
}

TEST(LimitWantedByTest, ALimitThatIsNotSmallerTakesTheRecord) {
  envelope::Record record;
  record.value = "x";  // 69 bytes
  const auto fits = [&](FailureKind kind, const TopicLimits& limits) {
    return LimitWantedBy(record, kind) <= LimitOf(kind, limits);
  };
  EXPECT_TRUE(fits(FailureKind::kRecordTooLarge, LimitsOf({{"max.message.bytes", "69"}})));
  EXPECT_FALSE(fits(FailureKind::kRecordTooLarge, LimitsOf({{"max.message.bytes", "68"}})));
  EXPECT_FALSE(fits(FailureKind::kRecordTooLarge,
                    LimitsOf({{"max.message.bytes", "69"}, {"segment.bytes", "68"}})));
  EXPECT_FALSE(fits(FailureKind::kRecordTooLarge, TopicLimits())) << "not known";
  EXPECT_TRUE(fits(FailureKind::kRecordInvalid, LimitsOf({{"cleanup.policy", "delete"}})));
  EXPECT_FALSE(fits(FailureKind::kRecordInvalid, LimitsOf({{"cleanup.policy", "compact"}})));
  EXPECT_FALSE(fits(FailureKind::kRecordInvalid, TopicLimits())) << "not known";
}

TEST(LimitWantedByTest, HighestPartitionWantsOneMore) {
  envelope::Record record;
  record.partition = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(LimitWantedBy(record, FailureKind::kPartitionUnknown), std::int64_t{1} << 31U);
}

TEST(MayBeBehindTest, LeaderLearnsOfALimitOrARightLater) {
  envelope::Record record;
  for (const FailureKind kind : {FailureKind::kRecordTooLarge, FailureKind::kTopicNotAuthorized,
                                 FailureKind::kRecordInvalid}) {
    EXPECT_TRUE(MayBeBehind(kind, record));
  }
  EXPECT_FALSE(MayBeBehind(FailureKind::kOther, record));
  record.key = "key";
  EXPECT_FALSE(MayBeBehind(FailureKind::kRecordInvalid, record)) << "not for the key";
  EXPECT_TRUE(MayBeBehind(FailureKind::kRecordTooLarge, record));
}

TEST(LacksKeyTest, OnlyACompactedTopicNeedsAKey) {
  envelope::Record record;
  for (const char* policy : {"compact", "compact,delete"}) {
    EXPECT_TRUE(LacksKey(record, LimitsOf({{"cleanup.policy", policy}}))) << policy;
  }
  EXPECT_FALSE(LacksKey(record, LimitsOf({{"cleanup.policy", "delete"}})));
  EXPECT_FALSE(LacksKey(record, {})) << "not known";
  record.key = std::string_view();
  EXPECT_FALSE(LacksKey(record, LimitsOf({{"cleanup.policy", "compact"}}))) << "empty is not null";
}

// Kafka 4 rejects the whole batch of a record that is an hour ahead.
// Failure 29.
TEST(SafeTimestampTest, TimeAheadBecomesNow) {
  EXPECT_EQ(SafeTimestampMs(kNowMs + 24 * kHourMs, {}, kNow), kNowMs);
  EXPECT_EQ(SafeTimestampMs(kNowMs + kClockSlack.count() + 1, {}, kNow), kNowMs);
  EXPECT_EQ(SafeTimestampMs(kNowMs + kClockSlack.count(), {}, kNow), kNowMs + kClockSlack.count())
      << "clocks that differ a little";
  EXPECT_EQ(SafeTimestampMs(kNowMs - 1'000, {}, kNow), kNowMs - 1'000);
}

TEST(SafeTimestampTest, TopicWhoseLimitsAreNotKnownGetsNothingOfLongAgo) {
  EXPECT_EQ(SafeTimestampMs(1, {}, kNow), kNowMs - kUnknownAgeMax.count());
  EXPECT_EQ(SafeTimestampMs(1, LimitsOf({{"max.message.bytes", "7"}}), kNow),
            kNowMs - kUnknownAgeMax.count());
  EXPECT_EQ(SafeTimestampMs(1, LimitsOf({{"cleanup.policy", "compact"}}), kNow), 1);
  EXPECT_EQ(
      SafeTimestampMs(1, LimitsOf({{"cleanup.policy", "delete"}, {"retention.ms", "-1"}}), kNow),
      1);
}

TEST(SafeTimestampTest, TimeThatRetentionWouldDeleteAtOnceIsMadeYounger) {
  TopicLimits limits;
  limits.age_max.reset();
  EXPECT_EQ(SafeTimestampMs(1, limits, kNow), 1) << "no limit";
  limits.age_max = hours(12);
  EXPECT_EQ(SafeTimestampMs(1, limits, kNow), kNowMs - 12 * kHourMs);
  EXPECT_EQ(SafeTimestampMs(kNowMs - 11 * kHourMs, limits, kNow), kNowMs - 11 * kHourMs);
}

TEST(SafeTimestampTest, NothingIsChangedWithoutAClockOrWithoutATime) {
  EXPECT_EQ(SafeTimestampMs(kNowMs, {}, base::WallTime()), kNowMs);
  TopicLimits limits;
  limits.age_max = milliseconds(1);
  EXPECT_EQ(SafeTimestampMs(0, limits, kNow), 0) << "when it is produced";
}

TEST(LimitsOfTest, WhatDeletesAKeyMayGoByRetentionToo) {
  const auto retention = [](const std::string& policy, const std::string& name,
                            const std::string& value) {
    return LimitsOf({{"cleanup.policy", policy}, {"delete.retention.ms", "8000"}, {name, value}})
        .tombstone_retention;
  };
  EXPECT_EQ(retention("compact", "retention.ms", "2000"), milliseconds(8'000));
  EXPECT_EQ(retention("compact,delete", "retention.ms", "2000"), milliseconds(2'000));
  EXPECT_EQ(retention("compact,delete", "retention.ms", "-1"), milliseconds(8'000));
  EXPECT_EQ(retention("compact", "retention.bytes", "7"), milliseconds(8'000));
  EXPECT_EQ(retention("compact,delete", "retention.bytes", "7"), milliseconds(0));
  EXPECT_EQ(retention("compact,delete", "retention.bytes", "-1"), milliseconds(8'000));
}

TEST(LimitsOfTest, TheStricterOfRetentionAndTimestampLimitCounts) {
  EXPECT_EQ(LimitsOf({{"cleanup.policy", "delete"},
                      {"retention.ms", "8000"},
                      {"message.timestamp.before.max.ms", "2000"}})
                .age_max,
            milliseconds(1'000));
  EXPECT_EQ(LimitsOf({{"cleanup.policy", "delete"},
                      {"retention.ms", "2000"},
                      {"message.timestamp.before.max.ms", "8000"}})
                .age_max,
            milliseconds(1'000));
  EXPECT_EQ(LimitsOf({{"cleanup.policy", "compact"}, {"retention.ms", "2000"}}).age_max,
            std::nullopt);
}

// Times further and further apart would have a broker keep a segment open for each.
TEST(LimitsOfTest, TimesReachBackAHundredSegments) {
  EXPECT_EQ(LimitsOf({{"cleanup.policy", "compact"}, {"segment.ms", "2000"}}).age_max,
            milliseconds(200'000));
  EXPECT_EQ(
      LimitsOf({{"cleanup.policy", "delete"}, {"retention.ms", "8000"}, {"segment.ms", "2000"}})
          .age_max,
      milliseconds(4'000));
  EXPECT_EQ(
      LimitsOf({{"cleanup.policy", "compact"}, {"segment.ms", "9223372036854775807"}}).age_max,
      std::nullopt);
  EXPECT_EQ(LimitsOf({{"cleanup.policy", "compact"}, {"segment.ms", "0"}}).age_max, std::nullopt);
}

// Brokers up to 3.5 know only the older one, brokers from 4 on only the newer ones.
TEST(LimitsOfTest, TimestampLimitOfOldBrokersBoundsBothDirections) {
  const TopicLimits old = LimitsOf({{"message.timestamp.difference.max.ms", "2000"}});
  EXPECT_EQ(old.age_max, milliseconds(1'000));
  EXPECT_EQ(old.ahead_max, milliseconds(1'000));
  const TopicLimits both = LimitsOf({{"message.timestamp.difference.max.ms", "9223372036854775807"},
                                     {"message.timestamp.before.max.ms", "8000"},
                                     {"message.timestamp.after.max.ms", "600"}});
  EXPECT_EQ(both.age_max, milliseconds(4'000));
  EXPECT_EQ(both.ahead_max, milliseconds(300));
  EXPECT_EQ(LimitsOf({{"message.timestamp.after.max.ms", "3600000"}}).ahead_max, kClockSlack);
  EXPECT_EQ(LimitsOf({{"message.timestamp.difference.max.ms", "0"}}).ahead_max, milliseconds(0));
}

TEST(LimitsOfTest, WhatIsNoNumberOf64BitsIsNoLimit) {
  for (const char* text : {"99999999999999999999", "2000 ms", ""}) {
    EXPECT_EQ(LimitsOf({{"max.message.bytes", text}}).message_bytes_max, std::nullopt) << text;
  }
}

TEST(SafeTimestampTest, TopicMayTakeLessThanOurSlack) {
  TopicLimits limits;
  limits.ahead_max = milliseconds(100);
  EXPECT_EQ(SafeTimestampMs(kNowMs + 101, limits, kNow), kNowMs);
  EXPECT_EQ(SafeTimestampMs(kNowMs + 100, limits, kNow), kNowMs + 100);
}

}  // namespace
}  // namespace walpost::kafka
