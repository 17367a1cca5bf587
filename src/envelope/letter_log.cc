#include "envelope/letter_log.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace walpost::envelope {
namespace {

absl::Status Lacks(const Letter& letter, std::string_view what) {
  return absl::DataLossError(
      absl::StrFormat("a record of kind '%s' without %s", LetterKindName(letter.kind), what));
}

absl::StatusOr<Position> ParsePosition(const Letter& letter, std::string_view text) {
  const absl::StatusOr<Position> position = Position::Parse(text);
  return position.ok() ? position : Lacks(letter, "a position");
}

}  // namespace

std::int64_t LetterLog::ParkedKey::FirstOffset() const {
  return std::min_element(events.begin(), events.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->second;
}

absl::Status LetterLog::Add(std::int64_t offset, std::optional<std::string_view> record_key,
                            const Letter& letter) {
  switch (letter.kind) {
    case LetterKind::kLetter: {
      ASSIGN_OR_RETURN(const Position position, ParsePosition(letter, letter.position));
      const ParkedKey* parked = FindParked(letter.topic, record_key);
      if (parked == nullptr || parked->events.count(position) == 0) {
        letters_.emplace(position, offset);
      }
      return absl::OkStatus();
    }
    case LetterKind::kParked:
      return AddParked(offset, record_key, letter);
    case LetterKind::kCommand: {
      if (!record_key) {
        return Lacks(letter, "a key");
      }
      Command command{letter.action, {letter.topic, std::string(*record_key)}, std::nullopt};
      if (!letter.position.empty()) {
        ASSIGN_OR_RETURN(command.position, ParsePosition(letter, letter.position));
      }
      pending_.emplace(offset, std::move(command));
      return absl::OkStatus();
    }
    case LetterKind::kDecision:
      return Decide(offset, record_key, letter);
  }
  return absl::OkStatus();
}

absl::Status LetterLog::AddParked(std::int64_t offset, std::optional<std::string_view> record_key,
                                  const Letter& letter) {
  if (!record_key) {
    return Lacks(letter, "a key");
  }
  ASSIGN_OR_RETURN(const Position position, ParsePosition(letter, letter.position));
  letters_.erase(position);  // a repeat, under another policy
  parked_[{letter.topic, std::string(*record_key)}].events.emplace(position, offset);
  return absl::OkStatus();
}

absl::Status LetterLog::Decide(std::int64_t offset, std::optional<std::string_view> record_key,
                               const Letter& letter) {
  if (letter.answers) {
    pending_.erase(*letter.answers);
  }
  if (letter.action == LetterAction::kFailed) {
    return absl::OkStatus();
  }
  const bool one = letter.through.empty();
  ASSIGN_OR_RETURN(const Position position,
                   ParsePosition(letter, one ? letter.position : letter.through));
  const Decision decision{letter.action, offset};
  if (const auto found = letters_.find(position); one && found != letters_.end()) {
    Keep(found->second, decision);
    letters_.erase(found);
    return absl::OkStatus();
  }
  if (!record_key) {
    return one ? absl::OkStatus() : Lacks(letter, "a key");
  }
  const auto parked = parked_.find({letter.topic, std::string(*record_key)});
  if (parked == parked_.end()) {
    return absl::OkStatus();  // decided before
  }
  auto& events = parked->second.events;
  const auto first = one ? events.lower_bound(position) : events.begin();
  const auto last = events.upper_bound(position);
  for (auto event = first; event != last; ++event) {
    Keep(event->second, decision);
  }
  events.erase(first, last);
  if (events.empty()) {
    parked_.erase(parked);
  }
  return absl::OkStatus();
}

void LetterLog::Keep(std::int64_t event_offset, const Decision& decision) {
  if (keep_decided_) {
    decided_.emplace(event_offset, decision);
  }
}

const LetterLog::ParkedKey* LetterLog::FindParked(
    std::string_view topic, std::optional<std::string_view> record_key) const {
  if (!record_key) {
    return nullptr;
  }
  const auto found = parked_.find({std::string(topic), std::string(*record_key)});
  return found == parked_.end() ? nullptr : &found->second;
}

bool LetterLog::IsUndecided(std::int64_t offset, std::optional<std::string_view> record_key,
                            const Letter& letter) const {
  const absl::StatusOr<Position> position = Position::Parse(letter.position);
  if (!position.ok()) {
    return false;
  }
  const auto is = [&](const std::map<Position, std::int64_t>& events) {
    const auto found = events.find(*position);
    return found != events.end() && found->second == offset;
  };
  const ParkedKey* parked = FindParked(letter.topic, record_key);
  return is(letters_) || (parked != nullptr && is(parked->events));
}

const LetterLog::Decision* LetterLog::FindDecision(std::int64_t offset) const {
  const auto found = decided_.find(offset);
  return found == decided_.end() ? nullptr : &found->second;
}

}  // namespace walpost::envelope
