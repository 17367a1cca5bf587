#include "operations/deadletters/dlq_text.h"

#include <chrono>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "outbox/column_value.h"

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

std::string Dump(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace walpost::operations
