// What must hold between two inputs, class by class. A broken one ends the process before it
// confirms or sends anything by what it believes then; nothing is lost by that, because the slot
// keeps it all.
#include <glog/logging.h>

#include <algorithm>

#include "pipeline/dead_letters.h"
#include "pipeline/dispatcher.h"
#include "pipeline/intake.h"
#include "pipeline/pipeline.h"
#include "pipeline/progress_keeper.h"

namespace walpost::pipeline {

void Pipeline::CheckInvariants() const {
  // Who is connected, and to what.
  const bool may_be_connected =
      phase_ == Phase::kStreaming || phase_ == Phase::kHalting || phase_ == Phase::kDraining;
  CHECK(!connected_ || may_be_connected);
  CHECK(!connected_ || facts_);
  CHECK(phase_ != Phase::kStreaming || connected_);
  CHECK(phase_ != Phase::kConnecting || attempt_unanswered_);
  CHECK(!paused_ || connected_);
  CHECK(!looks_.under_way || connected_);
  CHECK(!completing_ || (phase_ == Phase::kDraining && intake_.in_transaction()));
  CHECK(connected_ || !intake_.in_transaction());

  // How it ends.
  CHECK(!halted() || halt_);
  CHECK(phase_ != Phase::kHalting || (halt_ && halt_boundary_ <= tracker_.next_sequence()));
  CHECK(phase_ != Phase::kDraining || stop_requested_);
  CHECK(!finished() || stop_requested_);
  CHECK(phase_ != Phase::kYielding || !connected_);
  CHECK((!halted() && !finished()) || (tracker_.empty() && dispatcher_.idle()));

  // G5: nothing is confirmed that is not delivered, remembered and passed on this connection.
  CHECK_LE(confirmable(), tracker_.safe_lsn());
  CHECK_LE(confirmable(), keeper_.Confirmable(tracker_.safe_lsn()));
  CHECK_LE(confirmed_lsn_, confirmed_max_);

  // G1: no event is forgotten.
  CHECK_EQ(counters_.events_received, counters_.events_delivered + counters_.events_dead_lettered +
                                          counters_.events_parked + counters_.events_skipped +
                                          counters_.events_discarded + tracker_.in_flight_events());

  dispatcher_.CheckInvariants();
  dead_letters_.CheckInvariants();
  keeper_.CheckInvariants();
  intake_.CheckInvariants();
}

void Dispatcher::CheckInvariants() const {
  CHECK_LE(cursor_, tracker_->next_sequence());
  CHECK_LE(resubmit_below_, tracker_->next_sequence());
  CHECK_LE(topics_.events(), tracker_->in_flight_events());
  CHECK(open() || topics_.events() == 0) << "a closed session holds nothing back";
  CHECK(!held_since_ || phase_ == Phase::kPipelined);
  CHECK(!held_since_ || cursor_ < tracker_->next_sequence()) << "nothing is gathered";
  CHECK(!suspended_ || !open());
  CHECK(!shutting_down_ || !open());
  CHECK(phase_ != Phase::kIdle || shutting_down_ || suspended_);
  CHECK(phase_ != Phase::kOneAtATime || report_by_ != base::MonotonicTime());
  CHECK(!halt_at_ || idle() || halt_at_->sequence >= tracker_->oldest_unsettled())
      << "an event that only an operator can decide about is settled";
}

void DeadLetters::CheckInvariants() const {
  constexpr std::size_t kWalkedMax = 20;  // at each turn of the loop
  if (keys_.size() <= kWalkedMax && waiting_.size() <= kWalkedMax) {
    std::size_t waiting = 0;
    for (const auto& [id, key] : keys_) {
      waiting += key.waiting;
      CHECK(key.waiting > 0 || key.open || !loaded_) << "a key is parked for nothing";
      CHECK_LE(key.settle_below, tracker_->next_sequence());
    }
    CHECK_EQ(waiting, static_cast<std::size_t>(std::count_if(
                          waiting_.begin(), waiting_.end(),
                          [](const auto& each) { return each.second.key.has_value(); })));
  }
  CHECK(waiting_.empty() || waiting_.begin()->first >= tracker_->oldest_unsettled());
  CHECK(waiting_.empty() || waiting_.rbegin()->first < tracker_->next_sequence());
  CHECK(loaded_ || !looked_);

  // The record that is sent again is the first of the released rows.
  CHECK(sending_ == Sending::kNone || (release_ && !release_->rows.empty()));
  CHECK(!recalled_ || sending_ == Sending::kOutstanding);
  CHECK((sending_ == Sending::kNone) == record_.topic.empty());
  if (release_) {
    const bool of_a_row = release_->phase == Release::Phase::kLooking ||
                          release_->phase == Release::Phase::kSending ||
                          release_->phase == Release::Phase::kClosing;
    CHECK(!of_a_row || !release_->rows.empty());
    CHECK(!release_->held || release_->decision.parked);
    CHECK(release_->phase != Release::Phase::kSending || sending_ != Sending::kNone);
    CHECK(release_->failure.empty() || release_->phase == Release::Phase::kClosing);
  }
}

void ProgressKeeper::CheckInvariants() const {
  CHECK(on() || phase_ == Phase::kNone);
  CHECK(phase_ == Phase::kNone || (facts_ && unacknowledged_since_));
  CHECK(phase_ == Phase::kNone || progress_.end_lsn <= made_);
  CHECK(phase_ == Phase::kNone || progress_.epoch <= epoch_);
  CHECK(phase_ != Phase::kWaiting || progress_.epoch == epoch_);
  CHECK(!remembered_ || remembered_->epoch == epoch_);
  CHECK_LE(epoch_, base::Progress::kEpochMax) << "no process could read it";
  CHECK_LE(acknowledged_, std::max(made_, remembered_ ? remembered_->end_lsn : base::Lsn()));
}

void Intake::CheckInvariants() const {
  CHECK(!must_look_ || transaction_.open || position_waits());
  CHECK(connection_lsn_ <= complete_lsn_ || !complete_lsn_.valid());  // forgotten
  CHECK(!transaction_.open || transaction_.commit_lsn >= connection_lsn_);
  CHECK_LE(transaction_.events, transaction_.next_ordinal);
  CHECK(!transaction_.empty_for_us || !transaction_.open || transaction_.events == 0);
}

}  // namespace walpost::pipeline
