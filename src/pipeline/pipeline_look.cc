// The part of Pipeline that has the catalogs read again while a stream stands still.
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "pipeline/fingerprint.h"
#include "pipeline/pipeline.h"
#include "pipeline/source_change.h"

namespace walpost::pipeline {

using base::HaltReason;
using base::StreamEnd;

namespace {

// The next connection's preflight sees the same.
constexpr char kUnseen[] = "the catalogs could not be read while streaming: ";

}  // namespace

// Rows that were inserted while a table was out of the publication never come. To confirm what is behind
// them could lose them, so the transaction stays open until the catalogs show that nothing was edited.
std::optional<base::MonotonicTime> Pipeline::look_due() const {
  if (!connected_ || looks_.under_way || phase_ != Phase::kStreaming) {
    return std::nullopt;
  }
  if (intake_.must_look()) {
    return looks_.next;
  }
  if (!intake_.position_waits()) {
    // Whoever waits for this stream to confirm says so in the server's settings only: its commits, when
    // walpost has become a synchronous standby.
    return stalled() ? std::optional(std::max(
                           looks_.stalled_since + Looks::kLookAfterStall,
                           looks_.next - Looks::kLookEvery + Looks::kLookWhileStalledEvery))
                     : std::nullopt;
  }
  // Who asks may be waiting for it to be confirmed, so as to shut down.
  return looks_.asked_for_position ? looks_.next
                                   : looks_.next - Looks::kLookEvery + Looks::kLookAtPositionEvery;
}

// Something waits for the sink: an event, or progress that was delivered and is not noted.
bool Pipeline::stalled() const {
  return connected_ && (!tracker_.empty() || confirmable() < tracker_.safe_lsn());
}

void Pipeline::CheckStall(base::Now now) {
  if (!stalled() || confirmable() != looks_.stalled_at) {
    looks_.stalled_at = confirmable();
    looks_.stalled_since = now.mono;
  }
}

std::optional<std::uint64_t> Pipeline::TakeLook(base::Now now) {
  const std::optional<base::MonotonicTime> due = look_due();
  if (!due || now.mono < *due) {
    return std::nullopt;
  }
  looks_.under_way = true;
  looks_.stops = intake_.must_look();
  looks_.needed = looks_.stops || intake_.position_waits();
  looks_.asked_for_position = false;
  looks_.seen_lsn = intake_.seen_lsn();
  return ++looks_.asked;
}

void Pipeline::OnLooked(std::uint64_t look, const std::variant<base::SourceFacts, StreamEnd>& seen,
                        base::Now now) {
  looks_.next = now.mono + Looks::kLookEvery;
  if (look != looks_.asked || !looks_.under_way) {
    return;  // of a connection that has ended
  }
  looks_.under_way = false;
  if (phase_ != Phase::kStreaming) {
    return;  // what is left to do needs no further frame
  }
  if (const auto* end = std::get_if<StreamEnd>(&seen)) {
    if (end->kind == StreamEnd::Kind::kOperator && end->reason != HaltReason::kAuthFailed) {
      BeginHalt(Halt{end->reason, std::string(end->status.message())}, now);
    } else if (looks_.needed || intake_.must_look()) {
      EndConnection(kUnseen + std::string(end->status.message()), now);
    }
    return;
  }
  const auto& facts = std::get<base::SourceFacts>(seen);
  if (facts_->in_recovery && facts.timeline > facts_->timeline) {
    // The next connection says where the timeline of before ended. Nothing behind that was taken.
    ConnectAnew(ReconnectReason::kPromoted, now);
    last_error_ = absl::StrFormat(
        "%s, a standby, went from timeline %u to %u while it was read: connecting anew", facts.host,
        facts_->timeline, facts.timeline);
    return;
  }
  if (intake_.must_look() && !looks_.stops) {
    return;  // it was begun before
  }
  if (facts.timeline != facts_->timeline || facts.in_recovery != facts_->in_recovery ||
      (intake_.must_look() && facts.looked_lsn <= intake_.last_commit_lsn())) {
    EndConnection(absl::StrFormat("%s%s is not the server that is streamed from, or behind it",
                                  kUnseen, facts.host),
                  now);
    return;
  }
  // What came meanwhile, beside a look that stops nothing, was not there yet when its facts were read.
  if (std::optional<Halt> halt = FindSourceChange(*facts_, facts, looks_.seen_lsn)) {
    OnSourceHalt(*std::move(halt), now);
    return;
  }
  base::Fingerprint looked = facts;
  KeepSince(*facts_, base::Since(), facts_->adoption, &looked);
  static_cast<base::Fingerprint&>(*facts_) = looked;
  facts_->text_types = facts.text_types;
  keeper_.OnLooked(looked);
  if (std::optional<Halt> halt = intake_.OnLooked(*facts_)) {
    OnSourceHalt(*std::move(halt), now);
  } else {
    OnPassed(now);
  }
}

}  // namespace walpost::pipeline
