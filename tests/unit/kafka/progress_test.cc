// Remembered progress on librdkafka's mock cluster.
#include "kafka/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "support/mock_kafka.h"

namespace walpost::kafka {
namespace {

using base::Lsn;
using base::Progress;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kTimeout{10'000};
const ProgressPlace kPlace{"progress", "shop"};

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

  walpost::testing::MockKafka mock_;
};

TEST_F(ProgressTest, EmptyTopicRemembersNothing) {
  mock_.CreateTopic("progress", 1);
  const auto records = ReadProgress(Options(), kPlace, kTimeout);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_TRUE(records->empty());
}

// Failure 75.
TEST_F(ProgressTest, HighestOfEachEpochAndTimelineIsRead) {
  mock_.CreateTopic("progress", 1);
  for (const Progress& each : {At(100), At(300), At(200), At(50, 2), At(10, 1, 1)}) {
    Write(each);
  }
  Write(At(900), "another");
  const auto records = ReadProgress(Options(), kPlace, kTimeout);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 3U) << "and nothing of another pipeline";
  EXPECT_EQ((*records)[0].end_lsn, Lsn(300));
  EXPECT_EQ((*records)[1].end_lsn, Lsn(50));
  EXPECT_EQ((*records)[2].end_lsn, Lsn(10));
}

TEST_F(ProgressTest, TopicOfSeveralPartitionsIsRefused) {
  mock_.CreateTopic("progress", 2);
  EXPECT_EQ(ReadProgress(Options(), kPlace, kTimeout).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Failure 74.
TEST_F(ProgressTest, MissingTopicAndMissingRightAreToldApart) {
  mock_.FailTopic("progress", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  EXPECT_EQ(ReadProgress(Options(), kPlace, kTimeout).status().code(), absl::StatusCode::kNotFound);
  mock_.FailTopic("progress", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  EXPECT_EQ(ReadProgress(Options(), kPlace, kTimeout).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(ProgressTest, TopicThatABrokerLearnsOfLateIsNotMissing) {
  mock_.CreateTopic("progress", 1);
  mock_.FailTopic("progress", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  // The pause is what is tested, not a way to wait: the first answer must not be the verdict.
  auto maker = std::async(std::launch::async, [this] {
    std::promise<void>().get_future().wait_for(milliseconds(300));
    mock_.FailTopic("progress", RD_KAFKA_RESP_ERR_NO_ERROR);
  });
  const absl::Status read = ReadProgress(Options(), kPlace, kTimeout).status();
  EXPECT_TRUE(read.ok()) << read;
  maker.get();
}

TEST_F(ProgressTest, KafkaThatIsAwayIsNoVerdict) {
  mock_.CreateTopic("progress", 1);
  mock_.SetDown(true);
  const absl::Status read = ReadProgress(Options(), kPlace, milliseconds(500)).status();
  EXPECT_EQ(read.code(), absl::StatusCode::kUnavailable) << read;
  const absl::Status written = WriteProgress(Options(), kPlace, At(1), milliseconds(500));
  EXPECT_EQ(written.code(), absl::StatusCode::kUnavailable) << written;
}

}  // namespace
}  // namespace walpost::kafka
