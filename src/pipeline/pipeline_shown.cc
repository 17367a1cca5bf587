// What a Pipeline shows.
#include <algorithm>

#include "pipeline/pipeline.h"

namespace walpost::pipeline {

const std::optional<Halt>& Pipeline::halt() const { return halt_; }

const Counters& Pipeline::counters() const { return counters_; }

const delivery::Tracker& Pipeline::tracker() const { return tracker_; }

const std::optional<base::SourceFacts>& Pipeline::facts() const { return facts_; }

std::size_t Pipeline::parked_keys() const { return dead_letters_.parked_keys(); }

const SchemaLookUps& Pipeline::schemas() const { return schemas_; }

base::Lsn Pipeline::received_lsn() const { return intake_.received_lsn(); }

base::Lsn Pipeline::text_until() const { return server_errors_.text_until(); }

base::Lsn Pipeline::confirmed_lsn() const { return confirmed_lsn_; }

base::Lsn Pipeline::server_wal_lsn() const { return server_wal_lsn_; }

base::WallTime Pipeline::last_frame_at() const { return last_frame_at_; }

bool Pipeline::connected() const { return connected_; }

bool Pipeline::dead_letters_idle() const { return dead_letters_.idle(); }

std::optional<Decision> Pipeline::TakeDecision() { return undeliverables_.TakeDecision(); }

std::uint64_t Pipeline::open_dead_letters() const { return dead_letters_.open_rows(); }

std::optional<DeadLetterRequest> Pipeline::TakeDeadLetterRequest(base::Now now) {
  if (!connected_) {
    return std::nullopt;
  }
  return dead_letters_.TakeRequest(
      now, [this](delivery::Sequence sequence) { return undeliverables_.RowOf(sequence); });
}

base::Lsn Pipeline::confirmable() const {
  // On its way to where the stream begins the server reports positions as well. In a history that is not known
  // to be ours there may be events before them that it does not send.
  if (!intake_.verified() || (facts_ && intake_.connection_lsn() < facts_->start_lsn)) {
    return {};
  }
  return std::min(keeper_.Confirmable(tracker_.safe_lsn()), intake_.connection_lsn());
}

EventReference Pipeline::OldestInFlight() const {
  return undeliverables_.Reference(tracker_.oldest_unsettled());
}

}  // namespace walpost::pipeline
