#include "runtime/letters_job.h"

#include <string>
#include <utility>

#include "absl/status/status.h"

namespace walpost::runtime {
namespace {

bool IsWanted(const kafka::StoredLetter& stored, const pipeline::LetterRead& wanted) {
  return stored.letter.kind == envelope::LetterKind::kParked && !wanted.topic.empty() &&
         stored.letter.topic == wanted.topic && stored.key == wanted.key;
}

envelope::LoggedLetter Keep(const kafka::StoredLetter& stored, bool whole) {
  envelope::LoggedLetter logged;
  logged.offset = stored.offset;
  logged.letter = stored.letter;
  if (stored.key) {
    logged.key = std::string(*stored.key);
  }
  if (!whole) {
    return logged;
  }
  if (stored.value) {
    logged.value = std::string(*stored.value);
  }
  for (const envelope::RecordHeader& header : envelope::EventHeaders(stored.headers)) {
    logged.headers.emplace_back(header.name, header.value);
  }
  return logged;
}

}  // namespace

pipeline::LettersRead ReadForLot(const kafka::KafkaOptions& options, kafka::LetterPlace place,
                                 const pipeline::LetterRead& wanted) {
  pipeline::LettersRead read;
  read.id = wanted.id;
  place.from_offset = wanted.from_offset;
  std::size_t value_bytes = 0;
  bool full = false;
  const auto keep = [&](const kafka::StoredLetter& stored) {
    read.next_offset = stored.offset + 1;
    if (stored.letter.kind == envelope::LetterKind::kLetter) {
      return absl::OkStatus();
    }
    const bool whole = IsWanted(stored, wanted);
    value_bytes += whole && stored.value ? stored.value->size() : 0;
    read.letters.push_back(Keep(stored, whole));
    full = value_bytes >= kValueBytesMax || read.letters.size() >= kLettersMax;
    return full ? absl::AbortedError("enough for now") : absl::OkStatus();
  };
  const absl::StatusOr<std::int64_t> end =
      kafka::ReadLetters(options, place, keep, kReadLettersStep);
  if (end.ok()) {
    read.next_offset = *end;
    read.at_end = true;
  } else if (!full) {
    read.status = end.status();
  }
  return read;
}

}  // namespace walpost::runtime
