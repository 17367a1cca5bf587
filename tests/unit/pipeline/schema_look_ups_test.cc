// Which schemas are asked for, in which order, and what answers that say nothing about a schema
// decide.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "pipeline/schema_look_ups.h"

namespace walpost::pipeline {
namespace {

using envelope::Schema;
using envelope::SchemaNeed;
using envelope::SchemaTable;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint32_t kMine = 0;
constexpr std::uint32_t kOther = 1;
constexpr milliseconds kBackOff{100};
constexpr milliseconds kRefresh{60'000};

class SchemaLookUpsTest : public ::testing::Test {
 protected:
  void Need(const std::string& subject, std::uint32_t source = kMine) {
    needs_[subject] = SchemaNeed{.framing = envelope::Framing::kPayload,
                                 .type = envelope::SchemaType::kJson,
                                 .subject = subject,
                                 .record = "",
                                 .source = source};
    Use(subject);
  }

  void Use(const std::string& subject) { look_ups_.table()->Use(RefOf(subject)); }

  SchemaTable::State StateOf(const std::string& subject) {
    return look_ups_.table()->entry(RefOf(subject)).state;
  }

  bool Rejected(const std::string& subject) {
    return StateOf(subject) == SchemaTable::State::kRejected;
  }

  // The subjects that were asked for; of no more than `most` there is an answer.
  std::vector<std::string> Answer(std::size_t most = SchemaLookUps::kNeedsMax) {
    std::vector<std::string> asked;
    if (const auto look_up = look_ups_.Take(now_)) {
      SchemaAnswers answers;
      for (const auto& [ref, need] : look_up->needs) {
        asked.push_back(need.subject);
        if (answers.size() < most) {
          answers.push_back(answer_[need.subject]);
        }
      }
      look_ups_.OnAnswers(*look_up, answers, now_);
    }
    return asked;
  }

  // Until it is rejected, and each answer takes so long.
  milliseconds AwaitRejection(const std::string& subject, milliseconds step) {
    const base::MonotonicTime since = now_.mono;
    while (!Rejected(subject) && now_.mono - since < std::chrono::hours(1)) {
      Answer();
      Advance(step);
    }
    return std::chrono::duration_cast<milliseconds>(now_.mono - since);
  }

  void Advance(milliseconds time) { now_.mono += time; }

  static absl::StatusOr<Schema> Known() { return Schema{7, std::nullopt, {}, /*fixed=*/true}; }

  static absl::Status Unclear() { return absl::AbortedError("not about that one"); }

  SchemaTable::Ref RefOf(const std::string& subject) {
    return look_ups_.table()->RefOf(needs_.at(subject));
  }

  base::Now now_{base::MonotonicTime(std::chrono::hours(1)), base::WallTime()};
  SchemaLookUps look_ups_{kRefresh, {kBackOff, kBackOff, kBackOff}, /*seed=*/1};
  std::map<std::string, SchemaNeed> needs_;

  struct Answers : std::map<std::string, absl::StatusOr<Schema>> {
    absl::StatusOr<Schema>& operator[](const std::string& subject) {
      return try_emplace(subject, Unclear()).first->second;
    }
  };

  Answers answer_;  // to each subject; unclear where nothing is said
};

TEST_F(SchemaLookUpsTest, SchemaThatIsNeededDuringALookUpIsAskedForNext) {
  answer_["first"] = answer_["next"] = Known();
  Need("first");
  const auto look_up = look_ups_.Take(now_);
  ASSERT_TRUE(look_up);
  Need("next");
  EXPECT_FALSE(look_ups_.Take(now_));
  look_ups_.OnAnswers(*look_up, {Known()}, now_);
  EXPECT_THAT(Answer(), ElementsAre("next"));
}

// What is known of each must not move meanwhile: ASan sees it.
TEST_F(SchemaLookUpsTest, ManySchemasAreNeededDuringALookUpThatIsUnclear) {
  Need("bad");
  AwaitRejection("bad", SchemaLookUps::kLookEvery);
  Advance(2 * SchemaLookUps::kUnclearKept);
  Need("next");
  const auto look_up = look_ups_.Take(now_);
  ASSERT_TRUE(look_up);
  for (int i = 0; i < 10'000; ++i) {
    Need("new" + std::to_string(i));
  }
  look_ups_.OnAnswers(*look_up, {Unclear()}, now_);
  Advance(SchemaLookUps::kLookEvery);
  EXPECT_THAT(Answer(), ::testing::Contains("next"));
  EXPECT_FALSE(Rejected("next")) << "the minute began again";
}

// Who writes events chooses names that are rejected without the registry.
TEST_F(SchemaLookUpsTest, RejectionsWithoutTheRegistryAreNoAnswersOfIt) {
  answer_["away"] = absl::UnavailableError("away");
  Need("away");
  std::size_t asked = 0;
  const base::MonotonicTime since = now_.mono;
  for (int i = 0; i < 1'000; ++i) {
    const std::string invalid = "invalid" + std::to_string(i);
    answer_[invalid] = absl::OutOfRangeError("no name");
    Need(invalid, kOther);
    const std::vector<std::string> subjects = Answer();
    asked += static_cast<std::size_t>(std::count(subjects.begin(), subjects.end(), "away"));
    EXPECT_EQ(look_ups_.trouble(), "away");
    Advance(milliseconds(20));
  }
  EXPECT_LE(asked * kBackOff, now_.mono - since + kBackOff);
}

TEST_F(SchemaLookUpsTest, ResumeAsksAtOnceForWhatWaitsForTheRegistry) {
  answer_["away"] = absl::UnavailableError("away");
  Need("away");
  EXPECT_THAT(Answer(), ElementsAre("away"));
  EXPECT_THAT(Answer(), IsEmpty());
  look_ups_.Resume(now_);
  EXPECT_THAT(Answer(), ElementsAre("away"));
}

TEST_F(SchemaLookUpsTest, UnclearAnswersDecideAfterAMinute) {
  Need("bad");
  EXPECT_THAT(Answer(), ElementsAre("bad"));
  EXPECT_EQ(look_ups_.trouble(), "not about that one");
  EXPECT_THAT(Answer(), IsEmpty()) << "not again at once";
  EXPECT_EQ(AwaitRejection("bad", SchemaLookUps::kLookEvery),
            SchemaLookUps::kUnclearFor + SchemaLookUps::kLookEvery);
  EXPECT_TRUE(look_ups_.table()->entry(RefOf("bad")).unclear);
  EXPECT_EQ(look_ups_.trouble(), "");
}

// Each change of it is a line of the log.
TEST_F(SchemaLookUpsTest, TroubleNamesTheFirstForAMinute) {
  answer_["bad"] = absl::AbortedError("not about bad");
  answer_["next"] = absl::AbortedError("not about next");
  Need("bad");
  Answer();
  Need("next");
  for (int i = 0; i < 10; ++i) {
    Answer();
    EXPECT_EQ(look_ups_.trouble(), "not about bad");
    Advance(SchemaLookUps::kLookEvery);
  }
  answer_["bad"] = absl::UnavailableError("away");
  while (look_ups_.trouble() == "not about bad") {
    Answer();
    Advance(SchemaLookUps::kLookEvery);
  }
  EXPECT_EQ(look_ups_.trouble(), "away");
  answer_["bad"] = Known();
  while (look_ups_.trouble() == "away") {
    Answer();
    Advance(SchemaLookUps::kLookEvery);
  }
  EXPECT_EQ(look_ups_.trouble(), "not about next");
}

TEST_F(SchemaLookUpsTest, TimeWithoutAnswersDecidesNothing) {
  Need("bad");
  Answer();
  for (int i = 0; i < 5; ++i) {  // as of a process that was suspended
    Advance(SchemaLookUps::kUnclearFor);
    EXPECT_THAT(Answer(), ElementsAre("bad"));
    EXPECT_FALSE(Rejected("bad"));
  }
}

TEST_F(SchemaLookUpsTest, MinuteOfASourceIsOverThenThreeAnswersDecide) {
  Need("bad");
  AwaitRejection("bad", SchemaLookUps::kLookEvery);
  Need("next");
  EXPECT_EQ(AwaitRejection("next", SchemaLookUps::kLookEvery),
            SchemaLookUps::kUnclearAnswers * SchemaLookUps::kLookEvery);
  Need("of another source", kOther);
  EXPECT_GE(AwaitRejection("of another source", SchemaLookUps::kLookEvery),
            SchemaLookUps::kUnclearFor);
}

TEST_F(SchemaLookUpsTest, MinuteBeginsAgainWhereUnclearAnswersPass) {
  Need("bad");
  AwaitRejection("bad", SchemaLookUps::kLookEvery);
  Need("good");
  Answer();
  answer_["good"] = Known();
  Advance(SchemaLookUps::kLookEvery);
  Answer();
  EXPECT_EQ(StateOf("good"), SchemaTable::State::kKnown);
  Need("next");
  EXPECT_GE(AwaitRejection("next", SchemaLookUps::kLookEvery), SchemaLookUps::kUnclearFor);
}

// Who writes events may also be who decides what the registry answers about some names.
TEST_F(SchemaLookUpsTest, MinuteGoesOnWhereOthersAreUnclearNoMore) {
  Need("bad");
  const base::MonotonicTime since = now_.mono;
  for (int i = 0; !Rejected("bad") && i < 100; ++i) {
    const std::string own = "own" + std::to_string(i);
    answer_[own] = Unclear();
    Need(own);
    for (int second = 0; second < 10; ++second) {
      Answer();
      Advance(SchemaLookUps::kLookEvery);
    }
    answer_[own] = Known();
  }
  EXPECT_LE(now_.mono - since, 2 * SchemaLookUps::kUnclearFor);
}

TEST_F(SchemaLookUpsTest, SchemasThatAreKnownAtOnceDoNotLengthenTheMinute) {
  Need("bad");
  const auto waited = [this] { return StateOf("bad") == SchemaTable::State::kUnknown; };
  const base::MonotonicTime since = now_.mono;
  for (int i = 0; waited() && i < 1'000; ++i) {
    const std::string good = "good" + std::to_string(i);
    answer_[good] = Known();
    Need(good);
    Answer();
    Advance(SchemaLookUps::kLookEvery);
  }
  EXPECT_EQ(now_.mono - since, SchemaLookUps::kUnclearFor + SchemaLookUps::kLookEvery);
}

TEST_F(SchemaLookUpsTest, MinuteBeginsAgainAfterALongTime) {
  Need("bad");
  AwaitRejection("bad", SchemaLookUps::kLookEvery);
  Advance(SchemaLookUps::kUnclearKept);
  Need("next");
  EXPECT_GE(AwaitRejection("next", SchemaLookUps::kLookEvery), SchemaLookUps::kUnclearFor);
}

TEST_F(SchemaLookUpsTest, QuestionThatFailsAfterALongTimeIsAnOutage) {
  Need("bad");
  AwaitRejection("bad", SchemaLookUps::kLookEvery);
  Need("good");
  for (int i = 0; i < 2 * SchemaLookUps::kUnclearAnswers; ++i) {
    Answer();
    Advance(SchemaLookUps::kLookEvery);
    const auto look_up = look_ups_.Take(now_);
    ASSERT_TRUE(look_up);
    Advance(SchemaLookUps::kAwayMin);
    look_ups_.OnAnswers(*look_up, {absl::UnavailableError("timed out")}, now_);
    Advance(SchemaLookUps::kLookEvery);
  }
  EXPECT_FALSE(Rejected("good"));
}

TEST_F(SchemaLookUpsTest, EverySecondQuestionFailsThenTheMinuteTakesTwo) {
  Need("bad");
  const base::MonotonicTime since = now_.mono;
  for (int i = 0; !Rejected("bad") && i < 1'000; ++i) {
    answer_["bad"] = i % 2 == 0 ? absl::StatusOr<Schema>(Unclear())
                                : absl::UnavailableError("too many requests");
    Answer();
    Advance(SchemaLookUps::kLookEvery);
  }
  EXPECT_LE(now_.mono - since, 2 * SchemaLookUps::kUnclearFor + 2 * SchemaLookUps::kLookEvery);
}

TEST_F(SchemaLookUpsTest, SlowAnswersTakeNoEndlessTime) {
  constexpr int kSources = 40;
  constexpr milliseconds kAnswer{20'000};
  for (int i = 0; i < kSources; ++i) {
    Need("bad" + std::to_string(i), static_cast<std::uint32_t>(i));
  }
  const auto any_waits = [this] { return !look_ups_.table()->wanted().empty(); };
  const base::MonotonicTime since = now_.mono;
  while (any_waits() && now_.mono - since < std::chrono::hours(24)) {
    Answer(/*most=*/1);
    Advance(kAnswer);
  }
  EXPECT_LT(now_.mono - since, (SchemaLookUps::kUnclearAnswers + 1) * kSources * kAnswer);
}

TEST_F(SchemaLookUpsTest, UnclearAnswersWithAnOutageBetweenThemDecideNothing) {
  Need("bad");
  AwaitRejection("bad", SchemaLookUps::kLookEvery);
  Need("good");
  for (int i = 0; i < 2 * SchemaLookUps::kUnclearAnswers; ++i) {
    answer_["good"] = Unclear();
    EXPECT_THAT(Answer(), ElementsAre("good"));
    answer_["good"] = absl::UnavailableError("away");
    for (int second = 0; second < 8; ++second) {
      Advance(SchemaLookUps::kLookEvery);
      Answer();
    }
    Advance(SchemaLookUps::kLookEvery);
  }
  EXPECT_FALSE(Rejected("good"));
}

// As of a registry that limits requests: who writes events could use them up.
TEST_F(SchemaLookUpsTest, MinuteGoesOnAfterAnswersThatFail) {
  Need("bad");
  const base::MonotonicTime since = now_.mono;
  for (int i = 0; !Rejected("bad") && i < 1'000; ++i) {
    const std::string other = "other" + std::to_string(i);
    answer_[other] = absl::UnavailableError("too many requests");
    Need(other, kOther);
    Answer();
    answer_[other] = Known();
    Advance(kBackOff);
    Answer();
    Advance(SchemaLookUps::kLookEvery);
  }
  EXPECT_LT(now_.mono - since, 2 * SchemaLookUps::kUnclearFor);
}

TEST_F(SchemaLookUpsTest, SchemaThatTheRegistryCannotAnswerAboutLetsOthersGoFirst) {
  answer_["endless"] = absl::UnavailableError("timed out");
  Need("endless");
  EXPECT_THAT(Answer(), ElementsAre("endless"));
  answer_["good"] = answer_["other's"] = Known();
  Need("good");
  Need("other's", kOther);
  for (int i = 0; i < 2; ++i) {
    Advance(kBackOff);
    Answer();
  }
  EXPECT_EQ(StateOf("other's"), SchemaTable::State::kKnown);
  EXPECT_EQ(StateOf("good"), SchemaTable::State::kKnown);
}

// Who writes events invents names: this is what they can cost.
TEST_F(SchemaLookUpsTest, ThousandUnclearSchemasTakeAMinuteAndThreeAnswersEach) {
  constexpr int kMany = 1'000;
  constexpr milliseconds kAnswer{40};
  std::set<std::string> waiting;
  for (int i = 0; i < kMany; ++i) {
    Need("bad" + std::to_string(i));
    waiting.insert("bad" + std::to_string(i));
  }
  const base::MonotonicTime since = now_.mono;
  while (!waiting.empty() && now_.mono - since < std::chrono::hours(1)) {
    const std::size_t asked = Answer().size();
    std::erase_if(waiting, [this](const std::string& each) { return Rejected(each); });
    Advance(std::max(SchemaLookUps::kPause, static_cast<int>(asked) * kAnswer));
  }
  EXPECT_LT(now_.mono - since, SchemaLookUps::kUnclearFor +
                                   SchemaLookUps::kUnclearAnswers * SchemaLookUps::kLookEvery *
                                       (kMany / static_cast<int>(SchemaLookUps::kNeedsMax)));
}

TEST_F(SchemaLookUpsTest, WhatWasUnclearIsNotAskedForOftenAgain) {
  for (int i = 0; i < 100; ++i) {
    Need("bad" + std::to_string(i));
    Need("other" + std::to_string(i), kOther);
  }
  std::size_t asked = 0;
  for (int i = 0; i < 100; ++i) {  // for the first time
    asked += Answer().size();
    Advance(SchemaLookUps::kPause);
  }
  EXPECT_LT(asked, 300U);
  asked = 0;
  for (int i = 0; i < 100; ++i) {  // in ten seconds
    asked += Answer().size();
    Advance(SchemaLookUps::kPause);
  }
  EXPECT_LE(asked, 2 * 11U) << "one of each source each second, while nothing can be decided";
  AwaitRejection("bad0", SchemaLookUps::kPause);
  asked = 0;
  for (int i = 0; i < 100; ++i) {
    asked += Answer().size();
    Advance(SchemaLookUps::kPause);
  }
  EXPECT_LE(asked, 11 * SchemaLookUps::kNeedsMax);
}

TEST_F(SchemaLookUpsTest, EachSourceHasItsTurn) {
  for (int i = 0; i < 100; ++i) {
    Need("bad" + std::to_string(i));
  }
  EXPECT_THAT(Answer(), SizeIs(SchemaLookUps::kNeedsMax));
  for (int i = 0; i < 10; ++i) {
    const std::string good = "good" + std::to_string(i);
    answer_[good] = Known();
    Need(good, kOther);
    Answer(/*most=*/1);
    Answer(/*most=*/1);  // where each takes long
    EXPECT_EQ(StateOf(good), SchemaTable::State::kKnown);
  }
}

TEST_F(SchemaLookUpsTest, RefreshHasItsTurn) {
  answer_["orders"] = Schema{7, std::nullopt, {}, /*fixed=*/false};
  Need("orders", kOther);
  Answer();
  Use("orders");
  for (int i = 0; i < 100; ++i) {
    Need("bad" + std::to_string(i));
  }
  Advance(kRefresh);
  std::vector<std::string> asked = {Answer(/*most=*/1).at(0)};
  Advance(SchemaLookUps::kLookEvery);
  asked.push_back(Answer(/*most=*/1).at(0));
  EXPECT_THAT(asked, ::testing::Contains("orders"));
}

TEST_F(SchemaLookUpsTest, NewSchemaOfTheSameSourceWaitsForNoMoreThanOneRound) {
  constexpr int kMany = 64;
  for (int i = 0; i < kMany; ++i) {
    Need("bad" + std::to_string(i));
  }
  Answer();
  answer_["good"] = Known();
  Need("good");
  for (int i = 0; i <= kMany / static_cast<int>(SchemaLookUps::kNeedsMax); ++i) {
    Advance(SchemaLookUps::kLookEvery);
    Answer();
  }
  EXPECT_EQ(StateOf("good"), SchemaTable::State::kKnown);
}

TEST_F(SchemaLookUpsTest, UnclearAnswerToARefreshIsNoTroubleAndCountsForNothing) {
  answer_["orders"] = Schema{7, std::nullopt, {}, /*fixed=*/false};
  Need("orders");
  Answer();
  answer_["orders"] = Unclear();
  for (int i = 0; i < 200; ++i) {
    Use("orders");
    Advance(SchemaLookUps::kLookEvery);
    Answer();
    ASSERT_EQ(look_ups_.trouble(), "");
    ASSERT_EQ(StateOf("orders"), SchemaTable::State::kKnown);
  }
  Need("bad");
  EXPECT_GE(AwaitRejection("bad", SchemaLookUps::kLookEvery), SchemaLookUps::kUnclearFor);
}

}  // namespace
}  // namespace walpost::pipeline
