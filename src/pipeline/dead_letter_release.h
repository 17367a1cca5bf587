// DeadLetterRelease, DeadLetterDiscard - decisions about dead letters that are being carried out.
// Why: a release waits for Kafka, which may not answer for days. Nothing else may wait for it then.
// Thread: values.
// Source: docs/dead-letters.md, Parked keys.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "base/dead_letter.h"
#include "base/time.h"
#include "delivery/sink.h"

namespace walpost::pipeline {

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
