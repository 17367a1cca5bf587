#include "outbox/event_router.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/text.h"
#include "outbox/column_value.h"
#include "outbox/json_expansion.h"
#include "outbox/topic_rules.h"

namespace walpost::outbox {
namespace {

using pgoutput::Value;
using Where = Placement::Where;

// As Java trims: everything up to the space.
bool IsBlank(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) <= ' '; });
}

const BoundColumn* FindColumn(const std::vector<BoundColumn>& columns, const std::string& name) {
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [&](const BoundColumn& column) { return column.name == name; });
  return found == columns.end() ? nullptr : &*found;
}

bool IsNull(std::span<const Value> values, int index) {
  return values[static_cast<std::size_t>(index)].kind == Value::Kind::kNull;
}

}  // namespace

EventRouter::EventRouter(const DebeziumOptions& options, std::string where)
    : options_(options),
      where_(std::move(where)),
      topics_(TopicRouter::Make(options.topic_regex, options.topic_replacement)),
      as_json_(options.expand_json ||
               std::any_of(options.placements.begin(), options.placements.end(),
                           [](const Placement& p) { return p.where == Where::kEnvelope; })) {}

absl::Status EventRouter::Bind(const std::vector<BoundColumn>& columns, int payload) {
  RETURN_IF_ERROR(topics_.status());
  headers_.clear();
  envelope_.clear();
  partition_ = -1;
  timestamp_ = -1;
  payload_ = payload;
  const BoundColumn& column = columns[static_cast<std::size_t>(payload)];
  payload_name_ = column.name;
  payload_column_ = ConnectColumn::Of(column.oid, column.modifier, column.is_domain);
  for (const Placement& placement : options_.placements) {
    RETURN_IF_ERROR(BindPlacement(columns, placement));
  }
  return BindTimestamp(columns);
}

absl::Status EventRouter::BindPlacement(const std::vector<BoundColumn>& columns,
                                        const Placement& placement) {
  const BoundColumn* column = FindColumn(columns, placement.column);
  if (column == nullptr) {
    if (options_.missing_ignored) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s has no column %s, which table.fields.additional.placement names: add it, take it out "
        "of the option, or set table.field.additional.missing: ignore",
        where_, placement.column));
  }
  const int index = static_cast<int>(column - columns.data());
  const auto of_another_type = [&](std::string_view expected) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: column %s is %s, but placed as table.fields.additional.placement says it must be %s",
        where_, placement.column, column->type, expected));
  };
  if (placement.where == Where::kPartition) {
    if (!IsInteger(column->oid)) {
      return of_another_type("integer, smallint or bigint");
    }
    partition_ = index;
    partition_name_ = column->name;
    partition_oid_ = column->oid;
    return absl::OkStatus();
  }
  const std::optional<ConnectColumn> value =
      ConnectColumn::Of(column->oid, column->modifier, column->is_domain);
  const bool envelope = placement.where == Where::kEnvelope;
  if (!value || (envelope && value->is_decimal())) {
    return of_another_type("of another type: see the list in docs/migrate-from-debezium.md");
  }
  (envelope ? envelope_ : headers_).push_back({&placement, index, *value, ""});
  return absl::OkStatus();
}

absl::Status EventRouter::BindTimestamp(const std::vector<BoundColumn>& columns) {
  if (options_.timestamp.empty()) {
    return absl::OkStatus();
  }
  const BoundColumn* column = FindColumn(columns, options_.timestamp);
  if (column == nullptr ||
      (column->oid != type_oid::kTimestamp && column->oid != type_oid::kTimestamptz)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: table.field.event.timestamp is %s, which is %s, but must be a column of type "
        "timestamp or timestamptz",
        where_, options_.timestamp, column == nullptr ? "no column" : column->type));
  }
  timestamp_ = static_cast<int>(column - columns.data());
  return absl::OkStatus();
}

absl::Status EventRouter::Route(std::string_view value, Event* event) {
  const absl::StatusOr<std::string_view> topic = topics_->Route(value);
  if (!topic.ok()) {
    return Undeliverable("of route.by.field", *event, topic.status());
  }
  event->topic = *topic;
  return absl::OkStatus();
}

absl::Status EventRouter::Place(std::span<const Value> values, Event* event,
                                std::vector<Header>* headers) {
  RETURN_IF_ERROR(PlaceTime(values, event));
  RETURN_IF_ERROR(PlacePartition(values, event));
  RETURN_IF_ERROR(PlaceHeaders(values, *event, headers));
  return PlacePayload(values, event);
}

absl::Status EventRouter::PlaceTime(std::span<const Value> values, Event* event) const {
  if (timestamp_ < 0 || IsNull(values, timestamp_)) {
    return absl::OkStatus();
  }
  const absl::StatusOr<base::WallTime> time =
      ToInstant(values[static_cast<std::size_t>(timestamp_)]);
  if (!time.ok()) {
    return Undeliverable(options_.timestamp, *event, time.status());
  }
  event->timestamp = *time;
  return absl::OkStatus();
}

absl::Status EventRouter::PlacePartition(std::span<const Value> values, Event* event) const {
  if (partition_ < 0 || IsNull(values, partition_)) {
    return absl::OkStatus();
  }
  const absl::StatusOr<std::int64_t> number =
      ToInteger(values[static_cast<std::size_t>(partition_)], partition_oid_);
  if (!number.ok() || *number < 0 || *number > std::numeric_limits<std::int32_t>::max()) {
    return Undeliverable(partition_name_, *event,
                         absl::InvalidArgumentError("not a partition number"));
  }
  event->partition = static_cast<std::int32_t>(*number);
  return absl::OkStatus();
}

absl::Status EventRouter::PlaceHeaders(std::span<const Value> values, const Event& event,
                                       std::vector<Header>* headers) {
  for (Placed& placed : headers_) {
    Header header{placed.placement->alias, std::string_view()};
    header.null = IsNull(values, placed.index);
    if (!header.null) {
      const absl::StatusOr<std::string_view> text =
          placed.column.Text(values[static_cast<std::size_t>(placed.index)], &placed.scratch);
      if (!text.ok()) {
        return Undeliverable(placed.placement->column, event, text.status());
      }
      header.value = *text;
    }
    headers->push_back(header);
  }
  return absl::OkStatus();
}

absl::Status EventRouter::PlacePayload(std::span<const Value> values, Event* event) {
  const bool blank = !event->payload || (!payload_column_->is_bytes() && IsBlank(*event->payload));
  if (options_.tombstone_on_empty && blank) {
    event->payload.reset();
    return absl::OkStatus();
  }
  if (!as_json_) {
    return absl::OkStatus();
  }
  json_.clear();
  const bool envelope = std::any_of(options_.placements.begin(), options_.placements.end(),
                                    [](const Placement& p) { return p.where == Where::kEnvelope; });
  json_ += envelope ? "{\"payload\":" : "";
  if (const absl::Status status = AppendPayload(values[static_cast<std::size_t>(payload_)]);
      !status.ok()) {
    return Undeliverable(payload_name_, *event, status);
  }
  for (const Placed& placed : envelope_) {
    json_ += ',';
    absl::Status status = AppendJsonText(placed.placement->alias, &json_)
                              ? absl::OkStatus()
                              : absl::InvalidArgumentError("an alias that is not UTF-8");
    json_ += ':';
    status.Update(placed.column.AppendJson(values[static_cast<std::size_t>(placed.index)], &json_));
    if (!status.ok()) {
      return Undeliverable(placed.placement->column, *event, status);
    }
  }
  json_ += envelope ? "}" : "";
  event->payload = json_;
  return absl::OkStatus();
}

absl::Status EventRouter::AppendPayload(const Value& value) {
  if (options_.expand_json && payload_column_->is_text() && value.kind != Value::Kind::kNull) {
    std::string scratch;
    ASSIGN_OR_RETURN(const std::string_view text, payload_column_->Text(value, &scratch));
    if (ExpandJson(text, {options_.keep_json_nulls, options_.keep_empty_arrays}, &json_)) {
      return absl::OkStatus();
    }
  }
  return payload_column_->AppendJson(value, &json_);
}

absl::Status EventRouter::Undeliverable(std::string_view column, const Event& event,
                                        const absl::Status& why) const {
  return absl::InvalidArgumentError(absl::StrFormat("%s: column %s in event '%s': %s", where_,
                                                    column, base::Cut(event.id),
                                                    std::string(why.message())));
}

std::string ImpliedTopics(const TableOptions& options) {
  if (options.debezium) {
    const auto router =
        TopicRouter::Make(options.debezium->topic_regex, options.debezium->topic_replacement);
    return router.ok() ? router->Pattern() : "";
  }
  const auto parsed = TopicTemplate::Parse(options.topic);
  return parsed.ok() ? parsed->Pattern() : "";
}

TopicReach::TopicReach(const TableOptions& options) {
  Patterns implied{ImpliedTopics(options)};
  for (const auto& [type, topic] : options.topics.by_aggregate_type) {
    implied.push_back(topic);
  }
  // A row that the regex does not match names its topic itself, as one does in a column.
  const bool named_by_rows = options.debezium || !options.columns.topic.empty();
  const Patterns& allowed = options.topics.allowed;
  limits_.push_back(allowed.empty() ? implied : allowed);
  if (!allowed.empty() && !named_by_rows) {
    limits_.push_back(std::move(implied));
  }
}

bool TopicReach::Holds(std::string_view topic) const {
  return std::all_of(limits_.begin(), limits_.end(), [&](const Patterns& limit) {
    return std::any_of(limit.begin(), limit.end(),
                       [&](const std::string& pattern) { return MatchesPattern(topic, pattern); });
  });
}

bool TopicReach::Meets(const TopicReach& other) const {
  const auto meet = [](const Patterns& ours, const Patterns& theirs) {
    return std::any_of(ours.begin(), ours.end(), [&](const std::string& our) {
      return std::any_of(theirs.begin(), theirs.end(),
                         [&](const std::string& their) { return PatternsMeet(our, their); });
    });
  };
  return std::all_of(limits_.begin(), limits_.end(), [&](const Patterns& ours) {
    return std::all_of(other.limits_.begin(), other.limits_.end(),
                       [&](const Patterns& theirs) { return meet(ours, theirs); });
  });
}

}  // namespace walpost::outbox
