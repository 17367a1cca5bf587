// What waits to be written and what is asked of the table. What a connection begins with is in
// parked keys are in dead_letters_keys.cc, releases in dead_letters_release.cc.
#include "pipeline/dead_letters.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"

namespace walpost::pipeline {

using Kind = DeadLetterRequest::Kind;
using std::chrono::duration;

namespace {

constexpr std::size_t kInsertBytesMax = std::size_t{1} << 20U;

}  // namespace

DeadLetters::DeadLetters(const PipelineOptions& options, const delivery::Tracker* tracker,
                         envelope::SchemaTable* schemas)
    : rows_max_(options.dead_letters_max),
      rows_per_second_(static_cast<double>(options.dead_letters_per_second)),
      tracker_(tracker),
      schemas_(schemas),
      records_(options, schemas),
      destinations_(options),
      messages_halt_(options.messages.halts),
      allowance_(rows_per_second_) {}

void DeadLetters::Forget() {
  CHECK(sending_ != Sending::kOutstanding);
  Drop();
  release_.reset();
  discards_.clear();
  keys_.clear();
  waiting_.clear();
  open_rows_ = 0;
  written_rows_ = 0;
  trouble_.clear();
  OnConnected(base::SourceFacts());
}

void DeadLetters::GiveUp() {
  asked_ = false;
  ++request_id_;
  waiting_.clear();
  inserting_.clear();
  discarding_.reset();
  absl::erase_if(keys_, [](auto& each) {
    each.second.waiting = 0;
    each.second.first_sequence = ParkedKey::kNone;  // what was read comes again with another number
    each.second.open_from.reset();
    return !each.second.open;
  });
}

bool DeadLetters::Fills(std::uint64_t part) const {
  return part * (open_rows_ + waiting_.size()) >= rows_max_;
}

bool DeadLetters::idle() const {
  return loaded_ && !asked_ && waiting_.empty() && keys_.empty() && !release_ &&
         discards_.empty() && open_rows_ == 0;
}

// What waits for others before it is no reason: what is behind them may be about other topics.
bool DeadLetters::must_write() const {
  return (waiting_.size() >= kWaitingMax && writable_) ||
         (!waiting_.empty() && open_rows_ + waiting_.size() >= rows_max_);
}

bool DeadLetters::Crowded(delivery::Sequence next) const {
  return must_write() && next > waiting_.rbegin()->first;
}

bool DeadLetters::has_room() const {
  const bool released = !release_ || release_->stalled;
  const bool looked = looked_ || (release_ && NextDiscard());  // beside both nothing is looked for
  return !must_write() &&
         (!Fills(2) || (looked && released && (!NextDiscard() || discards_stalled_)));
}

// Before the row that parks a key, every event of its topic before it is settled: one that fails
// then would become a row behind a later event of its key.
bool DeadLetters::MayWrite(delivery::Sequence sequence, const WaitingRow& waiting) const {
  if (!waiting.key) {
    return true;
  }
  const auto key = keys_.find(*waiting.key);
  CHECK(key != keys_.end()) << "an event waits to be a row of a key that is not parked";
  const ParkedKey& parked = key->second;
  return IsSettled(tracker_->entry(sequence).record.topic, std::min(sequence, parked.settle_below),
                   &parked.settled_to) &&
         (waiting.follows || IsNext(sequence, key->first, parked));
}

// A row that makes no record is known before it is its turn: earlier events of its key may still
// wait with their topic to be offered, and become rows then.
bool DeadLetters::IsNext(delivery::Sequence sequence, base::ParkedKeyId key,
                         const ParkedKey& parked) const {
  const std::string_view topic = tracker_->entry(sequence).record.topic;
  const auto is_passed = [&](const delivery::Tracker::Entry& entry) {
    const std::optional<std::string_view>& other = entry.record.key;
    return entry.settled || entry.form != delivery::Tracker::Form::kEvent ||
           entry.record.topic != topic || !other || base::ParkedKeyIdOf(topic, *other) != key;
  };
  delivery::Sequence& to = parked.parked_to;
  to = std::max(to, tracker_->oldest_unsettled());
  while (to < sequence && is_passed(tracker_->entry(to))) {
    ++to;
  }
  return to >= sequence;
}

// In their order; of a key, none before an earlier one.
std::vector<delivery::Sequence> DeadLetters::Writable(std::size_t most) const {
  std::vector<delivery::Sequence> writable;
  absl::flat_hash_set<base::ParkedKeyId> held;
  for (const auto& [sequence, waiting] : waiting_) {
    if (writable.size() >= most) {
      break;
    }
    if ((waiting.key && held.contains(*waiting.key)) || !MayWrite(sequence, waiting)) {
      if (waiting.key) {
        held.insert(*waiting.key);
      }
      continue;
    }
    writable.push_back(sequence);
  }
  return writable;
}

// Whether the events of a topic that stand before `below` are in the topic or in the table. Those
// of another topic may wait for long. `to`: how far that is known from before.
bool DeadLetters::IsSettled(std::string_view topic, delivery::Sequence below,
                            delivery::Sequence* to) const {
  using Form = delivery::Tracker::Form;
  const auto is_settled = [topic](const delivery::Tracker::Entry& entry) {
    return entry.settled || entry.form == Form::kDeadLetter || entry.record.topic != topic;
  };
  *to = std::max(*to, tracker_->oldest_unsettled());
  while (*to < below && is_settled(tracker_->entry(*to))) {
    ++*to;
  }
  return *to >= below;
}

void DeadLetters::Refill(base::Now now) {
  if (refilled_at_ != base::MonotonicTime()) {
    allowance_ += duration<double>(now.mono - refilled_at_).count() * rows_per_second_;
    allowance_ = std::min(allowance_, rows_per_second_);
  }
  refilled_at_ = now.mono;
}

DeadLetterRequest DeadLetters::Ask(DeadLetterRequest request) {
  asked_ = true;
  asked_kind_ = request.kind;
  request.id = ++request_id_;
  return request;
}

std::optional<DeadLetterRequest> DeadLetters::TakeRequest(base::Now now, const RowOf& row_of) {
  if (asked_ || now.mono < ask_at_) {
    return std::nullopt;
  }
  if (!loaded_) {
    return Ask({.kind = keys_loaded_ ? Kind::kLoadRows : Kind::kLoad,
                .seq = loaded_through_,
                .from = loaded_from_});
  }
  if (sent_rows_.must_read(streamed_to_)) {
    return Ask({.kind = Kind::kReadSent, .position = sent_rows_.read_through().ToString()});
  }
  // In turns: neither may keep the other from going on.
  const std::optional<std::size_t> discard = now.mono >= discard_at_ ? NextDiscard() : std::nullopt;
  std::optional<DeadLetterRequest> step = discard ? DiscardStep() : ReleaseStep();
  if (!step || !std::exchange(release_is_next_, false)) {
    if (std::optional<DeadLetterRequest> insertion = Insertion(now, row_of)) {
      release_is_next_ = true;
      return Ask(*std::move(insertion));
    }
  }
  if (step) {
    discarding_ = discard;
    if (release_) {
      release_->lost = false;
    }
    return Ask(*std::move(step));
  }
  if (!sent_deleted_) {
    return Ask({.kind = Kind::kDeleteSent, .from = facts_.restart_lsn});
  }
  if (MayDecide() && now.mono >= look_at_) {
    return Ask(LookForDecisions());
  }
  return std::nullopt;
}

// The row that parks a key may have come again, and be closed: then what follows it is not one of
// the dead letters. So of a key without a row that is known to be open, the first one goes alone,
// and those that follow are only looked for.
std::optional<DeadLetterRequest> DeadLetters::Insertion(base::Now now, const RowOf& row_of) {
  if (waiting_.empty()) {
    return std::nullopt;
  }
  Refill(now);
  DeadLetterRequest request{.kind = Kind::kInsert};
  inserting_.clear();
  std::size_t bytes = 0;
  absl::flat_hash_map<base::ParkedKeyId, bool> followers_alone;  // by key, of those before
  const std::vector<delivery::Sequence> writable = Writable(kInsertRowsMax);
  writable_ = !writable.empty();
  for (const delivery::Sequence sequence : writable) {
    if (allowance_ < 1 || bytes >= kInsertBytesMax) {
      break;
    }
    const WaitingRow& waiting = waiting_.at(sequence);
    const bool unproven = waiting.key && !keys_.find(*waiting.key)->second.open;
    if (unproven) {
      const auto [before, first] = followers_alone.try_emplace(*waiting.key, waiting.follows);
      const bool may_go = first || (before->second && waiting.follows);
      before->second = before->second && waiting.follows;
      if (!may_go) {
        continue;
      }
    }
    request.rows.push_back(row_of(sequence));
    request.only_known.push_back(unproven && waiting.follows);
    bytes += tracker_->entry(sequence).bytes;
    inserting_.push_back(sequence);
    allowance_ -= 1;
  }
  return inserting_.empty() ? std::nullopt : std::optional(std::move(request));
}

// There may be decisions that could be carried out now.
bool DeadLetters::MayDecide() const {
  return (open_rows_ > 0 || !keys_.empty() || !looked_) && !(release_ && NextDiscard());
}

// Beside a release only discards, beside a discard that waits only retries. What is decided about
// the released rows is seen when it is their turn.
DeadLetterRequest DeadLetters::LookForDecisions() const {
  DeadLetterRequest request{.kind = Kind::kDecision,
                            .position = streamed_to_.ToString(),
                            .retries_only = NextDiscard().has_value()};
  if (release_) {
    request.beside = true;
    request.seq = release_->decision.seq;
    // While it settles, nothing of its key is on its way.
    request.of_key = release_->decision.parked && release_->phase != Release::Phase::kSettling;
    request.topic = release_->decision.topic;
    request.key = release_->decision.key.value_or("");
  }
  return request;
}

std::optional<std::size_t> DeadLetters::NextDiscard() const {
  for (std::size_t i = 0; i < discards_.size(); ++i) {
    const base::DeadLetter& decision = discards_[i].decision;
    const auto found = keys_.find(base::ParkedKeyIdOf(decision.topic, decision.key.value_or("")));
    if (!discards_[i].closed || found == keys_.end() || found->second.waiting == 0) {
      return i;
    }
  }
  return std::nullopt;
}

DeadLetterRequest DeadLetters::DiscardStep() const {
  const base::DeadLetter& decision = discards_[*NextDiscard()].decision;
  DeadLetterRequest request;
  request.kind = decision.of_key && decision.parked ? Kind::kKeyDiscarded : Kind::kDiscarded;
  request.of_key = decision.parked;
  request.seq = decision.seq;
  request.topic = decision.topic;
  request.key = decision.key.value_or("");
  return request;
}

std::optional<DeadLetterRequest> DeadLetters::ReleaseStep() const {
  if (!release_) {
    return std::nullopt;
  }
  const base::DeadLetter& decision = release_->decision;
  DeadLetterRequest request;
  request.of_key = decision.parked;
  request.topic = decision.topic;
  request.key = decision.key.value_or("");
  switch (release_->phase) {
    case Release::Phase::kSettling:
      if (!release_->look_again) {
        return std::nullopt;
      }
      request.kind = Kind::kLookAgain;
      request.seq = decision.seq;
      return request;
    case Release::Phase::kReading:
      request.kind = Kind::kRead;
      request.seq = decision.seq;
      request.begun = release_->begun;
      request.position = ReleasableTo().ToString();
      return request;
    case Release::Phase::kLooking:
    case Release::Phase::kSending:
      if (release_->phase == Release::Phase::kSending ? !release_->look_again
                                                      : retry_at_ != base::MonotonicTime()) {
        return std::nullopt;
      }
      request.kind = Kind::kLookAgain;
      request.seq = release_->rows.front().seq;
      return request;
    case Release::Phase::kClosing:
      request.seq = release_->rows.front().seq;
      request.detail = release_->failure;
      request.unpark = release_->unpark;
      request.keep =
          !release_->rows.front().send_to.empty() || MayComeAgain(release_->rows.front());
      request.kind = !release_->failure.empty()         ? Kind::kFailed
                     : release_->rows.front().discard() ? Kind::kDiscarded
                                                        : Kind::kDelivered;
      return request;
  }
  return std::nullopt;
}

std::optional<Halt> DeadLetters::OnReply(DeadLetterReply reply, base::Now now,
                                         DeadLetterOutcome* outcome) {
  if (!asked_ || reply.id != request_id_) {
    return std::nullopt;
  }
  asked_ = false;
  const std::optional<std::size_t> discard = std::exchange(discarding_, std::nullopt);
  if (!reply.status.ok() && asked_kind_ == Kind::kDeleteSent) {
    sent_deleted_ = true;  // the next connection may do it: nothing waits for that
    return std::nullopt;
  }
  if (!reply.status.ok()) {
    looked_ = looked_ || asked_kind_ == Kind::kDecision;  // it reads on, whatever is in the table
    trouble_ = absl::StrFormat("dead letters wait: %s", std::string(reply.status.message()));
    (discard ? discard_at_ : ask_at_) = now.mono + kAskAgainAfter;
    discards_stalled_ = discards_stalled_ || discard;
    if (absl::IsUnavailable(reply.status)) {
      return std::nullopt;
    }
    return Halt{base::HaltReason::kDeadLetterFailed,
                absl::StrFormat("the table of dead letters cannot be used: %s; see "
                                "docs/runbook.md, dead_letter_failed",
                                std::string(reply.status.message()))};
  }
  trouble_ = WhyNothingIsRead();
  if (asked_kind_ == Kind::kInsert || asked_kind_ == Kind::kLoad) {
    if (reply.written < written_rows_ && reply.in_recovery) {
      trouble_ = absl::StrFormat(
          "the standby has %u of the %u rows that this pipeline wrote to walpost.dead_letters: "
          "waiting until it has them all",
          reply.written, written_rows_);
      ask_at_ = now.mono + kAskAgainAfter;
      return std::nullopt;
    }
    if (std::optional<Halt> halt = CheckWritten(reply.written)) {
      return halt;
    }
  }
  open_rows_ = reply.open_rows;
  if (discard) {
    look_at_ = reply.closed ? now.mono : now.mono + kLookEvery;
    OnDiscarded(*discard, reply);
    Tick(now);
    return std::nullopt;
  }
  switch (asked_kind_) {
    case Kind::kInsert:
      OnInserted(reply, outcome);
      break;
    case Kind::kLoad:
      OnKeysLoaded(reply);
      break;
    case Kind::kLoadRows:
      OnRowsLoaded(reply);
      break;
    case Kind::kDeleteSent:
      sent_deleted_ = reply.at_end;
      break;
    case Kind::kReadSent:
      sent_rows_.Add(std::move(reply.rows), reply.at_end);
      break;
    case Kind::kDecision:
      looked_ = true;
      retry_waits_for_ = PositionOfPlace(reply.waits_for);
      look_at_ = now.mono + kLookEvery;
      if (!reply.rows.empty()) {
        Begin(std::move(reply.rows.front()), now);
        look_at_ = now.mono;
      }
      LookIfPassed();  // the stream may have passed it meanwhile
      break;
    case Kind::kRead:
    case Kind::kLookAgain:
    case Kind::kDelivered:
    case Kind::kFailed:
    case Kind::kDiscarded:
    case Kind::kKeyDiscarded:
      changed_ = changed_ ||
                 (asked_kind_ != Kind::kRead && asked_kind_ != Kind::kLookAgain && reply.closed);
      OnReleaseReply(std::move(reply), now);
      if (!release_) {
        // There may be another decision. The same one again, when nothing came of it, must wait.
        look_at_ = changed_ ? now.mono : now.mono + kLookEvery;
      }
      break;
  }
  Tick(now);
  return std::nullopt;
}

// Those that wait may wait for long, and no retry that waits for the stream can make room. Empty =
// no reason.
std::string DeadLetters::WhyNothingIsRead() const {
  return must_write() && !writable_
             ? absl::StrFormat(
                   "dead letters: delivery.dead_letters_max, %u, is reached by %u open rows and %u "
                   "events that cannot become rows before earlier events of their topics are "
                   "delivered: nothing is read until then; decide about some, or raise it",
                   rows_max_, open_rows_, waiting_.size())
             : "";
}

void DeadLetters::OnInserted(const DeadLetterReply& reply, DeadLetterOutcome* outcome) {
  for (std::size_t i = 0; i < inserting_.size(); ++i) {
    const base::DeadLetterState state = reply.states.at(i);
    OnAnswered(inserting_[i], state);
    (state == base::DeadLetterState::kNone ? outcome->given_back : outcome->written)
        .push_back(inserting_[i]);
  }
  inserting_.clear();
}

// Those rows are closed. Of the key the table may have others, of which nobody who decided knew:
// they have been decided to be sent.
void DeadLetters::OnDiscarded(std::size_t index, const DeadLetterReply& reply) {
  discards_stalled_ = looked_ = false;  // there may be other decisions
  base::DeadLetter decision = std::move(discards_[index].decision);
  discards_.erase(discards_.begin() + static_cast<std::ptrdiff_t>(index));
  if (release_ && release_->phase == Release::Phase::kSettling && !release_->begun &&
      release_->decision.topic == decision.topic && release_->decision.key == decision.key) {
    EndRelease();  // what is still to be sent of the key is found again
  }
  if (decision.parked && !reply.key_open && !LetGo(decision) && decision.of_key) {
    discards_.push_back({std::move(decision), /*closed=*/true});
  }
}

std::optional<base::MonotonicTime> DeadLetters::NextDeadline() const {
  std::optional<base::MonotonicTime> deadline;
  const auto at = [&](base::MonotonicTime time) {
    deadline = deadline ? std::min(*deadline, time) : time;
  };
  if (sending_ == Sending::kWaiting && retry_at_ != base::MonotonicTime()) {
    at(retry_at_);
  }
  if (release_) {
    at(release_->due);
  }
  if (asked_) {
    return deadline;
  }
  if (NextDiscard()) {
    at(std::max(ask_at_, discard_at_));
  }
  if (!loaded() || !sent_deleted_ || ReleaseStep()) {
    at(ask_at_);
  } else if (MayDecide()) {
    at(std::max(ask_at_, look_at_));
  }
  if (!Writable(1).empty()) {
    const auto refilled =
        refilled_at_ + std::chrono::ceil<std::chrono::milliseconds>(duration<double>(
                           std::max(0.0, 1 - allowance_) / rows_per_second_ + 0.001));
    at(std::max(ask_at_, allowance_ < 1 ? refilled : ask_at_));
  }
  return deadline;
}

}  // namespace walpost::pipeline
