#include "operations/dlq_text.h"

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace walpost::operations {

using envelope::Letter;
using kafka::StoredLetter;
using Json = LetterJson;

std::string Printable(std::string_view bytes, std::size_t chars_max) {
  std::string text;
  for (const char c : bytes) {
    if (chars_max > 0 && text.size() >= chars_max) {
      return text + "...";
    }
    if (c >= ' ' && c <= '~') {
      text += c;
    } else {
      text += absl::StrFormat("\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return text;
}

std::string TimeText(std::int64_t milliseconds) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMillis(milliseconds),
                          absl::UTCTimeZone());
}

std::string Count(std::size_t count, std::string_view noun) {
  return absl::StrFormat("%u %s%s", count, noun, count == 1 ? "" : "s");
}

std::string StateName(const StoredLetter& stored, const LetterState& state) {
  return std::string(state.decision == nullptr
                         ? envelope::LetterKindName(stored.letter.kind)
                         : envelope::LetterActionName(state.decision->action));
}

Json LetterAsJson(const StoredLetter& stored, const LetterState& state) {
  const Letter& letter = stored.letter;
  Json item;
  item["state"] = StateName(stored, state);
  item["id"] = letter.id;
  item["type"] = letter.type;
  item["table"] = letter.table;
  item["topic"] = letter.topic;
  item["partition"] = letter.partition >= 0 ? Json(letter.partition) : Json();
  item["key"] = stored.key ? Json(std::string(*stored.key)) : Json();
  item["reason"] = letter.reason;
  item["schema"] = letter.schema.empty() ? Json() : Json(letter.schema);
  item["detail"] = letter.detail;
  item["attempts"] = letter.attempts;
  item["position"] = letter.position;
  item["event_time"] = letter.timestamp_ms != 0 ? Json(TimeText(letter.timestamp_ms)) : Json();
  item["letter_time"] = TimeText(stored.timestamp_ms);
  item["offset"] = stored.offset;
  item["left_out_bytes"] = letter.left_out_bytes ? Json(*letter.left_out_bytes) : Json();
  item["value_bytes"] = stored.value ? Json(stored.value->size()) : Json();
  item["decision_offset"] = state.decision != nullptr ? Json(state.decision->offset) : Json();
  return item;
}

std::string Dump(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace walpost::operations
