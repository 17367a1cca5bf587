#include "runtime/helper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace walpost::runtime {
namespace {

using ::testing::ElementsAre;

bool Readable(const Helper& helper, int timeout_ms) {
  pollfd descriptor{helper.fd(), POLLIN, 0};
  return poll(&descriptor, 1, timeout_ms) == 1;
}

TEST(HelperTest, WorkRunsElsewhereAndDoneOnTheLoop) {
  Helper helper;
  std::thread::id worked;
  std::optional<std::thread::id> finished;
  helper.Run(
      Helper::Queue::kSource, [&worked] { worked = std::this_thread::get_id(); },
      [&finished] { finished = std::this_thread::get_id(); });
  ASSERT_TRUE(Readable(helper, 30'000));
  EXPECT_FALSE(finished) << "only RunDone may call it";
  helper.RunDone();
  ASSERT_TRUE(finished);
  EXPECT_EQ(*finished, std::this_thread::get_id());
  EXPECT_NE(worked, std::this_thread::get_id());
}

TEST(HelperTest, JobsRunOneAtATimeInOrder) {
  Helper helper;
  std::vector<int> worked;  // by one thread at a time, so it needs no lock
  std::vector<int> finished;
  for (int i = 0; i < 5; ++i) {
    helper.Run(
        Helper::Queue::kSource, [&worked, i] { worked.push_back(i); },
        [&finished, i] { finished.push_back(i); });
  }
  while (finished.size() < 5) {
    ASSERT_TRUE(Readable(helper, 30'000));
    helper.RunDone();
  }
  EXPECT_THAT(worked, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(finished, ElementsAre(0, 1, 2, 3, 4));
}

TEST(HelperTest, JobThatHangsHoldsUpItsOwnQueueOnly) {
  Helper helper;
  auto release = std::make_shared<std::promise<void>>();
  bool other = false;
  helper.Run(
      Helper::Queue::kSource, [release] { release->get_future().wait(); }, [] {});
  helper.RunnerOf(Helper::Queue::kKafka)->Run([] {}, [&other] { other = true; });
  ASSERT_TRUE(Readable(helper, 30'000));
  helper.RunDone();
  EXPECT_TRUE(other);
  release->set_value();
}

TEST(HelperTest, NothingToDoDoesNotWake) {
  Helper helper;
  EXPECT_FALSE(Readable(helper, 0));
  helper.RunDone();
  helper.Run(
      Helper::Queue::kSource, [] {}, [] {});
  ASSERT_TRUE(Readable(helper, 30'000));
  helper.RunDone();
  EXPECT_FALSE(Readable(helper, 0));
}

TEST(HelperTest, JobMayBeginAnotherFromItsDone) {
  Helper helper;
  bool second = false;
  helper.Run(
      Helper::Queue::kSource, [] {},
      [&] {
        helper.Run(
            Helper::Queue::kSource, [] {}, [&second] { second = true; });
      });
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Readable(helper, 30'000));
    helper.RunDone();
  }
  EXPECT_TRUE(second);
}

TEST(HelperTest, WhatTheJobHoldsIsReleasedByTheHelperNotKeptUntilDone) {
  Helper helper;
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  helper.Run(
      Helper::Queue::kSource, [held = std::move(held)] {}, [] {});
  ASSERT_TRUE(Readable(helper, 30'000));
  EXPECT_TRUE(watch.expired()) << "a producer would outlive its session by a loop turn";
}

TEST(HelperTest, EndForgetsWhatWasFinishedButNotYetServed) {
  bool done = false;
  {
    Helper helper;
    helper.Run(
        Helper::Queue::kSource, [] {}, [&done] { done = true; });
    ASSERT_TRUE(Readable(helper, 30'000));
  }
  EXPECT_FALSE(done) << "whoever it is for may be gone already";
}

TEST(HelperTest, EndWithNothingRunningIsImmediate) {
  const auto start = std::chrono::steady_clock::now();
  { const Helper helper; }
  EXPECT_LT(std::chrono::steady_clock::now() - start, Helper::kPatience);
}

TEST(HelperTest, EndDoesNotWaitForAJobThatHangsAndDropsWhatHadNotBegun) {
  // Owned by the jobs, as the rule for jobs says: they outlive the helper.
  auto release = std::make_shared<std::promise<void>>();
  auto started = std::make_shared<std::promise<void>>();
  auto second_ran = std::make_shared<bool>(false);
  std::promise<void> dropped;
  std::shared_ptr<void> watched(nullptr, [&dropped](void*) { dropped.set_value(); });
  bool done = false;
  const auto start = std::chrono::steady_clock::now();
  {
    Helper helper;
    helper.Run(
        Helper::Queue::kSource,
        [release, started] {
          started->set_value();
          release->get_future().wait();
        },
        [&done] { done = true; });
    helper.Run(
        Helper::Queue::kSource, [second_ran, watched = std::move(watched)] { *second_ran = true; },
        [&done] { done = true; });
    started->get_future().wait();
  }
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, Helper::kPatience);
  EXPECT_LT(took, Helper::kPatience * 5);
  release->set_value();
  dropped.get_future().wait();  // the thread left behind has ended
  EXPECT_FALSE(done);
  EXPECT_FALSE(*second_ran);
}

}  // namespace
}  // namespace walpost::runtime
