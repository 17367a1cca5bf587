#include "envelope/letter_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace walpost::envelope {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Position At(std::uint64_t lsn) { return Position{7, 1, base::Lsn(lsn), 0}; }

class LetterLogTest : public ::testing::Test {
 protected:
  // Offsets are 0, 1, 2, ...
  std::int64_t Add(LetterKind kind, std::optional<std::string_view> key, Letter letter) {
    letter.kind = kind;
    letter.topic = "orders";
    const absl::Status added = log_.Add(next_, key, letter);
    EXPECT_TRUE(added.ok()) << added;
    return next_++;
  }

  std::int64_t AddLetter(std::uint64_t lsn, std::optional<std::string_view> key = "k") {
    return Add(LetterKind::kLetter, key, OfEvent(lsn));
  }

  std::int64_t AddParked(std::uint64_t lsn, std::string_view key = "k") {
    return Add(LetterKind::kParked, key, OfEvent(lsn));
  }

  std::int64_t AddCommand(LetterAction action, std::string_view key = "k") {
    Letter letter;
    letter.action = action;
    return Add(LetterKind::kCommand, key, letter);
  }

  std::int64_t DecideOne(std::uint64_t lsn, std::optional<std::string_view> key = "k",
                         LetterAction action = LetterAction::kDelivered) {
    Letter letter = OfEvent(lsn);
    letter.action = action;
    return Add(LetterKind::kDecision, key, letter);
  }

  std::int64_t DecideThrough(std::uint64_t lsn, std::string_view key = "k",
                             std::optional<std::int64_t> answers = std::nullopt) {
    Letter letter;
    letter.action = LetterAction::kDelivered;
    letter.through = At(lsn).ToString();
    letter.answers = answers;
    return Add(LetterKind::kDecision, key, letter);
  }

  static Letter OfEvent(std::uint64_t lsn) {
    Letter letter;
    letter.position = At(lsn).ToString();
    return letter;
  }

  bool IsUndecided(std::int64_t offset, std::uint64_t lsn, std::string_view key = "k") const {
    Letter letter = OfEvent(lsn);
    letter.topic = "orders";
    return log_.IsUndecided(offset, key, letter);
  }

  // The offsets of a key's parked events, in stream order.
  std::vector<std::int64_t> Parked(std::string_view key = "k") const {
    std::vector<std::int64_t> offsets;
    if (const LetterLog::ParkedKey* parked = log_.FindParked("orders", key); parked != nullptr) {
      for (const auto& [position, offset] : parked->events) {
        offsets.push_back(offset);
      }
    }
    return offsets;
  }

  LetterLog log_{/*keep_decided=*/true};
  std::int64_t next_ = 0;
};

TEST_F(LetterLogTest, LetterIsUndecidedUntilItIsDecidedAndParksNothing) {
  const std::int64_t first = AddLetter(10);
  AddLetter(20);
  EXPECT_TRUE(IsUndecided(first, 10));
  EXPECT_EQ(log_.FindParked("orders", "k"), nullptr);
  DecideOne(10);
  EXPECT_FALSE(IsUndecided(first, 10));
  EXPECT_EQ(log_.letters().size(), 1U);
}

TEST_F(LetterLogTest, LetterWithoutKeyIsDecidedByItsPosition) {
  AddLetter(10, std::nullopt);
  DecideOne(10, std::nullopt);
  EXPECT_TRUE(log_.letters().empty());
}

TEST_F(LetterLogTest, RepeatOfALetterIsTheSameEvent) {
  const std::int64_t first = AddLetter(10);
  const std::int64_t second = AddLetter(10);
  EXPECT_EQ(log_.letters().size(), 1U);
  EXPECT_TRUE(IsUndecided(first, 10));
  EXPECT_FALSE(IsUndecided(second, 10)) << "listed once";
}

TEST_F(LetterLogTest, KeyIsParkedUntilItsLastEventIsDecided) {
  AddParked(10);
  AddParked(20);
  AddParked(15, "other");
  EXPECT_THAT(Parked(), ElementsAre(0, 1));
  EXPECT_EQ(log_.FindParked("orders", "k")->LastPosition(), At(20));
  EXPECT_EQ(log_.FindParked("elsewhere", "k"), nullptr) << "a key is one of a topic";
  DecideThrough(10);
  EXPECT_THAT(Parked(), ElementsAre(1));
  DecideThrough(20);
  EXPECT_EQ(log_.FindParked("orders", "k"), nullptr);
  EXPECT_THAT(Parked("other"), ElementsAre(2));
}

TEST_F(LetterLogTest, DecisionThroughAPositionLeavesWhatIsParkedLater) {
  AddParked(10);
  AddParked(20);
  DecideThrough(20);
  AddParked(30);
  EXPECT_THAT(Parked(), ElementsAre(3));
  EXPECT_EQ(log_.FindParked("orders", "k")->FirstOffset(), 3);
}

TEST_F(LetterLogTest, DecisionIsAboutWhatStandsBeforeIt) {
  AddParked(10);
  DecideThrough(20);
  const std::int64_t again = AddParked(10);  // the crash was before the confirm
  EXPECT_TRUE(IsUndecided(again, 10)) << "it is there again, so it is sent again";
}

TEST_F(LetterLogTest, RepeatsAfterACrashAreTheSameEventsWhereverTheyStand) {
  AddParked(10);
  AddParked(20);
  DecideThrough(10);
  AddParked(10);
  AddParked(20);
  AddParked(30);
  EXPECT_THAT(Parked(), ElementsAre(3, 1, 5));
  EXPECT_EQ(log_.FindParked("orders", "k")->FirstOffset(), 1);
}

TEST_F(LetterLogTest, DecisionOfOneParkedEventLeavesTheOthers) {
  AddParked(10);
  AddParked(20);
  AddParked(30);
  DecideOne(20, "k", LetterAction::kDiscarded);
  EXPECT_THAT(Parked(), ElementsAre(0, 2));
}

TEST_F(LetterLogTest, EventIsParkedWhicheverPolicySawItFirst) {
  AddLetter(10);
  AddParked(10);
  EXPECT_TRUE(log_.letters().empty());
  AddLetter(10);
  EXPECT_TRUE(log_.letters().empty());
  EXPECT_THAT(Parked(), ElementsAre(1));
}

TEST_F(LetterLogTest, CommandWaitsUntilItIsAnsweredWhateverTheAnswer) {
  AddParked(10);
  const std::int64_t retry = AddCommand(LetterAction::kRetry);
  const std::int64_t discard = AddCommand(LetterAction::kDiscard, "other");
  ASSERT_EQ(log_.pending().size(), 2U);
  EXPECT_EQ(log_.pending().at(retry).action, LetterAction::kRetry);
  EXPECT_EQ(log_.pending().at(retry).key, (LetterLog::Key{"orders", "k"}));
  EXPECT_FALSE(log_.pending().at(retry).position);
  DecideThrough(10, "k", retry);
  EXPECT_EQ(log_.pending().count(retry), 0U);
  Letter failed;
  failed.action = LetterAction::kFailed;
  failed.answers = discard;
  Add(LetterKind::kDecision, "other", failed);
  EXPECT_TRUE(log_.pending().empty());
}

TEST_F(LetterLogTest, FailedDecidesNothing) {
  AddLetter(5);
  AddParked(10);
  DecideOne(5, "k", LetterAction::kFailed);
  DecideOne(10, "k", LetterAction::kFailed);
  EXPECT_EQ(log_.letters().size(), 1U);
  EXPECT_THAT(Parked(), ElementsAre(1));
}

TEST_F(LetterLogTest, CommandMayBeAboutOneEvent) {
  Letter letter = OfEvent(10);
  letter.action = LetterAction::kDiscard;
  const std::int64_t offset = Add(LetterKind::kCommand, "k", letter);
  EXPECT_EQ(log_.pending().at(offset).position, At(10));
}

TEST_F(LetterLogTest, WhatWasDecidedIsKeptWhenAskedFor) {
  AddLetter(5);
  AddParked(10);
  AddParked(20);
  const std::int64_t one = DecideOne(5, "k", LetterAction::kDiscarded);
  const std::int64_t all = DecideThrough(20);
  ASSERT_NE(log_.FindDecision(0), nullptr);
  EXPECT_EQ(log_.FindDecision(0)->action, LetterAction::kDiscarded);
  EXPECT_EQ(log_.FindDecision(0)->offset, one);
  EXPECT_EQ(log_.FindDecision(2)->offset, all);
  LetterLog forgetful;
  Letter letter = OfEvent(5);
  ASSERT_TRUE(forgetful.Add(0, "k", letter).ok());
  letter.kind = LetterKind::kDecision;
  letter.action = LetterAction::kDelivered;
  ASSERT_TRUE(forgetful.Add(1, "k", letter).ok());
  EXPECT_EQ(forgetful.FindDecision(0), nullptr);
}

TEST_F(LetterLogTest, RecordThatLacksWhatItMustHaveIsDataLoss) {
  Letter letter;
  EXPECT_EQ(log_.Add(0, "k", letter).code(), absl::StatusCode::kDataLoss);
  letter = OfEvent(1);
  letter.kind = LetterKind::kParked;
  EXPECT_EQ(log_.Add(0, std::nullopt, letter).code(), absl::StatusCode::kDataLoss);
  letter.kind = LetterKind::kDecision;
  letter.through = "x";
  EXPECT_EQ(log_.Add(0, "k", letter).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace walpost::envelope
