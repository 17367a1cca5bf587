#include "runtime/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "kafka/bulk_writer.h"
#include "kafka/progress.h"
#include "support/mock_kafka.h"
#include "walpost/v1/progress.pb.h"

namespace walpost::runtime {
namespace {

using base::HaltReason;
using base::Lsn;
using base::Progress;
using base::StreamEnd;
using ::testing::HasSubstr;

class GuardTest : public ::testing::Test {
 protected:
  GuardTest() {
    options_.name = "shop";
    options_.pipeline.progress_topic = "progress";
    options_.kafka.properties = {{"bootstrap.servers", mock_.bootstrap()}};
    facts_.system_identifier = 77;
    facts_.confirmed_flush_lsn = Lsn(0x400);
  }

  static Progress At(std::uint64_t lsn) {
    Progress progress;
    progress.system_identifier = 77;
    progress.end_lsn = Lsn(lsn);
    return progress;
  }

  void Write(const Progress& progress) {
    ASSERT_TRUE(
        kafka::WriteProgress(options_.kafka, {"progress", "shop"}, progress, kReadProgressWithin)
            .ok());
  }

  static std::string OfANewerFormat(std::uint64_t epoch) {
    v1::Progress newer;
    newer.set_format(2);
    newer.set_epoch(epoch);
    return newer.SerializeAsString();
  }

  // A record with the pipeline's key that need not be progress.
  void WriteBytes(const std::string& value) {
    envelope::Record record;
    record.topic = "progress";
    record.key = "shop";
    record.value = value;
    kafka::BulkWriter writer(options_.kafka, kReadProgressWithin,
                             [](const std::string&, const absl::Status& why) { return why; });
    ASSERT_TRUE(writer.Write(record).ok());
    ASSERT_TRUE(writer.Flush().ok());
  }

  std::optional<StreamEnd> Ask(std::optional<Progress> known = std::nullopt) {
    return MakeGuard(options_, std::move(known), history_)(&facts_);
  }

  void ExpectHalt(const std::optional<StreamEnd>& end, HaltReason reason,
                  const std::string& detail) {
    ASSERT_TRUE(end);
    EXPECT_EQ(end->kind, StreamEnd::Kind::kOperator);
    EXPECT_EQ(end->reason, reason);
    EXPECT_THAT(std::string(end->status.message()), HasSubstr(detail));
    EXPECT_FALSE(facts_.progress);
  }

  walpost::testing::MockKafka mock_;
  RunOptions options_;
  std::shared_ptr<GuardHistory> history_ = std::make_shared<GuardHistory>();
  base::SourceFacts facts_;
};

TEST_F(GuardTest, NoTopicIsNoGuard) {
  options_.pipeline.progress_topic = "";
  EXPECT_EQ(MakeGuard(options_, std::nullopt, history_), nullptr);
}

TEST_F(GuardTest, WhatIsRememberedIsAddedToTheFacts) {
  mock_.CreateTopic("progress", 1);
  Write(At(0x500));
  EXPECT_FALSE(Ask());
  ASSERT_TRUE(facts_.progress);
  EXPECT_EQ(facts_.progress->end_lsn, Lsn(0x500));
}

TEST_F(GuardTest, FirstStartIsLetThrough) {
  mock_.CreateTopic("progress", 1);
  EXPECT_FALSE(Ask());
  EXPECT_FALSE(facts_.progress);
}

TEST_F(GuardTest, SlotThatWasMovedEndsTheAttempt) {
  mock_.CreateTopic("progress", 1);
  Write(At(0x300));
  ExpectHalt(Ask(), HaltReason::kSlotMoved, "0/300");
}

TEST_F(GuardTest, StandbyOnAnOlderTimelineIsTriedAgain) {
  mock_.CreateTopic("progress", 1);
  Progress newer = At(0x400);
  newer.timeline = 2;
  Write(newer);
  facts_.in_recovery = true;
  const std::optional<StreamEnd> end = Ask();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, StreamEnd::Kind::kLost);
  EXPECT_FALSE(facts_.progress);
}

TEST_F(GuardTest, MissingTopicIsUnreadableAndNamesInit) {
  mock_.FailTopic("progress", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  ExpectHalt(Ask(), HaltReason::kProgressUnreadable, "`walpost init`");
}

TEST_F(GuardTest, MissingRightIsUnreadable) {
  mock_.FailTopic("progress", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  ExpectHalt(Ask(), HaltReason::kProgressUnreadable, "authoriz");
}

// Another process may have gone on meanwhile.
TEST_F(GuardTest, KafkaThatIsAwayIsAwaitedWhateverThisProcessKnows) {
  options_.kafka.properties = {{"bootstrap.servers", "127.0.0.1:1"}};
  const std::optional<StreamEnd> end = Ask(At(0x400));
  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, StreamEnd::Kind::kLost);
  EXPECT_FALSE(facts_.progress);
}

// Brokers may learn late of it, and this process has read the topic before.
TEST_F(GuardTest, MissingRightMayPassWhereThisProcessKnowsEnough) {
  mock_.FailTopic("progress", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  const std::optional<StreamEnd> end = Ask(At(0x400));
  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, StreamEnd::Kind::kLost);
  EXPECT_FALSE(facts_.progress);
  history_->denying = kDeniedMax;
  ExpectHalt(Ask(At(0x400)), HaltReason::kProgressUnreadable, "authoriz");
}

TEST_F(GuardTest, TimeWithoutAnAnswerAboutTheRightHardlyCounts) {
  mock_.FailTopic("progress", RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
  history_->denied_at = std::chrono::steady_clock::now() - 2 * kDeniedMax;
  EXPECT_EQ(Ask(At(0x400))->kind, StreamEnd::Kind::kLost);
  EXPECT_EQ(history_->denying, kDenyingMax);
}

TEST_F(GuardTest, TopicInWhichNothingCanBeReadIsKnownStill) {
  mock_.CreateTopic("progress", 1);
  WriteBytes("no progress");
  EXPECT_FALSE(Ask(At(0x400)));
  ASSERT_TRUE(facts_.progress);
  EXPECT_EQ(facts_.progress->end_lsn, Lsn(0x400));
}

TEST_F(GuardTest, SlowKafkaGetsMoreTimeForEachAttempt) {
  options_.kafka.properties = {{"bootstrap.servers", "127.0.0.1:1"}};
  history_->read_within = std::chrono::milliseconds(6'000);
  EXPECT_TRUE(Ask());
  EXPECT_EQ(history_->read_within, std::chrono::milliseconds(12'000));
  mock_.CreateTopic("progress", 1);
  options_.kafka.properties = {{"bootstrap.servers", mock_.bootstrap()}};
  history_->read_within = kReadProgressWithinMax;
  EXPECT_FALSE(Ask());
  EXPECT_EQ(history_->read_within, kReadProgressWithin) << "it is slow no more";
}

// A newer walpost has gone on: what this one knows is of before.
TEST_F(GuardTest, RecordOfANewerFormatIsNotPassedOver) {
  mock_.CreateTopic("progress", 1);
  Write(At(0x400));
  WriteBytes(OfANewerFormat(0));
  ExpectHalt(Ask(At(0x400)), HaltReason::kProgressUnreadable, "newer");
}

// Compaction has removed the record of this process.
TEST_F(GuardTest, LateRecordOfANewerFormatDoesNotOverruleWhatThisProcessKnows) {
  mock_.CreateTopic("progress", 1);
  WriteBytes(OfANewerFormat(4));
  Progress known = At(0x400);
  known.epoch = 5;
  EXPECT_FALSE(Ask(known));
  ASSERT_TRUE(facts_.progress);
  EXPECT_EQ(facts_.progress->epoch, 5U);
}

TEST_F(GuardTest, TopicThatIsGoneIsKnownStill) {
  mock_.FailTopic("progress", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  EXPECT_FALSE(Ask(At(0x400)));
  ASSERT_TRUE(facts_.progress);
  EXPECT_EQ(facts_.progress->end_lsn, Lsn(0x400));
}

TEST_F(GuardTest, DecisionSinceCountsForMoreThanWhatThisProcessKnows) {
  mock_.CreateTopic("progress", 1);
  Progress decision = At(0x400);
  decision.epoch = 1;
  Write(decision);
  Write(At(0x480));
  EXPECT_FALSE(Ask(At(0x480)));
  ASSERT_TRUE(facts_.progress);
  EXPECT_EQ(facts_.progress->epoch, 1u);
  EXPECT_EQ(facts_.progress->end_lsn, Lsn(0x400));
}

TEST_F(GuardTest, WhatIsWrittenMeanwhileByThisProcessDoesNotCount) {
  mock_.CreateTopic("progress", 1);
  Write(At(0x500));
  EXPECT_FALSE(Ask(At(0x480)));
  ASSERT_TRUE(facts_.progress);
  EXPECT_EQ(facts_.progress->end_lsn, Lsn(0x480));
}

TEST_F(GuardTest, SlotAboveWhatThisProcessKnowsIsLookedUp) {
  mock_.CreateTopic("progress", 1);
  Write(At(0x450));  // by an instance that streamed meanwhile
  EXPECT_FALSE(Ask(At(0x3ff)));
  ASSERT_TRUE(facts_.progress);
  EXPECT_EQ(facts_.progress->end_lsn, Lsn(0x450));
}

}  // namespace
}  // namespace walpost::runtime
