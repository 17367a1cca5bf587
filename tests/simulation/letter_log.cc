#include "letter_log.h"

#include <algorithm>
#include <utility>

#include "violation.h"

namespace walpost::simulation {

using envelope::Letter;
using envelope::LetterAction;
using envelope::LetterKind;
using envelope::LoggedLetter;

LoggedLetter LetterLog::Copy(const envelope::Record& record) {
  LoggedLetter logged;
  const absl::StatusOr<std::optional<Letter>> letter = envelope::ParseLetter(record.headers);
  Require(letter.ok() && letter->has_value(), "a record in the dead-letter topic is no letter");
  logged.letter = **letter;
  if (record.key) {
    logged.key = std::string(*record.key);
  }
  if (record.value) {
    logged.value = std::string(*record.value);
  }
  for (const envelope::RecordHeader& header : envelope::EventHeaders(record.headers)) {
    logged.headers.emplace_back(header.name, header.value);
  }
  return logged;
}

const LoggedLetter& LetterLog::Append(LoggedLetter letter) {
  end_ += random_.Chance(300) ? static_cast<std::int64_t>(random_.Below(4)) : 0;
  letter.offset = end_++;
  letters_.push_back(std::move(letter));
  return letters_.back();
}

const LoggedLetter& LetterLog::AppendCommand(LetterAction action, const std::string& topic,
                                             const std::string& key, const std::string& position) {
  LoggedLetter command;
  command.letter.kind = LetterKind::kCommand;
  command.letter.action = action;
  command.letter.pipeline = kPipeline;
  command.letter.topic = topic;
  command.letter.position = position;
  command.key = key;
  return Append(std::move(command));
}

const LoggedLetter* LetterLog::CommandAt(std::int64_t offset) const {
  const auto found = std::find_if(letters_.begin(), letters_.end(),
                                  [&](const LoggedLetter& each) { return each.offset == offset; });
  return found == letters_.end() || found->letter.kind != LetterKind::kCommand ? nullptr : &*found;
}

bool LetterLog::IsWaiting(const std::string& topic, const std::string& key) const {
  for (auto each = letters_.rbegin(); each != letters_.rend(); ++each) {
    if (each->letter.topic != topic || each->key != key) {
      continue;
    }
    if (each->letter.kind == LetterKind::kCommand) {
      return std::none_of(letters_.begin(), letters_.end(), [&](const LoggedLetter& other) {
        return other.letter.answers == each->offset;
      });
    }
  }
  return false;
}

pipeline::LettersRead LetterLog::Read(const pipeline::LetterRead& wanted) {
  pipeline::LettersRead read;
  read.id = wanted.id;
  read.next_offset = wanted.from_offset;
  std::uint64_t left = random_.Chance(500) ? UINT64_MAX : random_.Between(1, 4);
  for (const LoggedLetter& logged : letters_) {
    if (logged.offset < wanted.from_offset) {
      continue;
    }
    if (left-- == 0) {
      return read;
    }
    read.next_offset = logged.offset + 1;
    if (logged.letter.kind == LetterKind::kLetter) {
      continue;
    }
    const bool whole = logged.letter.kind == LetterKind::kParked && !wanted.topic.empty() &&
                       logged.letter.topic == wanted.topic && logged.key == wanted.key;
    read.letters.push_back(logged);
    if (!whole) {
      read.letters.back().value.reset();
      read.letters.back().headers.clear();
    }
  }
  read.next_offset = std::max(end_, wanted.from_offset);
  read.at_end = true;
  return read;
}

}  // namespace walpost::simulation
