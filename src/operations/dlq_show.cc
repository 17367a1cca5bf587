#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "envelope/envelope_json.h"
#include "operations/dlq_list.h"
#include "operations/dlq_text.h"
#include "outbox/message_mapper.h"

namespace walpost::operations {
namespace {

using envelope::RecordHeader;
using kafka::StoredLetter;

// A copy of what is shown.
struct Shown {
  LetterJson json;
  bool undecided = false;
  std::optional<std::string> value;  // only when asked for
  bool is_envelope = false;
};

bool IsEnvelope(const DlqOptions& options, const StoredLetter& stored) {
  if (outbox::IsMessageLabel(stored.letter.table)) {
    return options.messages.format == envelope::ValueFormat::kEnvelope &&
           stored.letter.reason != envelope::kMessageMalformed;
  }
  return std::any_of(
      options.outboxes.begin(), options.outboxes.end(), [&](const DlqOutbox& outbox) {
        return outbox.table.schema + "." + outbox.table.table == stored.letter.table &&
               outbox.encoder.format == envelope::ValueFormat::kEnvelope;
      });
}

Shown Copy(const DlqOptions& options, const DlqShowOptions& show, const StoredLetter& stored,
           const LetterState& state, const envelope::LetterLog& log) {
  Shown shown;
  shown.undecided = state.undecided;
  shown.json = LetterAsJson(stored, state);
  shown.json["headers"] = LetterJson::array();
  for (const RecordHeader& header : envelope::EventHeaders(stored.headers)) {
    shown.json["headers"].push_back(
        {{"name", std::string(header.name)}, {"value", std::string(header.value)}});
  }
  const auto* parked = log.FindParked(stored.letter.topic, stored.key);
  shown.json["parked_events_of_key"] = parked == nullptr ? 0 : parked->events.size();
  if (show.payload) {
    shown.is_envelope = IsEnvelope(options, stored);
    if (stored.value) {
      shown.value = std::string(*stored.value);
    }
  }
  return shown;
}

std::string AsText(const LetterJson& json) {
  std::string text;
  for (const auto& [name, value] : json.items()) {
    if (name == "headers") {
      for (const LetterJson& header : value) {
        text += absl::StrFormat("%-22s%s: %s\n", "header",
                                Printable(header["name"].get<std::string>(), 0),
                                Printable(header["value"].get<std::string>(), 0));
      }
      continue;
    }
    const std::string shown = value.is_null()     ? "-"
                              : value.is_string() ? Printable(value.get<std::string>(), 0)
                                                  : value.dump();
    text += absl::StrFormat("%-22s%s\n", name, shown.empty() ? "-" : shown);
  }
  return text;
}

Outcome Value(const Shown& shown) {
  if (!shown.value) {
    return Outcome{0, "",
                   shown.json["left_out_bytes"].is_null()
                       ? "the event has no value"
                       : "the value was left out: this is a stub"};
  }
  const std::optional<std::string> json =
      shown.is_envelope ? envelope::EnvelopeAsJson(*shown.value) : std::nullopt;
  return Outcome{0, json.value_or(*shown.value), ""};
}

absl::StatusOr<Outcome> TryShow(const DlqOptions& options, const DlqShowOptions& show) {
  const absl::StatusOr<ReadLogResult> log = ReadLog(options, /*keep_decided=*/true);
  if (absl::IsNotFound(log.status())) {
    return Outcome{kExitUsage, "", NoLog(options)};
  }
  RETURN_IF_ERROR(log.status());
  std::optional<Shown> found;
  const auto on_visit = [&](const StoredLetter& stored, const LetterState& state) {
    const bool meant = stored.letter.id == show.event || stored.letter.position == show.event;
    if (meant && !(found && found->undecided && !state.undecided)) {
      found = Copy(options, show, stored, state, log->log);
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(VisitLetters(options, *log, on_visit));
  if (!found) {
    return Outcome{
        kExitUsage, "",
        absl::StrFormat("no letter has the id or position '%s': `walpost dlq list --all` "
                        "shows every one",
                        show.event)};
  }
  if (show.payload) {
    return Value(*found);
  }
  return Outcome{0, show.json ? Dump(found->json) : AsText(found->json), ""};
}

}  // namespace

Outcome DlqShow(const DlqOptions& options, const DlqShowOptions& show) {
  absl::StatusOr<Outcome> outcome = TryShow(options, show);
  return outcome.ok() ? *std::move(outcome) : Failed(outcome.status());
}

}  // namespace walpost::operations
