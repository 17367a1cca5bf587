// ParkingLot - which keys are parked, and how they are released: `delivery.on_undeliverable: park`.
// Why: after an event that could not be delivered, later events of its key must not overtake it. They
//   follow it into the dead-letter topic until an operator decides; then they are sent from there, in
//   order, while newer ones still go the same way, until nothing is between the last one and the
//   stream.
// How: the dead-letter topic is the truth. What is read from it makes the table; a key is released by
//   a decision that has been read there. Only the last step, writing that decision, stops the line,
//   and only for an event of that key.
// Thread: loop thread.   Lifetime: `tracker` must outlive it.
// Limits: park_keys_max keys; one key is released at a time, one event of it is outstanding.
// Errors: a log that cannot be read stops the stream before its first event: without it nobody knows
//   which keys are parked.
// Source: docs/dead-letters.md.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/chunk_arena.h"
#include "base/time.h"
#include "delivery/sink.h"
#include "delivery/tracker.h"
#include "envelope/letter.h"
#include "envelope/schema_table.h"
#include "pipeline/halt.h"
#include "pipeline/options.h"

namespace walpost::pipeline {

// What the runtime shall read of the dead-letter topic.
struct LetterRead {
  std::uint64_t id = 0;
  std::int64_t from_offset = 0;
  // The key whose parked events are wanted with value and headers; no topic = none.
  std::string topic;
  std::string key;
};

struct LettersRead {
  std::uint64_t id = 0;  // of the LetterRead
  absl::Status status;
  std::vector<envelope::LoggedLetter> letters;  // of this pipeline
  std::int64_t next_offset = 0;
  bool at_end = false;  // everything that was there when the read began has been read
};

class ParkingLot {
 public:
  // Sequences from here on, below those of progress, are records of the lot.
  static constexpr delivery::Sequence kFirstSequence = delivery::Sequence{1} << 62U;
  // Commands are looked for so often, while any key is parked.
  static constexpr std::chrono::milliseconds kReadEvery{1'000};
  static constexpr std::chrono::milliseconds kReadAgainAfter{50};
  static constexpr std::chrono::milliseconds kRetryReadAfter{2'000};
  // Longer than a refusal of a topic is kept by the sink.
  static constexpr std::chrono::milliseconds kRetryRefusedAfter{6'000};

  // `schemas` may be null where nothing is framed.
  ParkingLot(const PipelineOptions& options, const delivery::Tracker* tracker,
             envelope::SchemaTable* schemas = nullptr);

  // Letters are written, so keys may be parked, also by an earlier policy.
  bool on() const { return on_; }

  // Another instance may have had the slot meanwhile: the log is read to its end first.
  void OnConnected();
  void Forget();

  bool ready() const { return !on_ || ready_; }

  bool any() const { return !keys_.empty(); }

  std::size_t size() const { return keys_.size(); }

  bool full() const { return keys_.size() >= keys_max_; }

  bool IsParked(std::string_view topic, std::string_view key) const;

  // Its letter comes behind those of its key. What stands before the first of them goes by itself.
  bool Follows(std::string_view topic, std::string_view key, delivery::Sequence sequence) const;

  // The line stops at an event of this key for a moment.
  bool IsHeld(std::string_view topic, std::string_view key) const;

  // A letter of this event is about to be written.
  void Park(std::string_view topic, std::string_view key, std::string_view position,
            delivery::Sequence sequence);

  // Before the letter that parks a key, every event before it is settled: one that fails then would
  // follow into the log behind a later event of its key.
  bool MayWrite(delivery::Sequence sequence) const {
    return tracker_->oldest_unsettled() >= std::min(sequence, settle_below_);
  }

  // --- Reading the log ---
  std::optional<LetterRead> TakeRead(base::Now now);
  std::optional<Halt> OnRead(LettersRead read, base::Now now);

  // Goes on with what waited for events on their way.
  void Tick(base::Now now);

  // --- Records of its own, through the sink of the events; as ProgressKeeper ---
  const envelope::Record* waiting(base::Now now) const;

  delivery::Sequence sequence() const { return sequence_; }

  // What became of it in company says nothing: it is to be tried alone.
  bool needs_verdict() const { return needs_verdict_; }

  void OnAccepted() { sending_ = Sending::kOutstanding; }

  void OnAcknowledged();
  void OnRefused(const delivery::Failure& failure, bool alone, base::Now now);
  void OnLost();

  std::optional<base::MonotonicTime> NextDeadline() const;

 private:
  struct ParkedKey {
    std::string topic;
    std::string key;
    delivery::Sequence first_sequence = 0;  // of ours that is parked; 0 = read from the log
    std::int64_t first_offset = 0;          // nothing of it stands before, in the log
    std::string last_read;                  // highest position read from the log
    std::string last_written;               // highest position given to the sink
    std::string decided_through;            // decided, though later ones are parked still
    std::set<std::string> discarded;        // positions an operator discarded one by one

    const std::string& last() const { return std::max(last_read, last_written); }
  };

  struct Command {
    std::int64_t offset = 0;
    envelope::LetterAction action = envelope::LetterAction::kNone;
    std::string id;  // of the key
    std::string topic;
    std::string key;
    std::string position;  // the only event that is meant
  };

  // A command that is being obeyed.
  struct Release {
    enum class Phase {
      kSettling,   // events of the key that went before it was parked are still on their way
      kReading,    // the log, for the next parked events
      kSending,    // the first of `events`
      kDeciding,   // the decision is on its way; the line is held for this key
      kAnswering,  // that nothing was decided, or not about the whole key
      kSeeing,     // the decision is acknowledged, and is waited for in the log
    };

    Command command;
    Phase phase = Phase::kSettling;
    delivery::Sequence settled_below = 0;
    std::int64_t cursor = 0;
    std::deque<envelope::LoggedLetter> events;
    std::string sent_through;
    bool held = false;
    bool over = false;  // answered by somebody else; what is outstanding is still waited for
  };

  enum class Sending { kNone, kWaiting, kOutstanding };

  const std::string& IdOf(std::string_view topic, std::string_view key) const;
  void Take(const envelope::LoggedLetter& logged);
  void TakeParked(const envelope::LoggedLetter& logged);
  void TakeCommand(const envelope::LoggedLetter& logged);
  void TakeDecision(const envelope::LoggedLetter& logged);
  ParkedKey* Releasing();
  void TakeForRelease(std::vector<envelope::LoggedLetter> letters);
  void Begin(base::Now now);
  void SendNext();
  void Prepare(const envelope::LoggedLetter& next);
  std::uint32_t SourceOf(const std::string& table) const;
  void Decide(envelope::LetterAction action);
  void Answer(envelope::LetterAction action, const std::string& detail);
  void Write(const envelope::Letter& letter);
  void Drop();
  void EndRelease();

  const bool on_;
  const std::string pipeline_;
  const std::string topic_;
  const std::size_t keys_max_;
  const delivery::Tracker* const tracker_;
  envelope::SchemaTable* const schemas_;
  std::vector<std::string> tables_;  // of the outboxes, in their order

  absl::flat_hash_map<std::string, ParkedKey> keys_;  // by IdOf
  mutable std::string id_;                            // scratch of IdOf
  std::map<std::int64_t, Command> commands_;          // unanswered, by offset
  std::optional<Release> release_;
  delivery::Sequence settle_below_ = 0;  // the last key was parked here

  bool ready_ = false;
  bool at_end_ = false;
  std::int64_t next_offset_ = 0;
  std::uint64_t read_id_ = 0;
  bool reading_ = false;
  bool reading_for_release_ = false;
  base::MonotonicTime read_at_;

  base::ChunkArena arena_;
  Sending sending_ = Sending::kNone;
  bool needs_verdict_ = false;
  bool refused_ = false;  // once, alone
  delivery::Sequence sequence_ = kFirstSequence;
  envelope::Record record_;
  std::vector<envelope::RecordHeader> headers_;  // of a record that is sent again
  base::MonotonicTime retry_at_;
};

}  // namespace walpost::pipeline
