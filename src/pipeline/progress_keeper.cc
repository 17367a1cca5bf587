#include "pipeline/progress_keeper.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "envelope/control_records.h"

namespace walpost::pipeline {

using base::HaltReason;

ProgressKeeper::ProgressKeeper(const PipelineOptions& options, const KnownTransactions* known)
    : known_(known), topic_(options.progress_topic), name_(options.name) {}

void ProgressKeeper::OnConnected(const base::SourceFacts& facts, bool adopted) {
  const bool first = !facts_;
  facts_ = facts;
  if (facts.progress) {
    acknowledged_ = std::max(acknowledged_, facts.progress->end_lsn);
    remembered_ = facts.progress;
    epoch_ = std::max(epoch_, remembered_->epoch);
  }
  write_since_.reset();
  epoch_ = base::NextEpoch(epoch_, facts.begun_at);
  unwritten_ = true;
  awaited_ = awaited_ || first || adopted;
  if (remembered_) {
    remembered_->epoch = epoch_;
  }
  DropEarlier();
  if (adopted) {
    adopted_ = true;
    // The next connection finds it adopted already. A process with the configuration of before, or
    // a late record of one, must not undo it.
    static_cast<base::Fingerprint&>(*remembered_) = facts;
  }
}

void ProgressKeeper::OnLooked(const base::Fingerprint& seen) {
  if (facts_) {
    static_cast<base::Fingerprint&>(*facts_) = seen;
  }
}

void ProgressKeeper::Forget() {
  facts_.reset();
  remembered_.reset();
  epoch_ = 0;
  adopted_ = unwritten_ = awaited_ = false;
  acknowledged_ = base::Lsn();
  made_ = base::Lsn();
  phase_ = Phase::kNone;
  made_at_.reset();
  taken_made_at_.reset();
  write_since_.reset();
  unacknowledged_since_.reset();
  rejected_at_.reset();
  rejecting_ = std::chrono::milliseconds(0);
  answering_ = std::chrono::microseconds(0);
}

bool ProgressKeeper::Late(base::Now now) const {
  return unacknowledged_since_ && now.mono - unacknowledged_since_->mono >= kLateAfter;
}

void ProgressKeeper::Tick(base::Lsn safe, std::uint64_t dead_letters, bool hurry, base::Now now) {
  if (now.mono >= retry_at_) {
    retry_at_ = base::MonotonicTime();  // the sink may take it any time; no deadline any more
  }
  if (!on() || !facts_ || phase_ == Phase::kOutstanding) {
    return;
  }
  // Where the stream began counts as well: the first record stands before the first event.
  const base::Lsn begun = remembered_ ? base::Lsn() : facts_->start_lsn;
  // What Kafka has acknowledged to this process may be confirmed: no record of a later connection,
  // which counts for more, says less.
  const base::Lsn position = std::max({safe, begun, acknowledged_});
  const bool to_write = unwritten_ && phase_ == Phase::kNone;
  const bool asked_for = made_at_ && write_since_ && *made_at_ < *write_since_;
  const bool again = asked_for || (made_at_ && now.mono >= *made_at_ + kAgainAfter);
  if (position <= acknowledged_ && !to_write && !again) {
    return;
  }
  const bool due = hurry || asked_for || !made_at_ || now.mono >= *made_at_ + kEvery;
  if (to_write || (phase_ == Phase::kWaiting ? position > progress_.end_lsn : due)) {
    Make(position, dead_letters, now);
  }
}

void ProgressKeeper::Make(base::Lsn position, std::uint64_t dead_letters, base::Now now) {
  progress_ = facts_->ProgressAt(position);
  progress_.epoch = epoch_;
  progress_.dead_letters = dead_letters;
  if (known_ != nullptr) {
    progress_.last_transactions = known_->LastBefore(position);
    progress_.passed_at = known_->passed_at();
  }
  made_ = std::max(made_, position);
  progress_.recorded_at = now.wall;
  value_ = envelope::EncodeProgress(progress_);
  record_ = envelope::Record();
  record_.topic = topic_;
  record_.key = name_;
  record_.value = value_;
  record_.partition = 0;
  ++sequence_;
  phase_ = Phase::kWaiting;
  made_at_ = now.mono;
  if (!unacknowledged_since_) {
    unacknowledged_since_ = now;
  }
}

const envelope::Record* ProgressKeeper::waiting(base::Now now) const {
  const bool may = phase_ == Phase::kWaiting && (!rejected_at_ || now.mono >= retry_at_);
  return may ? &record_ : nullptr;
}

void ProgressKeeper::OnAcknowledged(base::MonotonicTime now) {
  CHECK(phase_ == Phase::kOutstanding);
  phase_ = Phase::kNone;
  taken_made_at_ = made_at_;
  taken_at_ = now;
  acknowledged_ = std::max(acknowledged_, progress_.end_lsn);
  unwritten_ = unwritten_ && progress_.epoch != epoch_;
  adopted_ = adopted_ && unwritten_;
  awaited_ = awaited_ && unwritten_;
  if (!unwritten_) {  // else the record is of before
    remembered_ = progress_;
  }
  unacknowledged_since_.reset();
  rejected_at_.reset();
  rejecting_ = std::chrono::milliseconds(0);
  answering_ = std::chrono::microseconds(0);
}

void ProgressKeeper::OnAccepted() {
  CHECK(phase_ == Phase::kWaiting);
  phase_ = Phase::kOutstanding;
}

void ProgressKeeper::OnRejected(const delivery::Failure& failure, base::Now now) {
  CHECK(phase_ != Phase::kNone);
  phase_ = Phase::kWaiting;
  rejection_ = failure.detail;
  if (rejected_at_) {
    const auto gap =
        std::chrono::duration_cast<std::chrono::milliseconds>(now.mono - *rejected_at_);
    rejecting_ += std::min(gap, kRejectingMax);
  }
  rejected_at_ = now.mono;
  retry_at_ = now.mono + kRetryRejectedAfter;
  DropEarlier();
}

void ProgressKeeper::OnLost() {
  if (phase_ == Phase::kOutstanding) {
    phase_ = Phase::kWaiting;
    DropEarlier();
  }
}

// A record of an earlier connection is not sent any more. Another one is made at once.
void ProgressKeeper::DropEarlier() {
  if (phase_ == Phase::kWaiting && progress_.epoch != epoch_) {
    phase_ = Phase::kNone;
    made_at_.reset();
  }
}

std::optional<Halt> ProgressKeeper::Unwritten(base::WallTime last_delivered_at) {
  if (!unacknowledged_since_) {
    answering_ = std::chrono::microseconds(0);
  } else if (last_delivered_at > delivered_seen_) {
    const auto gap = last_delivered_at - std::max(delivered_seen_, unacknowledged_since_->wall);
    answering_ +=
        std::clamp<std::chrono::microseconds>(gap, std::chrono::microseconds(0), kAnsweringMax);
  }
  delivered_seen_ = last_delivered_at;
  if (rejecting_ >= kRejectedMax) {
    return Halt{HaltReason::kProgressUnreadable,
                absl::StrFormat("progress cannot be written to topic '%s', so nothing could be "
                                "confirmed for %d s: %s; see docs/runbook.md, progress_unreadable",
                                topic_, kRejectedMax.count() / 1'000, rejection_)};
  }
  if (answering_ >= kUnansweredMax) {
    return Halt{HaltReason::kProgressUnreadable,
                absl::StrFormat("Kafka has not acknowledged a record for topic '%s' for %d s "
                                "although events are delivered, so nothing could be confirmed: may "
                                "walpost's Kafka user WRITE to it, and does its partition have a "
                                "leader? see docs/runbook.md, progress_unreadable",
                                topic_, kUnansweredMax.count() / 1'000)};
  }
  return std::nullopt;
}

std::optional<base::MonotonicTime> ProgressKeeper::NextDeadline(base::Lsn safe) const {
  if (phase_ == Phase::kWaiting && retry_at_ != base::MonotonicTime()) {
    return retry_at_;
  }
  if (phase_ != Phase::kNone || !on() || !facts_ || !made_at_) {
    return std::nullopt;
  }
  return safe <= acknowledged_ ? *made_at_ + kAgainAfter : *made_at_ + kEvery;
}

}  // namespace walpost::pipeline
