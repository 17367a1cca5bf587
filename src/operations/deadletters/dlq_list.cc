#include "operations/deadletters/dlq_list.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/dead_letter.h"
#include "base/status.h"
#include "base/text.h"
#include "envelope/control_records.h"
#include "envelope/envelope_writer.h"
#include "operations/deadletters/dlq.h"
#include "outbox/column_value.h"
#include "outbox/kept_row.h"
#include "outbox/message_mapper.h"
#include "postgres/dead_letters.h"

namespace walpost::operations {

using Json = DeadLetterJson;

std::string TimeText(std::int64_t milliseconds) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMillis(milliseconds),
                          absl::UTCTimeZone());
}

std::string Count(std::size_t count, std::string_view noun) {
  return absl::StrFormat("%u %s%s", count, noun, count == 1 ? "" : "s");
}

std::string StateName(const base::DeadLetter& row) {
  if (row.foreign) {
    return "foreign";
  }
  if (row.closed) {
    return row.discard() ? "discarded" : row.send_to.empty() ? "delivered" : "sent_elsewhere";
  }
  return row.parked ? "parked" : "dead_letter";
}

Json AsJson(const base::DeadLetter& row) {
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  Json item;
  item["state"] = StateName(row);
  item["id"] = row.event_id;
  item["type"] = row.event_type;
  item["table"] = row.source;
  item["topic"] = row.topic;
  item["partition"] = row.partition >= 0 ? Json(row.partition) : Json();
  item["key"] = row.key ? Json(*row.key) : Json();
  item["reason"] = row.reason;
  item["schema"] = text(row.schema);
  item["detail"] = row.detail;
  item["attempts"] = row.attempts;
  item["position"] = row.position;
  item["event_time"] = row.event_time_ms != 0 ? Json(TimeText(row.event_time_ms)) : Json();
  item["written_at"] = TimeText(row.written_at_ms);
  item["seq"] = row.seq;
  item["truncated_bytes"] = row.truncated_bytes ? Json(*row.truncated_bytes) : Json();
  // One of the two: a record's value, or the row that became no record.
  const Json value_bytes = row.value_bytes ? Json(*row.value_bytes) : Json();
  item["value_bytes"] = row.keeps_row() ? Json() : value_bytes;
  item["kept_row_bytes"] = row.keeps_row() ? value_bytes : Json();
  item["decision"] = row.retry() ? Json("retry") : row.discard() ? Json("discard") : Json();
  item["decided_by"] = text(row.decided_by);
  item["send_to"] = text(row.send_to);
  return item;
}

namespace {

Json ValueAsJson(const pgoutput::Value& value, std::uint32_t type) {
  if (value.kind == pgoutput::Value::Kind::kNull) {
    return Json();
  }
  std::string scratch;
  if (type < outbox::type_oid::kFirstUserType && outbox::IsTextual(type)) {
    const absl::StatusOr<std::string_view> text = outbox::ToText(value, type, &scratch);
    if (text.ok()) {
      return Json(*text);
    }
  }
  if (value.kind == pgoutput::Value::Kind::kText) {
    return Json(value.bytes);
  }
  if (type == outbox::type_oid::kTimestamptz) {
    const absl::StatusOr<base::WallTime> time = outbox::ToTime(value);
    if (time.ok()) {
      return Json(TimeText(
          std::chrono::floor<std::chrono::milliseconds>(time->time_since_epoch()).count()));
    }
  }
  return Json("\\x" +
              absl::BytesToHexString(absl::string_view(value.bytes.data(), value.bytes.size())));
}

}  // namespace

Json AsJson(const outbox::KeptRow& row) {
  Json columns = Json::object();
  for (std::size_t i = 0; i < row.values().size(); ++i) {
    const pgoutput::Column& column = row.relation().columns[i];
    columns[column.name] = ValueAsJson(row.values()[i], column.type_oid);
  }
  return columns;
}

std::string Dump(const Json& json) { return base::JsonText(json, 2) + "\n"; }

absl::StatusOr<bool> NoteSkipped(const PipelineSettings& options, const std::string& position,
                                 const std::string& detail) {
  ASSIGN_OR_RETURN(std::optional<postgres::DeadLetterTable> table, FindDeadLetters(options));
  if (!table) {
    return false;
  }
  if (position.empty()) {
    ASSIGN_OR_RETURN(const postgres::DeadLetterTable::Written written, table->CountWritten());
    if (written.in_recovery) {
      return false;
    }
  }
  base::DeadLetter row;
  row.reason = kTransactionsSkipped;
  row.detail = detail;
  row.position = position;
  row.truncated_bytes = 0;
  ASSIGN_OR_RETURN(const postgres::DeadLetterTable::Inserted inserted, table->Insert({row}));
  if (inserted.states.at(0) != base::DeadLetterState::kOpen) {
    // That of an attempt that failed, which somebody has discarded since: this one needs its own.
    row.position.clear();
    RETURN_IF_ERROR(table->Insert({row}).status());
  }
  return true;
}

namespace {

constexpr std::size_t kKeyCharsMax = 40;

std::string OrDash(std::string text) { return text.empty() ? "-" : std::move(text); }

// Headings and rows, each column as wide as its widest cell.
class Table {
 public:
  static constexpr std::size_t kColumns = 7;
  using Cells = std::array<std::string, kColumns>;

  explicit Table(Cells headings) { Add(std::move(headings)); }

  void Add(Cells cells) {
    for (std::size_t i = 0; i < kColumns; ++i) {
      widths_[i] = std::max(widths_[i], cells[i].size());
    }
    rows_.push_back(std::move(cells));
  }

  std::string Text() const {
    std::string text;
    for (const Cells& cells : rows_) {
      for (std::size_t i = 0; i + 1 < kColumns; ++i) {
        text += absl::StrFormat("%-*s", static_cast<int>(widths_[i] + 2), cells[i]);
      }
      text += cells.back() + "\n";
    }
    return text;
  }

  bool empty() const { return rows_.size() == 1; }

 private:
  std::vector<Cells> rows_;
  std::array<std::size_t, kColumns> widths_ = {};
};

struct Counts {
  std::size_t matching = 0;
  std::size_t dead_letters = 0;
  std::size_t parked = 0;
  std::set<base::ParkedKeyId> keys;
  std::size_t closed = 0;
  std::size_t foreign = 0;
  std::size_t decided = 0;  // and not yet carried out

  void Take(const base::DeadLetter& row) {
    ++matching;
    if (row.foreign) {
      ++foreign;
      return;
    }
    if (row.closed) {
      ++closed;
      return;
    }
    decided += row.decision == base::DeadLetter::Decision::kNone ? 0 : 1;
    if (row.parked) {
      ++parked;
      keys.insert(base::ParkedKeyIdOf(row.topic, row.key.value_or("")));
    } else {
      ++dead_letters;
    }
  }
};

std::string Summary(const Counts& counts, const DlqListOptions& list) {
  std::string text = Count(counts.dead_letters, "dead letter");
  if (counts.parked > 0) {
    text += ", " + Count(counts.parked, "parked event") + " of " + Count(counts.keys.size(), "key");
  }
  if (list.all) {
    text += absl::StrFormat(", %u closed", counts.closed);
  }
  if (list.limit > 0 && counts.matching > list.limit) {
    text += absl::StrFormat("; the first %u are shown", list.limit);
  }
  text += "\n";
  if (counts.decided > 0) {
    text += Count(counts.decided, "decision") + " that `walpost run` has not carried out yet\n";
  }
  if (counts.foreign > 0) {
    text += Count(counts.foreign, "row") +
            " of another cluster: they came with a dump, or the server was replaced, and do not "
            "count\n";
  }
  return text;
}

absl::StatusOr<Outcome> TryList(const PipelineSettings& options, const DlqListOptions& list) {
  ASSIGN_OR_RETURN(postgres::DeadLetterTable dead_letters, OpenDeadLetters(options));
  Table table({"TIME", "STATE", "ID", "TYPE", "TOPIC", "KEY", "REASON"});
  DeadLetterJson items = DeadLetterJson::array();
  Counts counts;
  const auto on_row = [&](const base::DeadLetter& row) {
    if (!list.filter.Matches(row)) {
      return absl::OkStatus();
    }
    counts.Take(row);
    if (list.limit > 0 && counts.matching > list.limit) {
      return absl::OkStatus();
    }
    if (list.json) {
      items.push_back(AsJson(row));
      return absl::OkStatus();
    }
    table.Add({TimeText(row.written_at_ms), StateName(row),
               Printable(row.event_id.empty() ? row.position : row.event_id, 0),
               OrDash(Printable(row.event_type, kKeyCharsMax)), OrDash(Printable(row.topic, 0)),
               row.key ? Printable(*row.key, kKeyCharsMax) : "-", OrDash(row.reason)});
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(dead_letters.ForEach(list.all ? "true" : "closed_at IS NULL", {},
                                       /*whole=*/false, on_row));
  if (list.json) {
    return Outcome{0, Dump(items), "", /*as_it_is=*/true};
  }
  if (table.empty()) {
    return Outcome{
        0, list.filter.empty() ? "there are no open dead letters\n" : "no dead letter matches\n",
        ""};
  }
  return Outcome{0, table.Text() + Summary(counts, list), ""};
}

}  // namespace

Outcome DlqList(const PipelineSettings& options, const DlqListOptions& list) {
  absl::StatusOr<Outcome> outcome = TryList(options, list);
  return outcome.ok() ? *std::move(outcome) : Failed(outcome.status());
}

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
                                                  : base::JsonText(value);
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
