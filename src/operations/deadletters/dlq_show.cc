#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "envelope/dead_letter.h"
#include "envelope/envelope_json.h"
#include "operations/deadletters/dlq_list.h"
#include "operations/deadletters/dlq_text.h"
#include "outbox/kept_row.h"
#include "outbox/message_mapper.h"

namespace walpost::operations {
namespace {

using base::DeadLetter;

// A copy of what is shown.
struct Shown {
  DeadLetterJson json;
  bool open = false;
  std::optional<std::string> value;  // only when asked for
  bool is_envelope = false;
  bool is_row = false;
};

bool IsEnvelope(const PipelineSettings& options, const DeadLetter& row) {
  if (outbox::IsMessageLabel(row.source)) {
    return options.messages.format == envelope::ValueFormat::kEnvelope &&
           row.reason != envelope::kMessageMalformed;
  }
  return std::any_of(options.outboxes.begin(), options.outboxes.end(),
                     [&](const envelope::OutboxOptions& outbox) {
                       return outbox.table.schema + "." + outbox.table.table == row.source &&
                              outbox.encoder.format == envelope::ValueFormat::kEnvelope;
                     });
}

Shown Copy(const PipelineSettings& options, const DlqShowOptions& show, const DeadLetter& row) {
  Shown shown;
  shown.open = !row.closed;
  shown.json = AsJson(row);
  shown.json["headers"] = DeadLetterJson::array();
  for (const DeadLetter::Header& header : row.headers) {
    shown.json["headers"].push_back({{"name", header.name}, {"value", header.value.value_or("")}});
  }
  if (show.payload) {
    shown.is_row = row.keeps_row();
    shown.is_envelope = !shown.is_row && IsEnvelope(options, row);
    shown.value = row.value;
  }
  return shown;
}

std::string AsText(const DeadLetterJson& json) {
  std::string text;
  for (const auto& [name, value] : json.items()) {
    if (name == "headers") {
      for (const DeadLetterJson& header : value) {
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

absl::StatusOr<Outcome> Value(const Shown& shown) {
  if (!shown.value) {
    return Outcome{0, "",
                   shown.json["truncated_bytes"].is_null()
                       ? "the event has no value"
                       : "the value is not here: the dead letter is truncated"};
  }
  if (shown.is_row) {
    ASSIGN_OR_RETURN(const outbox::KeptRow row, outbox::KeptRow::Parse(*shown.value));
    return Outcome{0, Dump(AsJson(row)), "", /*as_it_is=*/true};
  }
  const std::optional<std::string> json =
      shown.is_envelope ? envelope::EnvelopeAsJson(*shown.value) : std::nullopt;
  return Outcome{0, json.value_or(*shown.value), "", /*as_it_is=*/true};
}

absl::StatusOr<Outcome> TryShow(const PipelineSettings& options, const DlqShowOptions& show) {
  ASSIGN_OR_RETURN(postgres::DeadLetterTable table, OpenDeadLetters(options));
  std::optional<Shown> found;
  std::string topic;
  std::optional<std::string> key;
  const auto on_row = [&](const DeadLetter& row) {
    if (!(found && found->open && row.closed)) {
      found = Copy(options, show, row);
      topic = row.topic;
      key = row.key;
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(
      table.ForEach("event_id = $2 OR position = $2", {show.event}, /*whole=*/true, on_row));
  std::size_t parked = 0;
  const auto on_other = [&](const DeadLetter& row) {
    parked += row.topic == topic && row.key == key ? 1 : 0;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(table.ForEach("closed_at IS NULL AND parked", {}, /*whole=*/false, on_other));
  if (!found) {
    return Outcome{
        kExitUsage, "",
        absl::StrFormat("no dead letter has the id or position '%s': `walpost dlq list --all` "
                        "shows every one",
                        Printable(show.event, 0))};
  }
  found->json["parked_events_of_key"] = parked;
  if (show.payload) {
    return Value(*found);
  }
  return Outcome{0, show.json ? Dump(found->json) : AsText(found->json), "", show.json};
}

}  // namespace

Outcome DlqShow(const PipelineSettings& options, const DlqShowOptions& show) {
  absl::StatusOr<Outcome> outcome = TryShow(options, show);
  return outcome.ok() ? *std::move(outcome) : Failed(outcome.status());
}

}  // namespace walpost::operations
