// Letters as large as a dead-letter topic takes, on a real Kafka: WALPOST_TEST_KAFKA=host:port.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "kafka/letters.h"
#include "kafka/record_writer.h"
#include "kafka/topics.h"

namespace walpost::kafka {
namespace {

using envelope::Letter;
using envelope::Record;

constexpr std::chrono::milliseconds kTimeout{30'000};

class RealLetters : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("WALPOST_TEST_KAFKA");
    ASSERT_TRUE(given != nullptr && *given != '\0')
        << "WALPOST_TEST_KAFKA=host:port must name a Kafka for this test";
    options_.properties = {{"bootstrap.servers", given}};
    topic_ = "walpost-letters-" + std::to_string(std::random_device()());
    ASSERT_TRUE(EnsureTopic(options_, DeadLetterTopic(topic_), kTimeout).ok());
  }

  absl::Status Write(std::size_t value_bytes) {
    const std::string value(value_bytes, 'x');
    Record event;
    event.key = "key";
    event.value = value;
    Letter letter;
    letter.pipeline = "shop";
    base::ChunkArena arena;
    RecordWriter writer(options_, kTimeout);
    return writer.Write(envelope::EncodeLetter(letter, topic_, event, &arena), {}).status();
  }

  std::vector<std::size_t> ReadSizes() {
    std::vector<std::size_t> sizes;
    const auto next = ReadLetters(
        options_, {topic_, "shop", 0},
        [&](const StoredLetter& stored) {
          sizes.push_back(stored.value->size());
          return absl::OkStatus();
        },
        kTimeout);
    EXPECT_TRUE(next.ok()) << next.status();
    return sizes;
  }

  KafkaOptions options_;
  std::string topic_;
};

TEST_F(RealLetters, AsLargeAsTheTopicTakesAreReadAmongSmallOnes) {
  constexpr std::size_t kLargest = 67'108'864 - 1'000;
  const std::vector<std::size_t> sizes = {10, kLargest, 5'000'000, 20, kLargest, 30};
  for (const std::size_t size : sizes) {
    const absl::Status written = Write(size);
    ASSERT_TRUE(written.ok()) << size << ": " << written;
  }
  EXPECT_EQ(ReadSizes(), sizes);
}

TEST_F(RealLetters, LargerThanTheTopicTakesIsRefused) {
  EXPECT_EQ(Write(67'108'864).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ReadSizes().empty());
}

}  // namespace
}  // namespace walpost::kafka
