// What the dead-letter topic gets, on librdkafka's mock cluster.
#include "kafka/dead_letter_outlet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "support/mock_kafka.h"

namespace walpost::kafka {
namespace {

using ::testing::ElementsAre;
using walpost::testing::ReadPartition;

// Clients are destroyed on threads of their own: what they have not freed at the end looks like a
// leak.
class AllAreDestroyed : public ::testing::Environment {
  void TearDown() override { EXPECT_TRUE(WaitForDestroyed(std::chrono::seconds(30))); }
};

[[maybe_unused]] const ::testing::Environment* const kAllAreDestroyed =
    ::testing::AddGlobalTestEnvironment(new AllAreDestroyed);

class DeadLetterOutletTest : public ::testing::Test {
 protected:
  DeadLetterOutletTest() { mock_.CreateTopic("dead", 1); }

  KafkaOptions Options() const {
    KafkaOptions options;
    options.properties = {{"bootstrap.servers", mock_.bootstrap()}};
    return options;
  }

  static base::DeadLetter Row(const std::string& value) {
    base::DeadLetter row;
    row.key = "key";
    row.value = value;
    row.headers = {{"own", "header"}};
    row.reason = "record_too_large";
    return row;
  }

  // Of all that is on its way.
  absl::Status Await(DeadLetterOutlet* outlet) {
    absl::Status status;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (outlet->busy() && std::chrono::steady_clock::now() < deadline) {
      status.Update(outlet->TakeReports());
      std::this_thread::yield();
    }
    EXPECT_FALSE(outlet->busy());
    return status;
  }

  walpost::testing::MockKafka mock_;
};

TEST_F(DeadLetterOutletTest, EachIsARecord) {
  DeadLetterOutlet outlet(Options(), "dead", "shop");
  EXPECT_TRUE(outlet.Publish({Row("a"), Row("b")}).ok());
  EXPECT_TRUE(Await(&outlet).ok());
  EXPECT_THAT(ReadPartition(mock_.bootstrap(), "dead", 0), ElementsAre("a", "b"));
}

// It has columns that are in no record.
TEST_F(DeadLetterOutletTest, RowThatADeadLetterKeepsStaysInItsTable) {
  DeadLetterOutlet outlet(Options(), "dead", "shop");
  base::DeadLetter keeping = Row("a row");
  keeping.truncated_bytes = 5;
  EXPECT_TRUE(outlet.Publish({keeping}).ok());
  EXPECT_TRUE(Await(&outlet).ok());
  EXPECT_THAT(ReadPartition(mock_.bootstrap(), "dead", 0), ElementsAre("(null)"));
}

TEST_F(DeadLetterOutletTest, RejectionIsReportedAndTheNextGoesOn) {
  DeadLetterOutlet outlet(Options(), "dead", "shop");
  mock_.FailProduce({RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE});
  EXPECT_TRUE(outlet.Publish({Row("a")}).ok());
  EXPECT_FALSE(Await(&outlet).ok());
  EXPECT_TRUE(outlet.Publish({Row("b")}).ok());
  EXPECT_TRUE(Await(&outlet).ok());
  EXPECT_THAT(ReadPartition(mock_.bootstrap(), "dead", 0), ElementsAre("b"));
}

TEST_F(DeadLetterOutletTest, WhatIsOnItsWayIsBounded) {
  mock_.SetDown(true);
  DeadLetterOutlet outlet(Options(), "dead", "shop");
  const base::DeadLetter large = Row(std::string(DeadLetterOutlet::kBytesMax / 2, 'x'));
  EXPECT_TRUE(outlet.Publish({large}).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(outlet.Publish({large, large})));
}

TEST_F(DeadLetterOutletTest, HeadersCountForTheBound) {
  mock_.SetDown(true);
  DeadLetterOutlet outlet(Options(), "dead", "shop");
  base::DeadLetter row = Row("x");
  row.headers.push_back({"note", std::string(DeadLetterOutlet::kBytesMax / 2, 'x')});
  EXPECT_TRUE(outlet.Publish({row}).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(outlet.Publish({row, row})));
}

}  // namespace
}  // namespace walpost::kafka
