// LetterLog - what the records of the dead-letter topic come to: which events lie there undecided,
// which keys are parked, which commands wait for an answer.
// Why: the log is all that is remembered; verbs and `run` must read the same out of it.
// Thread: a value; fed in the order of the log, once.
// Units/limits: some 100 bytes for each undecided event, and its key once for all parked events of
//   it; nothing for decided ones unless asked for.
// Errors: kDataLoss for a record that lacks what its kind must have.
// Rules: an event is its position, so a repeat of an undecided one adds nothing. A decision is
//   about what stands before it: an event that comes again later is undecided again, since it was
//   sent again (at least once). `failed` only answers.
// Source: docs/dead-letters.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "envelope/letter.h"
#include "envelope/position.h"

namespace walpost::envelope {

class LetterLog {
 public:
  // What has an order: topic, and the record's key.
  struct Key {
    std::string topic;
    std::string key;

    friend auto operator<=>(const Key&, const Key&) = default;
  };

  // Never without events.
  struct ParkedKey {
    std::map<Position, std::int64_t> events;  // offset of each, which need not grow with it

    std::int64_t FirstOffset() const;

    const Position& LastPosition() const { return events.rbegin()->first; }
  };

  struct Command {
    LetterAction action = LetterAction::kNone;
    Key key;
    std::optional<Position> position;  // only this event
  };

  struct Decision {
    LetterAction action = LetterAction::kNone;
    std::int64_t offset = 0;  // of the decision
  };

  // With `keep_decided`, memory for each decided event too.
  explicit LetterLog(bool keep_decided = false) : keep_decided_(keep_decided) {}

  absl::Status Add(std::int64_t offset, std::optional<std::string_view> record_key,
                   const Letter& letter);

  // Events of keys that are not parked: the offset of each.
  const std::map<Position, std::int64_t>& letters() const { return letters_; }

  // A key is here as long as an event of it is parked.
  const std::map<Key, ParkedKey>& parked() const { return parked_; }

  const ParkedKey* FindParked(std::string_view topic,
                              std::optional<std::string_view> record_key) const;

  // Without an answer, by offset.
  const std::map<std::int64_t, Command>& pending() const { return pending_; }

  // Whether the letter or parked event at this offset stands for an undecided event; false for the
  // repeat of one.
  bool IsUndecided(std::int64_t offset, std::optional<std::string_view> record_key,
                   const Letter& letter) const;

  // What was decided about the event at this offset. Only with `keep_decided`.
  const Decision* FindDecision(std::int64_t offset) const;

 private:
  absl::Status AddParked(std::int64_t offset, std::optional<std::string_view> record_key,
                         const Letter& letter);
  absl::Status Decide(std::int64_t offset, std::optional<std::string_view> record_key,
                      const Letter& letter);
  void Keep(std::int64_t event_offset, const Decision& decision);

  const bool keep_decided_;
  std::map<Position, std::int64_t> letters_;
  std::map<Key, ParkedKey> parked_;
  std::map<std::int64_t, Command> pending_;
  std::map<std::int64_t, Decision> decided_;
};

}  // namespace walpost::envelope
