// The dead-letter topic on librdkafka's mock cluster: reading it, and writing to it.
#include "kafka/letters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "kafka/handles.h"
#include "kafka/record_writer.h"
#include "support/mock_kafka.h"

namespace walpost::kafka {
namespace {

using envelope::Letter;
using envelope::Record;
using envelope::RecordHeader;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr milliseconds kTimeout{10'000};

// Clients are destroyed on threads of their own: what they have not freed at the end looks like a leak.
class AllAreDestroyed : public ::testing::Environment {
  void TearDown() override { EXPECT_TRUE(WaitForDestroyed(std::chrono::seconds(30))); }
};

[[maybe_unused]] const ::testing::Environment* const kAllAreDestroyed =
    ::testing::AddGlobalTestEnvironment(new AllAreDestroyed);

class LettersTest : public ::testing::Test {
 protected:
  LettersTest() { mock_.CreateTopic("dead", 1); }

  KafkaOptions Options() const {
    KafkaOptions options;
    options.properties = {{"bootstrap.servers", mock_.bootstrap()}};
    return options;
  }

  void WriteRecord(const Record& record) {
    const auto written = writer_.Write(record, {});
    ASSERT_TRUE(written.ok()) << written.status();
  }

  void Write(const std::string& pipeline, const std::string& id) {
    const std::vector<RecordHeader> headers = {{"own", "header"}};
    Record event;
    event.key = "key";
    const std::string value = "value of " + id;
    event.value = value;
    event.headers = headers;
    Letter letter;
    letter.pipeline = pipeline;
    letter.id = id;
    WriteRecord(envelope::EncodeLetter(letter, "dead", event, &arena_));
  }

  // The ids, in order.
  std::vector<std::string> Read(std::int64_t from_offset = 0) {
    std::vector<std::string> ids;
    const auto next = ReadLetters(
        Options(), {"dead", "shop", from_offset},
        [&](const StoredLetter& stored) {
          ids.push_back(stored.letter.id);
          return absl::OkStatus();
        },
        kTimeout);
    EXPECT_TRUE(next.ok()) << next.status();
    next_ = next.value_or(-1);
    return ids;
  }

  absl::Status Fail(const LetterPlace& place = {"dead", "shop", 0},
                    milliseconds timeout = kTimeout) {
    return ReadLetters(
               Options(), place, [](const StoredLetter&) { return absl::OkStatus(); }, timeout)
        .status();
  }

  walpost::testing::MockKafka mock_;
  base::ChunkArena arena_;
  RecordWriter writer_{Options(), kTimeout};
  std::int64_t next_ = -1;
};

TEST_F(LettersTest, EmptyTopicHasNone) {
  EXPECT_THAT(Read(), ElementsAre());
  EXPECT_EQ(next_, 0);
}

TEST_F(LettersTest, ThoseOfThePipelineAreReadInOrderAndOthersPassedOver) {
  Write("shop", "a");
  Write("another", "b");
  Record foreign;
  foreign.topic = "dead";
  foreign.value = "somebody else's";
  WriteRecord(foreign);
  Write("shop", "c");
  EXPECT_THAT(Read(), ElementsAre("a", "c"));
  EXPECT_EQ(next_, 4);
}

TEST_F(LettersTest, ReadingGoesOnWhereItEnded) {
  Write("shop", "a");
  EXPECT_THAT(Read(), ElementsAre("a"));
  EXPECT_THAT(Read(next_), ElementsAre());
  Write("shop", "b");
  Write("shop", "c");
  EXPECT_THAT(Read(next_), ElementsAre("b", "c"));
  EXPECT_EQ(next_, 3);
}

TEST_F(LettersTest, FollowingWaitsForWhatIsWrittenMeanwhile) {
  Write("shop", "a");
  std::vector<std::string> ids;
  const LetterPlace place{"dead", "shop", 0, milliseconds(20'000)};
  const auto next = ReadLetters(
      Options(), place,
      [&](const StoredLetter& stored) {
        ids.push_back(stored.letter.id);
        if (ids.size() == 1) {
          Write("shop", "b");
        }
        return ids.size() == 2 ? absl::CancelledError("enough") : absl::OkStatus();
      },
      kTimeout);
  EXPECT_EQ(next.status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(ids, ElementsAre("a", "b"));
}

TEST_F(LettersTest, FollowingEndsByItself) {
  const LetterPlace place{"dead", "shop", 0, milliseconds(200)};
  EXPECT_TRUE(Fail(place).ok());
}

TEST_F(LettersTest, LetterCarriesTheEventWhereItLiesAndWhen) {
  Write("another", "z");
  Write("shop", "a");
  const auto next = ReadLetters(
      Options(), {"dead", "shop", 0},
      [](const StoredLetter& stored) {
        EXPECT_EQ(stored.offset, 1);
        EXPECT_GT(stored.timestamp_ms, 1'600'000'000'000);
        EXPECT_EQ(stored.key, "key");
        EXPECT_EQ(stored.value, "value of a");
        EXPECT_EQ(envelope::EventHeaders(stored.headers).size(), 1U);
        return absl::CancelledError("enough");
      },
      kTimeout);
  EXPECT_EQ(next.status().code(), absl::StatusCode::kCancelled) << "what the callback returns";
}

TEST_F(LettersTest, UnreadableLetterOfThePipelineIsDataLossAndAnothersIsNoConcern) {
  const auto write = [this](std::string_view pipeline) {
    const std::vector<RecordHeader> headers = {{"walpost-dlq", "of-a-later-version"},
                                               {"walpost-dlq-pipeline", pipeline}};
    Record record;
    record.topic = "dead";
    record.headers = headers;
    WriteRecord(record);
  };
  write("another");
  EXPECT_THAT(Read(), ElementsAre());
  write("shop");
  const absl::Status failed = Fail();
  EXPECT_EQ(failed.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("topic 'dead', offset 1"));
}

TEST_F(LettersTest, TopicOfSeveralPartitionsIsRefused) {
  mock_.CreateTopic("several", 2);
  EXPECT_EQ(Fail({"several", "shop", 0}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(LettersTest, TopicThatEndsBeforeWhatWasReadIsRefused) {
  Write("shop", "a");
  EXPECT_EQ(Fail({"dead", "shop", 2}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(LettersTest, MissingTopicAndMissingRightAreToldApart) {
  mock_.FailTopic("missing", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  EXPECT_EQ(Fail({"missing", "shop", 0}).code(), absl::StatusCode::kNotFound);
  mock_.FailTopic("denied", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  EXPECT_EQ(Fail({"denied", "shop", 0}).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(LettersTest, KafkaThatIsAwayIsNoVerdict) {
  mock_.SetDown(true);
  EXPECT_EQ(Fail({"dead", "shop", 0}, milliseconds(500)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(LettersTest, WrittenRecordIsAcknowledgedWithItsOffset) {
  Record record;
  record.topic = "dead";
  EXPECT_EQ(writer_.Write(record, {}).value_or(-1), 0);
  EXPECT_EQ(writer_.Write(record, {}).value_or(-1), 1);
}

TEST_F(LettersTest, RecordThatTheTopicDoesNotTakeIsRefusedAndTheNextIsWritten) {
  Record record;
  record.topic = "dead";
  mock_.FailProduce({RD_KAFKA_RESP_ERR_INVALID_RECORD});
  EXPECT_EQ(writer_.Write(record, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(writer_.Write(record, {}).ok());
  record.partition = 1;
  EXPECT_EQ(writer_.Write(record, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(LettersTest, RecordWithoutAnAnswerIsGivenUpInTimeAndTheNextIsWritten) {
  RecordWriter impatient(Options(), milliseconds(500));
  Record record;
  record.topic = "dead";
  ASSERT_TRUE(impatient.Write(record, {}).ok());
  mock_.SetDown(true);
  EXPECT_EQ(impatient.Write(record, {}).status().code(), absl::StatusCode::kUnavailable);
  mock_.SetDown(false);
  absl::Status again = absl::UnavailableError("");
  for (int i = 0; i < 20 && !again.ok(); ++i) {  // it is impatient
    again = impatient.Write(record, {}).status();
  }
  EXPECT_TRUE(again.ok()) << again;
}

}  // namespace
}  // namespace walpost::kafka
