// DeadLetterRequest, DeadLetterReply, DeadLetterOutcome - one question to walpost.dead_letters, or
// one change of it.
// Why: the pipeline decides, the runtime carries out. Each may be repeated: the second time it
//   changes nothing more.
// Thread: values.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/dead_letter.h"
#include "base/lsn.h"
#include "base/time.h"
#include "delivery/sink.h"

namespace walpost::pipeline {

struct DeadLetterRequest {
  enum class Kind {
    kInsert,  // rows, but for those that are there already
    kLoad,    // which keys are parked, behind seq
    kLoadRows,  // rows but those of kReadSent, by where their event commits and seq, behind `from` and
                // seq: seq, position, event_id
    kReadSent,  // with records: rows of parked keys that were sent, by where their event commits and its
                // position, behind `position`
    kDeleteSent,  // some of the rows that were sent and whose events commit before `from`
    // The oldest decision that can be carried out. A retry of a parked key can, once its row is
    // before `position`: what was before it comes again first. `beside`: only discards, of another
    // key or row. `retries_only`: only retries, of keys without a discard.
    kDecision,
    // With records: the first open rows of the key, in the order of the stream, that stand before
    // `position`. Those behind seq about which nobody ever decided are to be sent from here on. Or
    // the row seq. None where the row seq is to be sent no more and it has not `begun`.
    kRead,
    kLookAgain,  // what is decided about the row seq
    kDelivered,  // the row seq was sent
    kFailed,  // it could not be: the decision is taken back, detail says why. `unpark`: of this row
              // alone, which is of no parked key any more
    kDiscarded,     // the row seq is closed
    kKeyDiscarded,  // the rows of the key that have this decision are; of those behind them, or behind
                    // seq where that is closed already, the undecided ones are to be sent
  };

  std::uint64_t id = 0;
  Kind kind = Kind::kLoad;
  std::vector<base::DeadLetter> rows = {};
  std::vector<bool> only_known = {};  // kInsert, of each row: it is not written, only looked for
  std::int64_t seq = 0;
  base::Lsn from = {};
  std::string position = {};
  bool of_key = false;        // topic and key are a parked key
  bool beside = false;        // kDecision: something is being released
  bool retries_only = false;  // kDecision: a discard waits
  bool begun = false;         // kRead: earlier rows of the release are gone
  bool keep = false;          // kDelivered: the row stays, closed
  bool unpark = false;        // kFailed
  std::string topic = {};
  std::string key = {};
  std::string detail = {};
};

struct DeadLetterReply {
  std::uint64_t id = 0;                            // of the request
  absl::Status status;                             // kUnavailable: to be asked again
  std::vector<base::DeadLetterState> states = {};  // kInsert, of each row
  std::vector<base::ParkedKey> keys = {};          // kLoad
  // kDecision, kLookAgain: an open one or none; kRead, kLoadRows, kReadSent
  std::vector<base::DeadLetter> rows = {};
  std::uint64_t written = 0;  // kInsert, kLoad: rows that the pipeline ever wrote
  bool in_recovery = false;   // kLoad: a standby, which may lag with them
  bool at_end = false;  // kLoad, kLoadRows, kReadSent, kRead, kDeleteSent: nothing is behind it
  // kDecision without a row: a retry waits until the stream has passed this position; empty = none
  std::string waits_for = {};
  bool closed = true;           // what was to be closed was still open, and to be
  bool key_open = false;        // kRead, kDiscarded, kKeyDiscarded: the key has open rows
  std::uint64_t open_rows = 0;  // of the pipeline
};

// What a reply to kInsert means for events.
struct DeadLetterOutcome {
  std::vector<delivery::Sequence> written;     // have become rows
  std::vector<delivery::Sequence> given_back;  // their key is not parked after all
};

// DeadLetterRelease, DeadLetterDiscard - decisions about dead letters that are being carried out.
// Why: a release waits for Kafka, which may not answer for days. Nothing else may wait for it then.
// Thread: values.
// Source: docs/dead-letters.md, Parked keys.

// A parked key, or one row, that is sent again.
struct DeadLetterRelease {
  // Nothing waits any longer for an answer.
  static constexpr std::chrono::milliseconds kStalledAfter{3'000};
  // From then on the decision about what is on its way is looked at so often.
  static constexpr std::chrono::milliseconds kLookEvery{1'000};

  enum class Phase {
    kSettling,  // what was read before is still on its way, into the topic or the table
    kReading,   // the next rows are asked for
    kLooking,   // what is decided about the first of `rows` by now
    kSending,   // the first of `rows`
    kClosing,   // what became of the first of `rows` is written
  };

  base::DeadLetter decision;
  Phase phase = Phase::kSettling;
  delivery::Sequence settled_below = 0;       // what was read before goes first
  mutable delivery::Sequence settled_to = 0;  // below here it is known to be settled
  std::deque<base::DeadLetter> rows;
  bool begun = false;     // a row of it is done
  std::string failure;    // why the first of `rows` ends it
  bool unpark = false;    // or goes on without it
  bool unparked = false;  // one that was tried twice
  bool held = false;      // only a few rows are left: the line waits for them

  bool stalled = false;
  bool look_again = false;  // at the decision, while its record is on its way
  bool lost = false;        // since it was last asked what is decided
  base::MonotonicTime due;

  void GoesOn(base::Now now) {
    stalled = look_again = false;
    due = now.mono + kStalledAfter;
  }

  void Tick(base::Now now) {
    if (now.mono >= due) {
      stalled = true;
      look_again = phase == Phase::kSending || phase == Phase::kSettling;
      due = now.mono + kLookEvery;
    }
  }
};

// Of a parked key, or of one row of it.
struct DeadLetterDiscard {
  base::DeadLetter decision;
  bool closed = false;  // the rows are; events of the key that wait to be written are to be sent
};

}  // namespace walpost::pipeline
