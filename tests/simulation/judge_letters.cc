// What the judge knows of the dead-letter topic, and what must not happen there.
#include <algorithm>
#include <chrono>

#include "judge.h"
#include "violation.h"

namespace walpost::simulation {

using envelope::Letter;
using envelope::LetterAction;
using envelope::LoggedLetter;
using pipeline::OnUndeliverable;
using Kind = Identity::Kind;

std::optional<std::uint64_t> Judge::FindPosition(std::uint32_t lane, const std::string& position) {
  Grow();
  for (const std::uint64_t index : lane_events_[lane]) {
    if (PositionOf(index) == position) {
      return index;
    }
  }
  return std::nullopt;
}

std::optional<std::uint32_t> Judge::LaneOf(const LoggedLetter& letter) {
  Grow();
  const auto found = lane_names_.find(letter.letter.topic + ' ' + letter.key.value_or(""));
  return found == lane_names_.end() ? std::nullopt : std::optional(found->second);
}

// Is a gap at this event all right?
bool Judge::Excused(std::uint64_t event) const {
  const State& state = states_[event];
  return state.skipped || state.sent_as_letter || state.discarded || Gone(event);
}

bool Judge::MaySkip(std::uint64_t event) const {
  return policy_ == OnUndeliverable::kSkip && (blamed(event) || server_->events()[event].unfit);
}

void Judge::OnSkipped(const std::string& id) {
  Grow();
  const std::uint64_t event = Find(id);
  Require(MaySkip(event), "event %s was skipped, but nothing refused it", id);
  states_[event].skipped = true;
}

void Judge::CheckLetterSubmitted(const Identity& what) {
  const Event& event = server_->events()[what.event];
  State& state = states_[what.event];
  if (what.kind == Kind::kLetter) {
    Require(blamed(what.event) || event.unfit, "event %s became a letter, but nothing refused it",
            event.id);
    state.sent_as_letter = true;
  } else {
    const bool follows = what.reason == "key_parked";
    Require(blamed(what.event) || (follows && lane_parked_[event.lane]),
            "event %s is parked, but nothing refused it (%s)", event.id, what.reason);
    const auto held = held_.find(event.lane);
    Require(held == held_.end() || what.event <= held->second,
            "event %s is parked while the decision about its key is on its way", event.id);
    lane_parked_[event.lane] = true;
    state.sent_parked = true;
  }
}

void Judge::CheckAgainSubmitted(const Identity& what) {
  const Event& event = server_->events()[what.event];
  const State& state = states_[what.event];
  Require(undecided_[event.lane].contains(what.event) || state.decided_at >= read_below_,
          "event %s is sent again, but it is decided at offset %d", event.id, state.decided_at);
}

void Judge::OnLetter(const Identity& what, const LoggedLetter& logged) {
  if (what.kind == Kind::kDecision) {
    return;  // OnDecision
  }
  Grow();
  State& state = states_[what.event];
  state.in_letters = true;
  if (what.kind == Kind::kParked) {
    state.stub = state.stub || logged.letter.left_out_bytes.has_value();
    undecided_[server_->events()[what.event].lane].insert(what.event);
  }
}

void Judge::OnDecision(const LoggedLetter& decision, const LoggedLetter* command) {
  const Letter& letter = decision.letter;
  Require(
      command != nullptr && command->key == decision.key && command->letter.topic == letter.topic,
      "a decision answers offset %d, where there is no command about its key",
      letter.answers.value_or(-1));
  const std::optional<std::uint32_t> lane = LaneOf(decision);
  if (letter.action == LetterAction::kFailed) {
    const bool blames = letter.detail.find("cannot be delivered yet") != std::string::npos;
    Require(!blames || (lane && again_refused_.contains(*lane)),
            "a retry failed, but no event was refused: %s", letter.detail);
    return;
  }
  Require(lane.has_value(), "a decision about a key that has no events");
  const LetterAction asked = command->letter.action;
  Require((letter.action == LetterAction::kDelivered) == (asked == LetterAction::kRetry),
          "decision %s about command %s", std::string(LetterActionName(letter.action)),
          std::string(LetterActionName(asked)));
  Require(letter.through.empty() != letter.position.empty(), "a decision about what?");
  if (letter.through.empty()) {
    Require(command->letter.position == letter.position, "a decision about another event");
    if (const auto event = FindPosition(*lane, letter.position)) {
      // Also before it follows its key into the log.
      Decide(*event, /*discarded=*/true, decision.offset);
    }
    return;
  }
  const std::optional<std::uint64_t> through = FindPosition(*lane, letter.through);
  Require(through && states_[*through].sent_parked,
          "the decision goes through %s, which was never parked", letter.through);
  // A single event was discarded, and it was the last one of its key.
  const bool single = !command->letter.position.empty();
  const std::optional<std::uint64_t> last =
      single ? FindPosition(*lane, command->letter.position) : std::nullopt;
  for (const std::uint64_t event : lane_events_[*lane]) {
    if (event > *through) {
      break;
    }
    // Parked once more after a crash it may have been decided before.
    Require(!single || event == last || !undecided_[*lane].contains(event) || visible_[event] ||
                states_[event].discarded,
            "to discard one event decided %s, too", server_->events()[event].id);
    if (letter.action == LetterAction::kDelivered) {
      Require(visible_[event] || Excused(event),
              "G3: the decision says that %s was delivered, but it is not there",
              server_->events()[event].id);
    }
    // One of the key that is still on its way by itself is not meant.
    const bool meant = single ? event == last : states_[event].sent_parked;
    Decide(event, letter.action == LetterAction::kDiscarded && meant, decision.offset);
  }
}

void Judge::Decide(std::uint64_t event, bool discarded, std::int64_t offset) {
  State& state = states_[event];
  state.discarded = state.discarded || discarded;
  state.decided_at = offset;
  undecided_[server_->events()[event].lane].erase(event);
}

void Judge::OnLettersRead(const pipeline::LettersRead& read, bool for_release) {
  if (read.status.ok() && !for_release) {
    read_below_ = std::max(read_below_, read.next_offset);
    for (const LoggedLetter& logged : read.letters) {
      const std::optional<std::uint32_t> lane = LaneOf(logged);
      if (logged.letter.kind == envelope::LetterKind::kDecision && lane) {
        held_.erase(*lane);
      }
    }
  }
}

}  // namespace walpost::simulation
