// ParkedKey, WaitingRow - a key of which no event may overtake those in walpost.dead_letters, and an event
// that is to become a row there.
// Why: internal to DeadLetters.
// Thread: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dead_letter.h"
#include "delivery/sink.h"
#include "envelope/position.h"

namespace walpost::pipeline {

// Of base::DeadLetter::place. None: before all.
inline std::optional<envelope::Position> PositionOfPlace(std::string_view place) {
  auto position = envelope::Position::Parse(place.substr(0, envelope::Position::kTextSize));
  if (!position.ok()) {
    return std::nullopt;
  }
  position->ordinal += place.size() > envelope::Position::kTextSize ? 1 : 0;
  return *position;
}

struct ParkedKey {
  static constexpr delivery::Sequence kNone = UINT64_MAX;

  delivery::Sequence first_sequence = kNone;  // of those that this process read and parked
  // Of the first of its rows that were open when it was read from the table. Zero: all follow.
  std::optional<envelope::Position> open_from;
  // Events of its topic before here were on their way when it was parked.
  delivery::Sequence settle_below = 0;
  mutable delivery::Sequence settled_to = 0;  // below here they are known to be
  mutable delivery::Sequence parked_to =
      0;                    // below here those of the key wait to be rows, or are settled
  std::size_t waiting = 0;  // events of it that are to be written
  bool open = false;        // the table has rows of it
  bool seen = false;        // since the connection was made
};

struct WaitingRow {
  std::optional<base::ParkedKeyId> key;  // that it is parked with
  bool follows = false;                  // nothing is known to be wrong with it
};

}  // namespace walpost::pipeline
