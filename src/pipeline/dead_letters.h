// DeadLetters - which events become dead letters, which keys are parked, and how they are released.
// Why: an event that could not be delivered counts as settled only when its row is committed. Later
//   events of a parked key must not overtake it: they become rows too, until an operator decides;
//   then they are sent from there, in order, and newer ones behind them, until none is left.
// How: the table is the truth. All SQL is a DeadLetterRequest, one at a time, that the runtime
//   carries out. While nothing is open there is none.
// Thread: loop thread.   Lifetime: `tracker` must outlive it.   Source: docs/dead-letters.md.
// Limits: dead_letters_max open rows and dead_letters_per_second new ones; of the table, memory
//   holds parked keys, KnownRows and SentRows. One key is released at a time, event by event.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/bytes.h"
#include "base/dead_letter.h"
#include "base/source_facts.h"
#include "base/time.h"
#include "delivery/sink.h"
#include "delivery/tracker.h"
#include "envelope/schema.h"
#include "pipeline/dead_letter_request.h"
#include "pipeline/halt.h"
#include "pipeline/held_topics.h"
#include "pipeline/known_rows.h"
#include "pipeline/options.h"
#include "pipeline/row_records.h"

namespace walpost::pipeline {

class DeadLetters {
 public:
  // From here on, below those of progress: of records that are sent again.
  static constexpr delivery::Sequence kFirstSequence = delivery::kFirstOwnSequence;
  // Decisions are looked for so often, while anything is open.
  static constexpr std::chrono::milliseconds kLookEvery{1'000};
  static constexpr std::chrono::milliseconds kAskAgainAfter{2'000};
  static constexpr std::chrono::milliseconds kRetryRejectedAfter{6'000};  // longer than the sink's
  // The line is held for the end of a release when no more rows than these are left of the key.
  static constexpr std::size_t kHeldRowsMax = 10;
  // More waiting to be written stop the line.
  static constexpr std::size_t kWaitingMax = 1'000;
  static constexpr std::size_t kInsertRowsMax = 100;

  using RowOf = std::function<base::DeadLetter(delivery::Sequence)>;

  DeadLetters(const PipelineOptions& options, const delivery::Tracker* tracker,
              envelope::SchemaTable* schemas = nullptr);

  // A server that has fewer rows than progress remembers was set back.
  void OnConnected(const base::SourceFacts& facts);
  void Forget();
  void GiveUp();  // the tracker gave up everything that was to be written

  // What is read next may be taken: it is known which keys are parked, and which events have a row.
  bool loaded() const { return loaded_ && !sent_rows_.must_read(streamed_to_); }

  // What is before `place` was sent on this connection. The events of a transaction come in their
  // order; `record` holds until the next call.
  void Pass(const envelope::Position& place);
  Repeat OnEvent(const envelope::Position& position, std::string_view event_id,
                 envelope::Record* record);

  // The line need not wait for what is to be written, nor for decisions that make room.
  bool has_room() const;

  std::size_t parked_keys() const { return keys_.size(); }

  std::uint64_t open_rows() const { return open_rows_; }

  const Destinations& destinations() const { return destinations_; }

  // Rows that the pipeline ever wrote, as far as it is known.
  std::uint64_t written_rows() const { return written_rows_; }

  bool full() const { return open_rows_ >= rows_max_; }

  // One in `part` of what may be open is.
  bool Fills(std::uint64_t part) const;
  // No event behind the last that waits is to be offered before some are written.
  bool Crowded(delivery::Sequence next) const;

  // No connection is needed.
  bool idle() const;

  bool IsParked(std::string_view topic, std::string_view key) const;

  // It becomes a row behind those of its key. What is before the first of them goes by itself.
  bool Follows(std::string_view topic, std::string_view key, delivery::Sequence sequence) const;

  // The line stops at this event of the key for a moment. One before the last that waits to be
  // written becomes a row: the release waits for it.
  bool IsHeld(std::string_view topic, std::string_view key, delivery::Sequence sequence) const;

  // This event is to be written. With a `topic` its key is parked. `follows`: nothing is known to
  // be wrong with it, it stands behind another one of its key.
  void Add(delivery::Sequence sequence, std::string_view topic = {}, std::string_view key = {},
           bool follows = false);
  std::optional<DeadLetterRequest> TakeRequest(base::Now now, const RowOf& row_of);
  std::optional<Halt> OnReply(DeadLetterReply reply, base::Now now, DeadLetterOutcome* outcome);

  // What committed before is not sent again by the server.
  void OnConfirmable(base::Lsn lsn) { confirmable_ = lsn; }

  envelope::SchemaTable::Ref schema() const { return record_.schema; }  // of the release; 0 = none

  // The newest trouble with it; empty = none since the last reply.
  const std::string& trouble() const { return trouble_; }

  void Tick(base::Now now);

  // --- Records that are sent again, through the sink of the events; as ProgressKeeper ---
  const envelope::Record* waiting(base::Now now) const;

  delivery::Sequence sequence() const { return sequence_; }

  // That waits for Kafka, or for its turn; its topic is empty = there is none.
  const envelope::Record& record() const { return record_; }

  // What became of it in company says nothing: it is to be tried alone.
  bool needs_answer() const { return needs_answer_; }

  void OnAccepted();

  // It is with the sink and has no answer, and is not to be sent any more: the session is to end.
  bool recalled() const { return recalled_; }

  void OnAcknowledged();
  // `left`: how much longer the answer must last.
  void OnRejected(const delivery::Failure& failure, bool alone, std::chrono::milliseconds left,
                  base::Now now);
  void OnLost();

  std::optional<base::MonotonicTime> NextDeadline() const;

  void CheckInvariants() const;

 private:
  using Release = DeadLetterRelease;
  enum class Sending { kNone, kWaiting, kOutstanding };

  bool must_write() const;
  std::string WhyNothingIsRead() const;
  void LookIfPassed();
  envelope::Position PositionOf(delivery::Sequence sequence) const;
  envelope::Position ReleasableTo() const;
  ParkedKey& Key(std::string_view topic, std::string_view key);
  std::vector<delivery::Sequence> Writable(std::size_t most) const;
  bool MayWrite(delivery::Sequence sequence, const WaitingRow& waiting) const;
  bool IsNext(delivery::Sequence sequence, base::ParkedKeyId key, const ParkedKey& parked) const;
  bool IsSettled(std::string_view topic, delivery::Sequence below, delivery::Sequence* to) const;
  std::optional<DeadLetterRequest> Insertion(base::Now now, const RowOf& row_of);
  std::optional<std::size_t> NextDiscard() const;
  DeadLetterRequest DiscardStep() const;
  std::optional<DeadLetterRequest> ReleaseStep() const;
  bool MayDecide() const;
  DeadLetterRequest LookForDecisions() const;
  DeadLetterRequest Ask(DeadLetterRequest request);
  void Refill(base::Now now);
  void OnInserted(const DeadLetterReply& reply, DeadLetterOutcome* outcome);
  void OnAnswered(delivery::Sequence sequence, base::DeadLetterState state);
  void OnKeysLoaded(const DeadLetterReply& reply);
  void OnRowsLoaded(const DeadLetterReply& reply);
  std::optional<Halt> CheckWritten(std::uint64_t written);
  void OnDiscarded(std::size_t index, const DeadLetterReply& reply);
  void Begin(base::DeadLetter decision, base::Now now);
  void OnReleaseReply(DeadLetterReply reply, base::Now now);
  void RowIsDone();
  void OnRead(DeadLetterReply reply);
  void OnLookedAgain(const DeadLetterReply& reply);
  void SendNext();
  void Send();
  void Prepare(const base::DeadLetter& row, const std::string& topic);
  bool IsToBeSent(const DeadLetterReply& reply) const;
  bool MayComeAgain(const base::DeadLetter& row) const;
  void Fail(const std::string& why, bool unpark = false);
  bool StopsNobody(const base::DeadLetter& row) const;
  bool LetGo(const base::DeadLetter& of);
  void KeyIsDone();
  bool AwaitWritten();
  void EndRelease();
  void Drop();

  const std::size_t rows_max_;
  const double rows_per_second_;
  const delivery::Tracker* const tracker_;
  envelope::SchemaTable* const schemas_;
  const RowRecords records_;
  const Destinations destinations_;
  const bool messages_halt_;

  absl::flat_hash_map<base::ParkedKeyId, ParkedKey> keys_;
  std::map<delivery::Sequence, WaitingRow> waiting_;  // to be written
  std::optional<Release> release_;
  std::vector<DeadLetterDiscard> discards_;
  bool discards_stalled_ = false;  // the last try failed: somebody may hold the rows

  KnownRows known_rows_;
  SentRows sent_rows_;
  std::vector<envelope::RecordHeader> repeated_headers_;
  envelope::Position streamed_to_;  // of the stream: what is before has come
  bool loaded_ = true;
  bool keys_loaded_ = true;  // once more behind the rows: one may have been written in between
  bool rows_loaded_ = true;
  bool sent_deleted_ = true;  // those whose events cannot come again
  std::int64_t loaded_through_ = 0;
  base::Lsn loaded_from_;
  base::SourceFacts facts_;
  bool looked_ = false;  // for decisions, since the connection was made
  std::optional<envelope::Position> retry_waits_for_;  // until the stream has passed it
  bool changed_ = false;                               // the table, by the newest release
  std::uint64_t open_rows_ = 0;
  std::uint64_t written_rows_ = 0;
  std::string trouble_;
  base::Lsn confirmable_;

  bool asked_ = false;  // a request is under way
  DeadLetterRequest::Kind asked_kind_ = DeadLetterRequest::Kind::kLoad;
  std::uint64_t request_id_ = 0;
  std::vector<delivery::Sequence> inserting_;
  bool writable_ = false;                  // some of waiting_ were, when it was looked at last
  std::optional<std::size_t> discarding_;  // it is about this one of discards_
  bool release_is_next_ = false;
  base::MonotonicTime ask_at_;      // not before
  base::MonotonicTime look_at_;     // for decisions
  base::MonotonicTime discard_at_;  // not before
  double allowance_ = 0;            // rows that may be written now
  base::MonotonicTime refilled_at_;
  base::ChunkArena arena_;
  Sending sending_ = Sending::kNone;
  bool needs_answer_ = false;
  bool rejected_ = false;  // alone
  bool recalled_ = false;
  delivery::Sequence sequence_ = kFirstSequence;
  envelope::Record record_;
  std::vector<envelope::RecordHeader> headers_;
  base::MonotonicTime retry_at_;
};

}  // namespace walpost::pipeline
