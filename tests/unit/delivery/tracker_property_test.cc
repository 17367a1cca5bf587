// The tracker against a model so naive that it is obviously right: remember everything, and ask of
// each position whether anything received before it is undelivered.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "delivery/tracker.h"

namespace walpost::delivery {
namespace {

using base::Lsn;

struct NaiveModel {
  struct Item {
    bool is_event = false;
    Sequence sequence = 0;
    bool settled = false;
    Lsn position;  // of a position
  };

  std::vector<Item> items;

  Lsn Safe() const {
    Lsn safe;
    for (const Item& item : items) {
      if (item.is_event && !item.settled) {
        break;
      }
      if (!item.is_event) {
        safe = std::max(safe, item.position);
      }
    }
    return safe;
  }
};

class Driver {
 public:
  explicit Driver(std::uint64_t seed) : random_(seed) {}

  void Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      Step();
      ASSERT_EQ(tracker_.safe_lsn(), model_.Safe()) << "step " << i;
      ASSERT_EQ(tracker_.in_flight_events(), unsettled_.size());
      ASSERT_EQ(tracker_.oldest_unsettled(),
                unsettled_.empty() ? tracker_.next_sequence()
                                   : *std::min_element(unsettled_.begin(), unsettled_.end()));
    }
  }

 private:
  void Step() {
    switch (random_() % 6) {
      case 0:
        if (open_) {
          const Lsn end(clock_ += 1 + random_() % 50);
          tracker_.CommitTransaction(end);
          model_.items.push_back({false, 0, false, end});
          open_ = false;
        } else {
          commit_lsn_ = Lsn(clock_ += random_() % 50);
          begin_item_ = model_.items.size();
          tracker_.BeginTransaction(commit_lsn_);
          open_ = true;
        }
        break;
      case 1:
        Keepalive();
        break;
      case 2:
      case 3:
        if (open_) {
          envelope::Record record;
          record.block = tracker_.arena()->Allocate(random_() % 2'000);
          const Sequence sequence = tracker_.Add(record, 0, base::WallTime());
          model_.items.push_back({true, sequence, false, Lsn()});
          unsettled_.push_back(sequence);
        }
        break;
      default:
        SettleOne();
    }
  }

  void Keepalive() {
    if (open_) {
      const Lsn position(commit_lsn_.value() -
                         std::min<std::uint64_t>(commit_lsn_.value(), random_() % 60) +
                         random_() % 100);
      tracker_.ObservePosition(position);
      model_.items.insert(model_.items.begin() + static_cast<std::ptrdiff_t>(begin_item_),
                          {false, 0, false, std::min(position, commit_lsn_)});
      ++begin_item_;
    } else {
      const Lsn position(random_() % 3 == 0 ? clock_ / 2 : clock_ += random_() % 50);
      tracker_.ObservePosition(position);
      model_.items.push_back({false, 0, false, position});
    }
  }

  void SettleOne() {
    if (unsettled_.empty()) {
      return;
    }
    const std::size_t pick = random_() % 3 == 0 ? random_() % unsettled_.size() : 0;
    const Sequence sequence = unsettled_[pick];
    unsettled_.erase(unsettled_.begin() + static_cast<std::ptrdiff_t>(pick));
    tracker_.Settle(sequence);
    for (NaiveModel::Item& item : model_.items) {
      if (item.is_event && item.sequence == sequence) {
        item.settled = true;
      }
    }
  }

  std::mt19937_64 random_;
  Tracker tracker_;
  NaiveModel model_;
  std::vector<Sequence> unsettled_;
  std::uint64_t clock_ = 1'000;
  bool open_ = false;
  Lsn commit_lsn_;
  std::size_t begin_item_ = 0;
};

TEST(TrackerPropertyTest, AgreesWithTheNaiveModelAtEveryStep) {
  const char* given = std::getenv("WALPOST_SEED");
  const std::uint64_t first =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  const std::uint64_t count = given != nullptr ? 1 : 300;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("WALPOST_SEED=" + std::to_string(seed));
    Driver(seed).Run(400);
    if (HasFatalFailure()) {
      return;
    }
  }
}

}  // namespace
}  // namespace walpost::delivery
