#include "observe/rendered.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "unit/observe/sample.h"

namespace walpost::observe {
namespace {

using std::chrono::milliseconds;

class RenderedTest : public ::testing::Test {
 protected:
  std::atomic<int> times_ = 0;
  Rendered rendered_{
      [this](const Snapshot& snapshot) { return snapshot.name + std::to_string(++times_); }};
  base::MonotonicTime now_{std::chrono::hours(1)};
};

TEST_F(RenderedTest, SameSnapshotIsRenderedOnceHoweverManyAsk) {
  const auto snapshot = std::make_shared<const Snapshot>(Sample());
  std::vector<std::thread> askers;
  for (int i = 0; i < 8; ++i) {
    askers.emplace_back([&] {
      for (int j = 0; j < 100; ++j) {
        EXPECT_EQ(rendered_.Of(snapshot, now_), "shop1");
      }
    });
  }
  for (std::thread& asker : askers) {
    asker.join();
  }
  EXPECT_EQ(times_, 1);
}

TEST_F(RenderedTest, NextSnapshotIsRenderedAnew) {
  EXPECT_EQ(rendered_.Of(std::make_shared<const Snapshot>(Sample()), now_), "shop1");
  EXPECT_EQ(rendered_.Of(std::make_shared<const Snapshot>(Sample()), now_), "shop2");
}

TEST_F(RenderedTest, NothingIsOlderThanASecondAlsoWithoutASnapshot) {
  EXPECT_EQ(rendered_.Of(nullptr, now_), "1");
  EXPECT_EQ(rendered_.Of(nullptr, now_ + Rendered::kYoungerThan - milliseconds(1)), "1");
  EXPECT_EQ(rendered_.Of(nullptr, now_ + Rendered::kYoungerThan), "2");
}

}  // namespace
}  // namespace walpost::observe
