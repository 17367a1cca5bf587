// How a decision is carried out: rows are sent again in order, and go.
#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "envelope/control_records.h"
#include "outbox/message_mapper.h"
#include "pipeline/dead_letters.h"

namespace walpost::pipeline {

using base::DeadLetter;

namespace {

bool IsMessage(const DeadLetter& row) {
  return std::string_view(row.source).starts_with(outbox::kMessageLabel);
}

// What is known of the row stays: Kafka was not asked, and has said nothing newer.
std::string Beside(std::string_view why, const DeadLetter& row) {
  if (row.detail.empty()) {
    return std::string(why);
  }
  const bool there = row.detail.find(why) != std::string::npos;
  return there ? row.detail : std::string(why) + "; " + row.detail;
}

}  // namespace

void DeadLetters::Tick(base::Now now) {
  if (now.mono >= retry_at_) {
    retry_at_ = base::MonotonicTime();  // the sink may take it any time; no deadline any more
  }
  if (!release_) {
    return;
  }
  release_->Tick(now);
  if (release_->phase == Release::Phase::kSettling &&
      IsSettled(release_->decision.topic, release_->settled_below, &release_->settled_to)) {
    release_->phase = Release::Phase::kReading;
  }
}

void DeadLetters::Begin(DeadLetter decision, base::Now now) {
  if (decision.parked) {
    // Also one that a verb parked beside the stream.
    ParkedKey& key = Key(decision.topic, decision.key.value_or(""));
    key.open = true;
  }
  if (decision.discard()) {
    discards_.push_back({std::move(decision)});
    return;
  }
  std::erase_if(discards_, [&](const DeadLetterDiscard& each) {
    return each.decision.topic == decision.topic && each.decision.key == decision.key;
  });
  CHECK(!release_ && sending_ == Sending::kNone) << "one key is released at a time";
  release_.emplace();
  release_->GoesOn(now);
  changed_ = false;
  release_->decision = std::move(decision);
  // Events of the key that were read before are in the topic or in the table.
  release_->settled_below = release_->decision.parked ? tracker_->next_sequence() : 0;
}

// Events of the key that wait to be rows become that first. False: there are none.
bool DeadLetters::AwaitWritten() {
  const auto found = keys_.find(
      base::ParkedKeyIdOf(release_->decision.topic, release_->decision.key.value_or("")));
  if (found == keys_.end() || found->second.waiting == 0) {
    return false;
  }
  release_->phase = Release::Phase::kSettling;
  release_->settled_below = std::max(release_->settled_below, waiting_.rbegin()->first + 1);
  return true;
}

void DeadLetters::OnReleaseReply(DeadLetterReply reply, base::Now now) {
  if (asked_kind_ == DeadLetterRequest::Kind::kRead) {
    release_->GoesOn(now);
    OnRead(std::move(reply));
    return;
  }
  if (asked_kind_ == DeadLetterRequest::Kind::kLookAgain) {
    OnLookedAgain(reply);
    return;
  }
  if (asked_kind_ == DeadLetterRequest::Kind::kFailed) {
    if (!std::exchange(release_->unpark, false)) {
      EndRelease();
      return;
    }
    release_->failure.clear();
    RowIsDone();
    return;
  }
  if (!reply.closed) {
    // Another decision about it was made meanwhile.
    release_->rows.clear();
    release_->phase = Release::Phase::kReading;
    return;
  }
  release_->GoesOn(now);
  RowIsDone();
}

void DeadLetters::RowIsDone() {
  release_->begun = true;
  release_->rows.pop_front();
  SendNext();
}

void DeadLetters::OnRead(DeadLetterReply reply) {
  release_->rows.assign(std::make_move_iterator(reply.rows.begin()),
                        std::make_move_iterator(reply.rows.end()));
  if (!release_->rows.empty()) {
    release_->held =
        release_->decision.parked && reply.at_end && release_->rows.size() <= kHeldRowsMax;
    SendNext();
  } else if (release_->decision.parked && reply.key_open) {
    // The others are decided to be sent. They wait for events of the topic, or for the stream, and
    // are found again.
    EndRelease();
  } else if (release_->decision.parked) {
    KeyIsDone();
  } else {
    EndRelease();
  }
}

// What stands before it comes no more: all of it has been read, and is in the topic or in the
// table.
envelope::Position DeadLetters::ReleasableTo() const {
  return IsSettled(release_->decision.topic, tracker_->next_sequence(), &release_->settled_to)
             ? streamed_to_
             : PositionOf(release_->settled_to);
}

// The table has no open row of the key. False: some of it waits to be written.
bool DeadLetters::LetGo(const DeadLetter& of) {
  const auto found = keys_.find(base::ParkedKeyIdOf(of.topic, of.key.value_or("")));
  if (found == keys_.end()) {
    return true;
  }
  found->second.open = false;
  found->second.open_from.reset();
  if (found->second.waiting == 0) {
    keys_.erase(found);
    return true;
  }
  return false;
}

// What was added meanwhile is written first.
void DeadLetters::KeyIsDone() {
  if (LetGo(release_->decision) || !release_->decision.of_key || !AwaitWritten()) {
    EndRelease();
  }
}

// The first of the rows, once it is clear that it still is to be sent; or more of them.
void DeadLetters::SendNext() {
  if (release_->rows.empty()) {
    if (release_->decision.parked) {
      release_->phase = Release::Phase::kReading;
    } else {
      EndRelease();
    }
    return;
  }
  release_->phase = Release::Phase::kLooking;
}

// As the row is now. A row of which nobody decided anything came later.
bool DeadLetters::IsToBeSent(const DeadLetterReply& reply) const {
  using Decision = DeadLetter::Decision;
  return !reply.rows.empty() && !reply.rows.front().discard() &&
         (reply.rows.front().retry() ||
          (release_->rows.front().decision == Decision::kNone && !reply.rows.front().taken_back));
}

// Where its event comes again after a restart, only the row says that it was sent.
bool DeadLetters::MayComeAgain(const DeadLetter& row) const {
  const auto position = envelope::Position::Parse(row.position);
  return position.ok() && position->commit_lsn >= confirmable_;
}

// Since the row was read, or offered to the sink, somebody may have decided otherwise.
void DeadLetters::OnLookedAgain(const DeadLetterReply& reply) {
  release_->look_again = false;
  if (release_->rows.empty()) {
    // It settles, which may take long. One that has begun goes on: nobody decided about those that
    // wait to be rows.
    const bool retry = reply.rows.empty() ? release_->begun : reply.rows.front().retry();
    if (!retry) {
      EndRelease();
    }
    return;
  }
  if (release_->phase == Release::Phase::kClosing || release_->lost) {
    return;  // Kafka's answer came meanwhile, or the record has to be sent once more
  }
  if (sending_ == Sending::kOutstanding) {
    recalled_ = !IsToBeSent(reply);
    return;
  }
  DeadLetter& row = release_->rows.front();
  if (reply.rows.empty()) {  // somebody closed it
    Drop();
    RowIsDone();
    return;
  }
  const DeadLetter& now = reply.rows.front();
  const bool to_be_sent = IsToBeSent(reply);
  const bool before_decided =
      !now.retry() && row.seq < release_->decision.seq && row.place <= release_->decision.place;
  row.decision = now.decision;
  if (now.discard()) {
    Drop();
    release_->phase = Release::Phase::kClosing;
  } else if (!to_be_sent && !release_->decision.parked) {  // it was taken back
    Drop();
    EndRelease();
  } else if (!to_be_sent || before_decided) {
    // Also when it was taken back: the table must change, or the same decision is found again, for
    // ever.
    Drop();
    Fail(Beside("nobody has decided to send it, and it comes before those that were decided", row));
  } else if (sending_ == Sending::kWaiting && row.send_to == now.send_to) {
    release_->phase = Release::Phase::kSending;
  } else {
    Drop();
    row.send_to = now.send_to;
    Send();
  }
}

void DeadLetters::Send() {
  const DeadLetter& next = release_->rows.front();
  if (const auto need = envelope::ParseNeed(next.schema); !next.schema.empty() && !need.ok()) {
    Fail(std::string(need.status().message()));
    return;
  }
  if (!RowRecords::HasRecord(next)) {
    constexpr std::string_view kMessage =
        "it has no record that could be sent: discard it by its id, then retry, and emit it anew";
    constexpr std::string_view kRow =
        "it has no record that could be sent: correct its row, then retry, which makes one";
    Fail(Beside(IsMessage(next) ? kMessage : kRow, next), /*unpark=*/StopsNobody(next));
    return;
  }
  const std::string& topic = next.send_to.empty() ? next.topic : next.send_to;
  // Who may decide has rights in the database only: what is sent again goes where events may go.
  if (const absl::Status allowed = destinations_.Check(topic); !allowed.ok()) {
    Fail(std::string(allowed.message()));
    return;
  }
  Prepare(next, topic);
}

// Any SQL role may emit a message of any key, also one that no topic takes.
bool DeadLetters::StopsNobody(const DeadLetter& row) const {
  return row.parked && !messages_halt_ && IsMessage(row);
}

void DeadLetters::Fail(const std::string& why, bool unpark) {
  release_->failure = why;
  release_->unpark = unpark;
  release_->held = false;
  release_->phase = Release::Phase::kClosing;
}

void DeadLetters::Prepare(const DeadLetter& row, const std::string& topic) {
  release_->phase = Release::Phase::kSending;
  record_ = records_.Of(row, topic, &headers_);
  if (record_.schema != 0) {
    record_ = WithRoom(record_, &arena_);
    schemas_->Forget(record_.schema);  // an operator asks, so it may have been put right
  }
  ++sequence_;
  sending_ = Sending::kWaiting;
  needs_answer_ = false;
  rejected_ = false;
  retry_at_ = base::MonotonicTime();
}

const envelope::Record* DeadLetters::waiting(base::Now now) const {
  // Not while the decision is read again: it may be another one by now.
  return sending_ == Sending::kWaiting && release_->phase == Release::Phase::kSending &&
                 !release_->look_again && now.mono >= retry_at_ &&
                 IsSettled(release_->decision.topic, release_->settled_below, &release_->settled_to)
             ? &record_
             : nullptr;
}

void DeadLetters::OnAccepted() {
  CHECK(sending_ == Sending::kWaiting);
  sending_ = Sending::kOutstanding;
}

void DeadLetters::OnAcknowledged() {
  CHECK(sending_ == Sending::kOutstanding);
  Drop();
  release_->phase = Release::Phase::kClosing;
}

void DeadLetters::OnRejected(const delivery::Failure& failure, bool alone,
                             std::chrono::milliseconds left, base::Now now) {
  CHECK(sending_ != Sending::kNone);
  sending_ = Sending::kWaiting;
  needs_answer_ = !alone;
  recalled_ = false;
  release_->phase = Release::Phase::kLooking;
  release_->lost = true;
  if (!alone) {
    return;
  }
  const bool first = !std::exchange(rejected_, true);
  const bool leaves = failure.IsAboutTheRecord() && StopsNobody(release_->rows.front());
  // What a registry cannot say is never clear.
  const bool clear = !failure.must_last || failure.kind != delivery::FailureKind::kSchemaRejected;
  const bool wait = leaves && left.count() > 0;
  const bool unpark = leaves && !wait && clear;
  // A second try of each of many messages would take hours.
  if ((!first && !wait) || (unpark && (failure.must_last || release_->unparked))) {
    Drop();
    release_->unparked = release_->unparked || unpark;
    Fail(failure.detail, unpark);
    return;
  }
  // What is known of its topic may be old. The line does not wait for that.
  release_->held = false;
  retry_at_ = now.mono + (wait ? std::min(left, kRetryRejectedAfter) : kRetryRejectedAfter);
}

void DeadLetters::OnLost() {
  if (sending_ == Sending::kOutstanding) {
    sending_ = Sending::kWaiting;
    release_->phase = Release::Phase::kLooking;
    release_->lost = true;
    recalled_ = false;
    needs_answer_ = true;  // a pipelined producer dies of a rejected record before its report is in
  }
}

void DeadLetters::EndRelease() {
  release_.reset();
  looked_ = false;  // there may be other decisions
}

// The record is not needed any more.
void DeadLetters::Drop() {
  if (record_.block.chunk != nullptr) {
    arena_.Release(record_.block);
  }
  record_ = envelope::Record();
  sending_ = Sending::kNone;
  needs_answer_ = recalled_ = false;
}

}  // namespace walpost::pipeline
