// What a missing right means to who writes many records, on librdkafka's mock cluster.
#include "kafka/bulk_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "kafka/client.h"
#include "kafka/topic_look_up.h"
#include "support/mock_kafka.h"

namespace walpost::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using walpost::testing::ReadPartition;

constexpr milliseconds kPatience{30'000};
constexpr rd_kafka_resp_err_t kDenied = RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;

// Clients are destroyed on threads of their own: what they have not freed at the end looks like a
// leak.
class AllAreDestroyed : public ::testing::Environment {
  void TearDown() override { EXPECT_TRUE(WaitForDestroyed(std::chrono::seconds(30))); }
};

[[maybe_unused]] const ::testing::Environment* const kAllAreDestroyed =
    ::testing::AddGlobalTestEnvironment(new AllAreDestroyed);

class BulkWriterTest : public ::testing::Test {
 protected:
  BulkWriterTest() { mock_.CreateTopic("orders", 1); }

  KafkaOptions Options(milliseconds wait) const {
    KafkaOptions options;
    options.properties = {{"bootstrap.servers", mock_.bootstrap()}};
    options.unknown_topic_wait = wait;
    return options;
  }

  // Of four records, with who rejects going on.
  absl::Status WriteFour(milliseconds wait) {
    BulkWriter writer(Options(wait), kPatience,
                      [this](const std::string&, const absl::Status& why) {
                        rejected_.push_back(why);
                        return absl::OkStatus();
                      });
    absl::Status status;
    for (const char* value : {"a", "b", "c", "d"}) {
      envelope::Record record;
      record.topic = "orders";
      record.key = "key";
      record.value = value;
      status.Update(writer.Write(record));
    }
    status.Update(writer.Flush());
    closed_ = writer.TakeClosedTopics();
    return status;
  }

  walpost::testing::MockKafka mock_;
  std::vector<absl::Status> rejected_;
  std::vector<ClosedTopic> closed_;
};

TEST_F(BulkWriterTest, ARightThatIsMissingForAMomentLeavesNothingOut) {
  mock_.FailProduce({kDenied, kDenied, kDenied});
  EXPECT_EQ(WriteFour(kPatience), absl::OkStatus());
  EXPECT_THAT(rejected_, IsEmpty());
  EXPECT_THAT(closed_, IsEmpty());
  EXPECT_THAT(ReadPartition(mock_.bootstrap(), "orders", 0), ElementsAre("a", "b", "c", "d"));
}

TEST_F(BulkWriterTest, ARejectionThatPassedDoesNotShortenTheWaitOfTheNext) {
  constexpr milliseconds kWait{4'000};
  BulkWriter writer(Options(kWait), kPatience,
                    [](const std::string&, const absl::Status& why) { return why; });
  envelope::Record record;
  record.topic = "orders";
  record.key = "key";
  for (const char* value : {"a", "b", "c", "d"}) {
    record.value = value;
    mock_.FailProduce(std::vector<rd_kafka_resp_err_t>(2, kDenied));  // for a second or two
    ASSERT_EQ(writer.Write(record), absl::OkStatus());
    ASSERT_EQ(writer.Flush(), absl::OkStatus()) << value;
  }
  EXPECT_THAT(ReadPartition(mock_.bootstrap(), "orders", 0), ElementsAre("a", "b", "c", "d"));
}

TEST_F(BulkWriterTest, ARightThatIsMissingForLongClosesItsTopic) {
  mock_.FailProduce(std::vector<rd_kafka_resp_err_t>(1'000, kDenied));
  EXPECT_EQ(WriteFour(milliseconds(500)), absl::OkStatus());
  EXPECT_THAT(rejected_, SizeIs(4));
  ASSERT_THAT(closed_, SizeIs(1));
  EXPECT_EQ(closed_[0].name, "orders");
  EXPECT_EQ(closed_[0].records, 4);
}

TEST_F(BulkWriterTest, ATopicThatMayNotBeDescribedForLongIsClosed) {
  mock_.FailTopic("orders", kDenied);
  constexpr milliseconds kWait{1'000};
  const auto began = steady_clock::now();
  EXPECT_EQ(WriteFour(kWait), absl::OkStatus());
  EXPECT_GE(steady_clock::now() - began, kWait / 2);
  EXPECT_THAT(rejected_, SizeIs(4));
  EXPECT_THAT(closed_, SizeIs(1));
}

TEST_F(BulkWriterTest, ARecordThatIsRejectedClosesNoTopic) {
  mock_.FailProduce({RD_KAFKA_RESP_ERR_INVALID_RECORD, RD_KAFKA_RESP_ERR_INVALID_RECORD});
  EXPECT_EQ(WriteFour(kPatience), absl::OkStatus());
  EXPECT_THAT(rejected_, SizeIs(1));
  EXPECT_THAT(closed_, IsEmpty());
}

TEST_F(BulkWriterTest, UnseenTopicsAreBelievedToBeHiddenAfterTheWait) {
  mock_.FailTopic("orders", kDenied);
  constexpr milliseconds kWait{1'000};
  const auto began = steady_clock::now();
  const auto unseen = FindUnseenTopics(Options(kWait), {"orders"}, kPatience, {.hidden = kWait});
  ASSERT_TRUE(unseen.ok()) << unseen.status();
  EXPECT_THAT(*unseen, ElementsAre(std::pair("orders", Unseen::kHidden)));
  EXPECT_GE(steady_clock::now() - began, kWait / 2);
}

}  // namespace
}  // namespace walpost::kafka
