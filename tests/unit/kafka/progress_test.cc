// Remembered progress on librdkafka's mock cluster.

#include "kafka/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <span>

#include "envelope/control_records.h"
#include "kafka/bulk_writer.h"
#include "support/mock_kafka.h"
#include "walpost/v1/progress.pb.h"

namespace walpost::kafka {
namespace {

using base::Lsn;
using base::Progress;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kTimeout{10'000};
const ProgressKey kKey{"progress", "shop"};

class ProgressTest : public ::testing::Test {
 protected:
  KafkaOptions Options() const {
    KafkaOptions options;
    options.properties = {{"bootstrap.servers", mock_.bootstrap()}};
    return options;
  }

  static Progress At(std::uint64_t lsn, std::uint32_t timeline = 1, std::uint64_t epoch = 0) {
    Progress progress;
    progress.epoch = epoch;
    progress.system_identifier = 77;
    progress.timeline = timeline;
    progress.end_lsn = Lsn(lsn);
    return progress;
  }

  void Write(const Progress& progress, const std::string& name = "shop") {
    const absl::Status written = WriteProgress(Options(), {"progress", name}, progress, kTimeout);
    ASSERT_TRUE(written.ok()) << written;
  }

  static std::string OfANewerFormat(std::uint64_t epoch) {
    walpost::v1::Progress newer;
    newer.set_format(2);
    newer.set_epoch(epoch);
    return newer.SerializeAsString();
  }

  // A record with the pipeline's key that need not be progress.
  void WriteBytes(std::string_view value, std::span<const envelope::RecordHeader> headers = {}) {
    envelope::Record record;
    record.headers = headers;
    record.topic = kKey.topic;
    record.key = kKey.name;
    record.value = value;
    BulkWriter writer(Options(), kTimeout,
                      [](const std::string&, const absl::Status& why) { return why; });
    ASSERT_TRUE(writer.Write(record).ok());
    const absl::Status written = writer.Flush();
    ASSERT_TRUE(written.ok()) << written;
  }

  walpost::testing::MockKafka mock_;
};

TEST_F(ProgressTest, EmptyTopicRemembersNothing) {
  mock_.CreateTopic("progress", 1);
  const auto records = ReadProgress(Options(), kKey, {kTimeout});
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_TRUE(records->empty());
}

// Failure 75.
TEST_F(ProgressTest, HighestOfEachTimelineIsRead) {
  mock_.CreateTopic("progress", 1);
  for (const Progress& each : {At(100), At(300), At(200), At(50, 2)}) {
    Write(each);
  }
  Write(At(900), "another");
  const auto records = ReadProgress(Options(), kKey, {kTimeout});
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 2U) << "and nothing of another pipeline";
  EXPECT_EQ((*records)[0].end_lsn, Lsn(300));
  EXPECT_EQ((*records)[1].end_lsn, Lsn(50));
}

// A connection has an epoch of its own, and a topic that is not compacted has them all.
TEST_F(ProgressTest, OnlyTheNewestEpochIsKept) {
  mock_.CreateTopic("progress", 1);
  for (const Progress& each : {At(100), At(10, 1, 2), At(300), At(400, 2, 1), At(20, 1, 2)}) {
    Write(each);
  }
  const auto records = ReadProgress(Options(), kKey, {kTimeout});
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 1U);
  EXPECT_EQ((*records)[0].end_lsn, Lsn(20));
}

TEST_F(ProgressTest, WhatWasReadIsNotReadAgain) {
  mock_.CreateTopic("progress", 1);
  Write(At(100));
  ProgressRead read;
  const ReadProgressOptions how{.timeout = kTimeout, .so_far = &read};
  ASSERT_EQ(ReadProgress(Options(), kKey, how)->size(), 1U);
  EXPECT_EQ(read.next, 1);
  read.kept[0].dead_letters = 7;  // seen again only if it is not read again
  ASSERT_EQ(ReadProgress(Options(), kKey, how)->size(), 1U);
  Write(At(50, 2));
  const auto both = ReadProgress(Options(), kKey, how);
  ASSERT_EQ(both->size(), 2U);
  EXPECT_EQ((*both)[0].dead_letters, 7U);
  EXPECT_EQ((*both)[1].end_lsn, Lsn(50));
}

// Whoever may write the topic can put anything there; it neither counts nor stands in the way.
TEST_F(ProgressTest, WhatIsNoProgressIsPassedOverUnlessNothingElseIsThere) {
  mock_.CreateTopic("progress", 1);
  WriteBytes("junk");
  EXPECT_EQ(ReadProgress(Options(), kKey, {kTimeout}).status().code(), absl::StatusCode::kDataLoss);
  UnreadProgress unread;
  const auto none = ReadProgress(Options(), kKey, {.timeout = kTimeout, .unread = &unread});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->empty());
  EXPECT_EQ(unread.count, 1U);
  Write(At(100));
  WriteBytes("junk");
  const auto records = ReadProgress(Options(), kKey, {kTimeout});
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 1U);
  EXPECT_EQ((*records)[0].end_lsn, Lsn(100));
}

// Who may only write events can make one of this topic, this key and these bytes, but none without
// headers.
TEST_F(ProgressTest, EventIsNoProgress) {
  mock_.CreateTopic("progress", 1);
  Write(At(100));
  const std::array<envelope::RecordHeader, 1> headers = {envelope::RecordHeader{"id", "7"}};
  WriteBytes(envelope::EncodeProgress(At(900)), headers);
  walpost::v1::Progress newer;
  newer.set_format(2);
  WriteBytes(newer.SerializeAsString(), headers);
  const auto records = ReadProgress(Options(), kKey, {kTimeout});
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 1U);
  EXPECT_EQ((*records)[0].end_lsn, Lsn(100));
}

// It may hold a decision that overrules the others, until another decision comes after it. A late
// record of the process before is none.
TEST_F(ProgressTest, RecordOfANewerFormatCountsUntilOneOfAHigherEpochComes) {
  mock_.CreateTopic("progress", 1);
  WriteBytes(OfANewerFormat(1));  // compaction has removed what was before
  const absl::Status read = ReadProgress(Options(), kKey, {kTimeout}).status();
  EXPECT_EQ(read.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(read.message()), HasSubstr("format 2"));
  Write(At(150, 1, 1));
  EXPECT_EQ(ReadProgress(Options(), kKey, {kTimeout}).status().code(),
            absl::StatusCode::kUnimplemented);
  UnreadProgress unread;
  const auto kept = ReadProgress(Options(), kKey, {.timeout = kTimeout, .unread = &unread});
  ASSERT_TRUE(kept.ok());
  EXPECT_TRUE(unread.Overrules(*kept));
  Write(At(50, 1, 2));
  EXPECT_TRUE(ReadProgress(Options(), kKey, {kTimeout}).ok());
}

TEST_F(ProgressTest, LateRecordOfANewerFormatDoesNotOverruleAHigherEpoch) {
  mock_.CreateTopic("progress", 1);
  Write(At(50, 1, 2));
  WriteBytes(OfANewerFormat(1));
  UnreadProgress unread;
  const auto kept = ReadProgress(Options(), kKey, {.timeout = kTimeout, .unread = &unread});
  ASSERT_TRUE(kept.ok());
  EXPECT_FALSE(unread.Overrules(*kept));
  const auto records = ReadProgress(Options(), kKey, {kTimeout});
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->front().epoch, 2U);
}

TEST_F(ProgressTest, TopicOfSeveralPartitionsIsRejected) {
  mock_.CreateTopic("progress", 2);
  EXPECT_EQ(ReadProgress(Options(), kKey, {kTimeout}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Failure 74.
TEST_F(ProgressTest, MissingTopicAndMissingRightAreDistinguished) {
  mock_.FailTopic("progress", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  EXPECT_EQ(ReadProgress(Options(), kKey, {kTimeout}).status().code(), absl::StatusCode::kNotFound);
  mock_.FailTopic("progress", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  EXPECT_EQ(ReadProgress(Options(), kKey, {kTimeout}).status().code(),
            absl::StatusCode::kPermissionDenied);
}

// A leader that has just started: metadata have the topic, and the broker that leads it does not
// know it.
TEST_F(ProgressTest, TopicThatItsLeaderDoesNotKnowYetIsNotMissing) {
  mock_.CreateTopic("progress", 1);
  Write(At(100));
  mock_.FailOffsets(std::vector<rd_kafka_resp_err_t>(10, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART));
  EXPECT_EQ(ReadProgress(Options(), kKey, {milliseconds(2'000)}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ProgressTest, TopicThatABrokerLearnsOfLateIsNotMissing) {
  mock_.CreateTopic("progress", 1);
  mock_.FailTopic("progress", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  // The pause is what is tested, not a way to wait: the first answer must not be the verdict.
  auto maker = std::async(std::launch::async, [this] {
    std::promise<void>().get_future().wait_for(milliseconds(300));
    mock_.FailTopic("progress", RD_KAFKA_RESP_ERR_NO_ERROR);
  });
  const absl::Status read = ReadProgress(Options(), kKey, {kTimeout}).status();
  EXPECT_TRUE(read.ok()) << read;
  maker.get();
}

TEST_F(ProgressTest, KafkaThatIsAwayDecidesNothing) {
  mock_.CreateTopic("progress", 1);
  mock_.SetDown(true);
  const absl::Status read = ReadProgress(Options(), kKey, {milliseconds(500)}).status();
  EXPECT_EQ(read.code(), absl::StatusCode::kUnavailable) << read;
  const absl::Status written = WriteProgress(Options(), kKey, At(1), milliseconds(500));
  EXPECT_EQ(written.code(), absl::StatusCode::kUnavailable) << written;
}

constexpr std::int64_t kNone = INT64_MAX;
constexpr std::int64_t kEarlier = INT64_MIN;

// Partition 0 is as it was, of 1 a part was deleted, of 2 all, 3 never had a record, and 4 was read
// from a later one on.
TopicGaps Gaps() {
  TopicGaps gaps;
  gaps.begins_ms = kNone;
  gaps.partitions = {{100, false}, {200, true}, {kNone, true}, {kNone, false}, {kEarlier, true}};
  return gaps;
}

TEST(TopicGapsTest, EachPartitionBeginsByItself) {
  const TopicGaps gaps = Gaps();
  EXPECT_EQ(gaps.BeginsMs(0), 100);
  EXPECT_EQ(gaps.BeginsMs(1), 200);
  EXPECT_EQ(gaps.BeginsMs(2), kNone);
  EXPECT_EQ(gaps.BeginsMs(4), kEarlier);
}

TEST(TopicGapsTest, APartitionThatIsNotKnownMayBeAny) {
  EXPECT_EQ(Gaps().BeginsMs(-1), kNone);
  EXPECT_EQ(TopicGaps().BeginsMs(-1), std::nullopt);
}

// It may have been added after the event went to another one.
TEST(TopicGapsTest, OneThatWasNeverCutBeginsNoLaterThanWhatWasCut) {
  TopicGaps gaps = Gaps();
  EXPECT_EQ(gaps.BeginsMs(3), kNone);
  gaps.begins_ms = 50;
  EXPECT_EQ(gaps.BeginsMs(0), 50);
  EXPECT_EQ(gaps.BeginsMs(3), 50);
  gaps.begins_ms.reset();
  EXPECT_EQ(gaps.BeginsMs(3), std::nullopt);
}

// An event of the same millisecond may have been before it.
TEST(PartitionBeginTest, ItBeginsBehindTheFirstRecordWhileTimesRise) {
  PartitionBegin begin;
  EXPECT_EQ(begin.BeginsMs(), kNone);
  for (const std::int64_t time_ms : {100, 100, 250}) {
    begin.Add(time_ms);
    EXPECT_EQ(begin.BeginsMs(), 101);
  }
}

// What was deleted may have been as far out of order.
TEST(PartitionBeginTest, ItBeginsLaterByHowFarTimesWentBack) {
  PartitionBegin begin;
  for (const std::int64_t time_ms : {100, 250, 220, 300, 290}) {
    begin.Add(time_ms);
  }
  EXPECT_EQ(begin.BeginsMs(), 131);
}

// Who may write the topic chooses times.
TEST(PartitionBeginTest, TimesThatCannotBeTrueOverflowNothing) {
  PartitionBegin begin;
  for (const std::int64_t time_ms : {std::int64_t{5}, kNone - 1, kEarlier}) {
    begin.Add(time_ms);
  }
  EXPECT_EQ(begin.BeginsMs(), kNone);
}

TEST(TopicGapsTest, TimesThatShowNothingLeaveNoBegin) {
  TopicGaps gaps;
  gaps.partitions = {{100, false}, {200, true}};
  gaps.BeginLater(7);
  EXPECT_EQ(gaps.BeginsMs(-1), 207);
  EXPECT_EQ(gaps.BeginsMs(0), 107);
  gaps.BeginLater(INT64_MAX);
  EXPECT_EQ(gaps.BeginsMs(0), kNone);
  EXPECT_EQ(gaps.BeginsMs(1), kNone);
  TopicGaps whole;
  whole.partitions = {{100, false}};
  whole.BeginLater(INT64_MAX);
  EXPECT_EQ(whole.BeginsMs(0), std::nullopt);
}

TEST(TopicGapsTest, AnEventIsWhereItAsksForOrItsKeySays) {
  TopicGaps gaps = Gaps();
  EXPECT_EQ(gaps.PartitionOf(3, 7), 3);
  EXPECT_EQ(gaps.PartitionOf(-1, 7), 2);
  EXPECT_EQ(gaps.PartitionOf(-1, std::nullopt), -1);
  EXPECT_EQ(gaps.PartitionOf(5, 7), -1);
  EXPECT_EQ(TopicGaps().PartitionOf(-1, 7), -1);
}

TEST(TopicGapsTest, KeysThatLieElsewhereSayNothing) {
  TopicGaps gaps = Gaps();
  gaps.keys_elsewhere = true;
  EXPECT_EQ(gaps.PartitionOf(-1, 7), -1);
  EXPECT_EQ(gaps.PartitionOf(3, 7), 3);
}

}  // namespace
}  // namespace walpost::kafka
