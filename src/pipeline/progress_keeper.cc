#include "pipeline/progress_keeper.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "envelope/progress.h"

namespace walpost::pipeline {

using base::HaltReason;

ProgressKeeper::ProgressKeeper(const PipelineOptions& options, const KnownTransactions* known)
    : known_(known), topic_(options.progress_topic), name_(options.name) {}

void ProgressKeeper::OnConnected(const base::SourceFacts& facts, bool adopted) {
  const std::uint64_t attempted = adopted_ ? epoch() : 0;
  facts_ = facts;
  if (facts.progress) {
    acknowledged_ = std::max(acknowledged_, facts.progress->end_lsn);
    remembered_ = facts.progress;
  }
  if (adopted) {
    adopted_ = true;
    adopted_made_ = false;
    // The next connection finds it adopted already, also when Kafka is away until then. A process with the
    // configuration of before, or a late record of one, must not undo it.
    static_cast<base::Fingerprint&>(*remembered_) = facts;
    // Attempts that Kafka has not acknowledged are of one epoch: any of them may arrive, and late.
    remembered_->epoch = attempted != 0 ? std::max(remembered_->epoch, attempted) : epoch() + 1;
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
  adopted_ = adopted_made_ = false;
  acknowledged_ = base::Lsn();
  made_ = base::Lsn();
  phase_ = Phase::kNone;
  made_at_.reset();
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
  const base::Lsn begun = remembered_ ? acknowledged_ : facts_->start_lsn;
  const base::Lsn position = std::max(safe, begun);
  const bool to_adopt = adopted_ && !adopted_made_;
  const bool again = made_at_ && now.mono >= *made_at_ + kAgainAfter;
  if (position <= acknowledged_ && !to_adopt && !again) {
    return;
  }
  const bool due = hurry || !made_at_ || now.mono >= *made_at_ + kEvery;
  if (to_adopt || (phase_ == Phase::kWaiting ? position > progress_.end_lsn : due)) {
    Make(position, dead_letters, now);
  }
}

void ProgressKeeper::Make(base::Lsn position, std::uint64_t dead_letters, base::Now now) {
  progress_ = facts_->ProgressAt(position);
  progress_.epoch = epoch();
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
  adopted_made_ = adopted_;
  made_at_ = now.mono;
  if (!unacknowledged_since_) {
    unacknowledged_since_ = now;
  }
}

const envelope::Record* ProgressKeeper::waiting(base::Now now) const {
  const bool may = phase_ == Phase::kWaiting && (!rejected_at_ || now.mono >= retry_at_);
  return may ? &record_ : nullptr;
}

void ProgressKeeper::OnAcknowledged() {
  CHECK(phase_ == Phase::kOutstanding);
  phase_ = Phase::kNone;
  acknowledged_ = std::max(acknowledged_, progress_.end_lsn);
  adopted_ = adopted_ && !adopted_made_;
  if (!adopted_) {  // else the record is of before
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
}

void ProgressKeeper::OnLost() {
  if (phase_ == Phase::kOutstanding) {
    phase_ = Phase::kWaiting;
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
