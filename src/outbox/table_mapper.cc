#include "outbox/table_mapper.h"

#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"
#include "outbox/column_value.h"
#include "outbox/event.h"
#include "outbox/event_router.h"
#include "outbox/headers_column.h"
#include "outbox/topic_rules.h"

namespace walpost::outbox {

using pgoutput::Value;

namespace {

// A field of the event, found in the Relation in force.
struct Slot {
  int index = -1;  // -1 = the table has no such column
  std::uint32_t oid = 0;
  std::string column;
  std::string scratch;  // for values that must be rewritten as text

  bool present() const { return index >= 0; }
};

using TypePredicate = bool (*)(std::uint32_t);

bool IsTime(std::uint32_t oid) { return oid == type_oid::kTimestamptz; }

bool IsJson(std::uint32_t oid) { return oid == type_oid::kJson || oid == type_oid::kJsonb; }

}  // namespace

struct TableMapper::Impl {
  explicit Impl(TableOptions table_options) : options(std::move(table_options)) {
    absl::StatusOr<TopicTemplate> parsed = TopicTemplate::Parse(options.topic);
    if (parsed.ok()) {
      topic_template = *std::move(parsed);
    } else {
      template_status = parsed.status();
    }
    if (options.debezium) {
      router.emplace(*options.debezium, Where());
    }
    topic_rules.emplace(options.topics, ImpliedTopics(options));
  }

  const std::string& Where() const { return where; }

  // Finds the first of `names` in the Relation. Its type must satisfy `fits`.
  absl::Status Find(const pgoutput::Relation& relation, std::string_view field,
                    const ColumnNames& names, bool required, TypePredicate fits,
                    std::string_view expected, Slot* slot);

  // The user wrote its column's name down.
  bool Named(std::string_view field) const {
    return std::find(options.fields_named.begin(), options.fields_named.end(), field) !=
           options.fields_named.end();
  }

  absl::Status BindOptional(const pgoutput::Relation& relation);
  absl::Status BindTopic(const pgoutput::Relation& relation);
  absl::Status BindRouter(const pgoutput::Relation& relation);

  absl::Status Null(const Slot& slot, const Event& event) const;
  absl::Status Undeliverable(const Slot& slot, const Event& event, const absl::Status& why) const;
  // With the reason that it has.
  absl::Status Rejected(const Event& event, const absl::Status& why) const;
  absl::Status Text(std::span<const Value> values, Slot* slot, const Event& event, bool required,
                    std::string_view* text);
  absl::Status MapKey(std::span<const Value> values, Event* event);
  absl::Status MapPayload(std::span<const Value> values, Event* event);
  absl::Status MapOptional(std::span<const Value> values, Event* event);
  absl::Status MapTrace(std::span<const Value> values, Event* event);
  absl::Status MapPartition(std::span<const Value> values, Event* event);
  absl::Status Time(std::span<const Value> values, const Slot& slot, const Event& event,
                    std::optional<base::WallTime>* time) const;
  absl::Status MapTopic(std::span<const Value> values, Event* event);
  absl::Status MapRecordHeaders(std::span<const Value> values, Event* event);

  // What values of this type look like; 0 for nothing we can read.
  std::uint32_t TypeBelow(std::uint32_t oid) const;
  std::string Describe(std::uint32_t oid) const;

  const TableOptions options;
  const std::string where = absl::StrFormat("table %s.%s", options.schema, options.table);
  std::optional<TopicRules> topic_rules;  // always there
  std::optional<EventRouter> router;      // instead of the template
  TopicTemplate topic_template;
  absl::Status template_status;

  std::map<std::uint32_t, std::string> domains;  // name of the built-in type below, by OID
  std::map<std::uint32_t, std::string> others;   // name of a type made by users, by OID
  std::vector<std::uint32_t> text_types;
  bool bound = false;
  std::size_t column_count = 0;
  Slot id, key, aggregate_type, type, payload, content_type, schema_name, headers, occurred_at,
      traceparent, tracestate, baggage, tracingspancontext, topic, partition, timestamp;
  std::vector<Slot> topic_slots;   // one per placeholder
  std::vector<Slot> header_slots;  // one per record header
  std::vector<Header> record_headers;
  HeadersColumn headers_column;
  std::string topic_text;
  std::string checked_topic;  // the last one that passed
};

TableMapper::TableMapper(TableOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

TableMapper::~TableMapper() = default;
TableMapper::TableMapper(TableMapper&&) noexcept = default;
TableMapper& TableMapper::operator=(TableMapper&&) noexcept = default;

const TableOptions& TableMapper::options() const { return impl_->options; }

const TopicRules& TableMapper::topic_rules() const { return *impl_->topic_rules; }

std::uint32_t TableMapper::ReadableType(std::uint32_t oid) const { return impl_->TypeBelow(oid); }

void TableMapper::Unbind() {
  impl_->bound = false;
  impl_->domains.clear();
  impl_->others.clear();
}

void TableMapper::SetTextTypes(std::vector<std::uint32_t> oids) {
  impl_->text_types = std::move(oids);
}

void TableMapper::Learn(const pgoutput::Type& type) {
  // The server names the type below a domain, and no schema when that is pg_catalog.
  impl_->domains.erase(type.oid);
  impl_->others.erase(type.oid);
  if (type.schema.empty()) {
    impl_->domains[type.oid] = std::string(type.name);
  } else {
    impl_->others[type.oid] = absl::StrFormat("%s.%s", type.schema, type.name);
  }
}

absl::Status TableMapper::Bind(const pgoutput::Relation& relation) {
  Impl& m = *impl_;
  const ColumnMapping& c = m.options.columns;
  m.bound = false;
  m.column_count = relation.columns.size();
  RETURN_IF_ERROR(m.template_status);
  RETURN_IF_ERROR(m.Find(relation, "id", c.id, true, IsTextual, "text or uuid", &m.id));
  RETURN_IF_ERROR(m.Find(relation, "key", c.key, !c.key.empty(), IsPayload,
                         "text, uuid, integer or bytea", &m.key));
  RETURN_IF_ERROR(m.Find(relation, "aggregate_type", c.aggregate_type, !c.aggregate_type.empty(),
                         IsTextual, "text", &m.aggregate_type));
  RETURN_IF_ERROR(m.Find(relation, "type", c.type,
                         !c.type.empty() && (!m.options.type_optional || m.Named("type")),
                         IsTextual, "text", &m.type));
  RETURN_IF_ERROR(m.Find(relation, "payload", c.payload, true, IsPayload,
                         "bytea, json, jsonb or text", &m.payload));
  RETURN_IF_ERROR(m.BindOptional(relation));
  RETURN_IF_ERROR(m.router ? m.BindRouter(relation) : m.BindTopic(relation));
  m.header_slots.assign(m.options.record_headers.size(), Slot());
  for (std::size_t i = 0; i < m.header_slots.size(); ++i) {
    RETURN_IF_ERROR(m.Find(relation, "record_headers", {m.options.record_headers[i].second}, true,
                           IsTextual, "text", &m.header_slots[i]));
  }
  m.bound = true;
  return absl::OkStatus();
}

absl::Status TableMapper::Map(std::span<const Value> values, Event* event) {
  Impl& m = *impl_;
  CHECK(m.bound);
  if (values.size() != m.column_count) {
    return absl::DataLossError(
        absl::StrFormat("%s: a row of %u columns, but the table was announced with %u", m.Where(),
                        values.size(), m.column_count));
  }
  *event = Event();
  event->schema = m.options.schema;
  event->table = m.options.table;
  RETURN_IF_ERROR(m.Text(values, &m.id, *event, /*required=*/true, &event->id));
  RETURN_IF_ERROR(m.MapKey(values, event));
  const bool names_required = !m.options.null_key_allowed;
  RETURN_IF_ERROR(m.Text(values, &m.aggregate_type, *event, names_required || m.router,
                         &event->aggregate_type));
  RETURN_IF_ERROR(m.Text(values, &m.type, *event, names_required, &event->type));
  RETURN_IF_ERROR(m.MapPayload(values, event));
  RETURN_IF_ERROR(m.MapOptional(values, event));
  RETURN_IF_ERROR(m.MapTopic(values, event));
  RETURN_IF_ERROR(m.MapRecordHeaders(values, event));
  if (m.router) {
    RETURN_IF_ERROR(m.router->Place(values, event, &m.record_headers));
    event->record_headers = m.record_headers;
  }
  // Last: what has a key and a topic keeps its order among the dead letters.
  const absl::Status id = CheckId(event->id);
  return id.ok() ? id : m.Rejected(*event, id);
}

absl::Status TableMapper::Impl::Find(const pgoutput::Relation& relation, std::string_view field,
                                     const ColumnNames& names, bool required, TypePredicate fits,
                                     std::string_view expected, Slot* slot) {
  *slot = Slot();
  for (const std::string& name : names) {
    for (std::size_t i = 0; i < relation.columns.size(); ++i) {
      const pgoutput::Column& column = relation.columns[i];
      if (column.name != name) {
        continue;
      }
      const std::uint32_t oid = TypeBelow(column.type_oid);
      if (!fits(oid)) {
        return absl::FailedPreconditionError(
            absl::StrFormat("%s: column %s is %s, but as %s it must be %s: change its type back, "
                            "or map another column",
                            Where(), name, Describe(column.type_oid), field, expected));
      }
      slot->index = static_cast<int>(i);
      slot->oid = oid;
      slot->column = name;
      return absl::OkStatus();
    }
  }
  if (!required) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s has no column %s, which is mapped as %s: add or rename it, or change "
      "`outboxes[].columns`",
      Where(), names.empty() ? std::string("(none configured)") : absl::StrJoin(names, " or "),
      field));
}

std::uint32_t TableMapper::Impl::TypeBelow(std::uint32_t oid) const {
  if (const auto domain = domains.find(oid); domain != domains.end()) {
    return BuiltInType(domain->second);
  }
  const bool readable = oid < type_oid::kFirstUserType ||
                        std::binary_search(text_types.begin(), text_types.end(), oid);
  return readable ? oid : 0;
}

std::string TableMapper::Impl::Describe(std::uint32_t oid) const {
  if (const auto domain = domains.find(oid); domain != domains.end()) {
    return absl::StrFormat("a domain over %s", domain->second);
  }
  const auto other = others.find(oid);
  return other == others.end() ? TypeName(oid) : absl::StrFormat("of type %s", other->second);
}

absl::Status TableMapper::Impl::BindOptional(const pgoutput::Relation& relation) {
  const ColumnMapping& c = options.columns;
  const std::tuple<std::string_view, const ColumnNames*, Slot*> texts[] = {
      {"content_type", &c.content_type, &content_type},
      {"schema_name", &c.schema_name, &schema_name},
      {"traceparent", &c.traceparent, &traceparent},
      {"tracestate", &c.tracestate, &tracestate},
      {"baggage", &c.baggage, &baggage},
      {"tracingspancontext", &c.tracingspancontext, &tracingspancontext},
      {"topic", &c.topic, &topic}};
  for (const auto& [field, names, slot] : texts) {
    RETURN_IF_ERROR(Find(relation, field, *names, Named(field), IsTextual, "text", slot));
  }
  RETURN_IF_ERROR(
      Find(relation, "headers", c.headers, Named("headers"), IsJson, "json or jsonb", &headers));
  RETURN_IF_ERROR(Find(relation, "occurred_at", c.occurred_at, Named("occurred_at"), IsTime,
                       "timestamptz", &occurred_at));
  RETURN_IF_ERROR(Find(relation, "timestamp", c.timestamp, Named("timestamp"), IsTime,
                       "timestamptz", &timestamp));
  return Find(relation, "partition", c.partition, Named("partition"), IsInteger, "integer",
              &partition);
}

absl::Status TableMapper::Impl::BindTopic(const pgoutput::Relation& relation) {
  topic_slots.clear();
  for (const TopicTemplate::Part& part : topic_template.parts()) {
    if (!part.is_placeholder) {
      continue;
    }
    // A field's name stands for the column mapped to it; any other name is a column's own.
    ColumnNames names = {part.text};
    const std::pair<std::string_view, const ColumnNames*> fields[] = {
        {"id", &options.columns.id},
        {"key", &options.columns.key},
        {"aggregate_type", &options.columns.aggregate_type},
        {"type", &options.columns.type},
        {"schema_name", &options.columns.schema_name}};
    for (const auto& [field, mapped] : fields) {
      if (part.text == field && !mapped->empty()) {
        names = *mapped;
      }
    }
    topic_slots.emplace_back();
    RETURN_IF_ERROR(Find(relation, "a placeholder of `topic`", names, true, IsTextual, "text",
                         &topic_slots.back()));
  }
  return absl::OkStatus();
}

absl::Status TableMapper::Impl::BindRouter(const pgoutput::Relation& relation) {
  std::vector<BoundColumn> columns;
  for (const pgoutput::Column& column : relation.columns) {
    columns.push_back({column.name, TypeBelow(column.type_oid), column.type_modifier,
                       domains.find(column.type_oid) != domains.end(), Describe(column.type_oid)});
  }
  return router->Bind(columns, payload.index);
}

absl::Status TableMapper::Impl::Null(const Slot& slot, const Event& event) const {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: column %s is NULL in event '%s'; it must have a value: correct "
                      "what writes such rows "
                      "(a NOT NULL constraint finds it in the application's own transaction)",
                      Where(), slot.column, base::Cut(event.id)));
}

absl::Status TableMapper::Impl::Undeliverable(const Slot& slot, const Event& event,
                                              const absl::Status& why) const {
  return absl::InvalidArgumentError(absl::StrFormat("%s: column %s in event '%s': %s", Where(),
                                                    slot.column, base::Cut(event.id),
                                                    std::string(why.message())));
}

absl::Status TableMapper::Impl::Rejected(const Event& event, const absl::Status& why) const {
  return UndeliverableError(ReasonCodeOf(why),
                            absl::StrFormat("%s: event '%s': %s", Where(), base::Cut(event.id),
                                            std::string(why.message())));
}

absl::Status TableMapper::Impl::Text(std::span<const Value> values, Slot* slot, const Event& event,
                                     bool required, std::string_view* text) {
  if (!slot->present()) {
    return absl::OkStatus();
  }
  const Value& value = values[static_cast<std::size_t>(slot->index)];
  if (value.kind == Value::Kind::kNull) {
    return required ? Null(*slot, event) : absl::OkStatus();
  }
  const absl::StatusOr<std::string_view> found = ToText(value, slot->oid, &slot->scratch);
  if (!found.ok()) {
    return Undeliverable(*slot, event, found.status());
  }
  *text = *found;
  return absl::OkStatus();
}

absl::Status TableMapper::Impl::MapKey(std::span<const Value> values, Event* event) {
  if (!key.present()) {
    return absl::OkStatus();
  }
  const Value& value = values[static_cast<std::size_t>(key.index)];
  if (value.kind == Value::Kind::kNull) {
    return options.null_key_allowed ? absl::OkStatus() : Null(key, *event);
  }
  const absl::StatusOr<std::string_view> found = ToBytes(value, key.oid, &key.scratch);
  if (!found.ok()) {
    return Undeliverable(key, *event, found.status());
  }
  event->key = *found;
  return absl::OkStatus();
}

absl::Status TableMapper::Impl::MapPayload(std::span<const Value> values, Event* event) {
  const Value& value = values[static_cast<std::size_t>(payload.index)];
  if (value.kind == Value::Kind::kNull) {
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string_view> found = ToBytes(value, payload.oid, &payload.scratch);
  if (!found.ok()) {
    return Undeliverable(payload, *event, found.status());
  }
  event->payload = *found;
  event->payload_form = payload.oid == type_oid::kBytea ? PayloadForm::kBytes
                        : IsJson(payload.oid)           ? PayloadForm::kJson
                                                        : PayloadForm::kText;
  return absl::OkStatus();
}

absl::Status TableMapper::Impl::MapOptional(std::span<const Value> values, Event* event) {
  RETURN_IF_ERROR(Text(values, &content_type, *event, false, &event->content_type));
  RETURN_IF_ERROR(Text(values, &schema_name, *event, false, &event->schema_name));
  RETURN_IF_ERROR(MapTrace(values, event));
  std::string_view json;
  RETURN_IF_ERROR(Text(values, &headers, *event, false, &json));
  if (!json.empty()) {
    const absl::StatusOr<std::span<const Header>> parsed = headers_column.Parse(json);
    if (!parsed.ok()) {
      return Undeliverable(headers, *event, parsed.status());
    }
    event->headers = *parsed;
  }
  RETURN_IF_ERROR(Time(values, occurred_at, *event, &event->occurred_at));
  RETURN_IF_ERROR(Time(values, timestamp, *event, &event->timestamp));
  return MapPartition(values, event);
}

absl::Status TableMapper::Impl::MapTrace(std::span<const Value> values, Event* event) {
  RETURN_IF_ERROR(Text(values, &traceparent, *event, false, &event->traceparent));
  RETURN_IF_ERROR(Text(values, &tracestate, *event, false, &event->tracestate));
  RETURN_IF_ERROR(Text(values, &baggage, *event, false, &event->baggage));
  RETURN_IF_ERROR(Text(values, &tracingspancontext, *event, false, &event->tracingspancontext));
  if (event->traceparent.empty()) {
    event->traceparent = TraceparentOf(event->tracingspancontext);
  }
  return absl::OkStatus();
}

absl::Status TableMapper::Impl::MapPartition(std::span<const Value> values, Event* event) {
  if (!partition.present()) {
    return absl::OkStatus();
  }
  const Value& value = values[static_cast<std::size_t>(partition.index)];
  if (value.kind != Value::Kind::kNull) {
    const absl::StatusOr<std::int64_t> number = ToInteger(value, partition.oid);
    if (!number.ok() || *number < 0 || *number > INT32_MAX) {
      return Undeliverable(partition, *event, absl::InvalidArgumentError("not a partition number"));
    }
    event->partition = static_cast<std::int32_t>(*number);
  }
  return absl::OkStatus();
}

absl::Status TableMapper::Impl::Time(std::span<const Value> values, const Slot& slot,
                                     const Event& event,
                                     std::optional<base::WallTime>* time) const {
  if (!slot.present()) {
    return absl::OkStatus();
  }
  const Value& value = values[static_cast<std::size_t>(slot.index)];
  if (value.kind != Value::Kind::kNull) {
    const absl::StatusOr<base::WallTime> found = ToTime(value);
    if (!found.ok()) {
      return Undeliverable(slot, event, found.status());
    }
    *time = *found;
  }
  return absl::OkStatus();
}

absl::Status TableMapper::Impl::MapTopic(std::span<const Value> values, Event* event) {
  if (topic.present() && values[static_cast<std::size_t>(topic.index)].kind != Value::Kind::kNull) {
    RETURN_IF_ERROR(Text(values, &topic, *event, false, &event->topic));
  } else if (const std::string* own = topic_rules->Find(event->aggregate_type)) {
    event->topic = *own;
  } else if (router) {
    RETURN_IF_ERROR(router->Route(event->aggregate_type, event));
  } else {
    const std::vector<TopicTemplate::Part>& parts = topic_template.parts();
    topic_text.clear();
    std::size_t placeholder = 0;
    for (const TopicTemplate::Part& part : parts) {
      if (!part.is_placeholder) {
        topic_text += part.text;
        continue;
      }
      std::string_view text;
      RETURN_IF_ERROR(Text(values, &topic_slots[placeholder++], *event, /*required=*/true, &text));
      topic_text += text;
    }
    event->topic = topic_text;
  }
  if (event->topic.empty() || event->topic != checked_topic) {
    if (const absl::Status status = topic_rules->Check(event->topic); !status.ok()) {
      return Rejected(*event, status);
    }
    checked_topic.assign(event->topic);
  }
  return absl::OkStatus();
}

absl::Status TableMapper::Impl::MapRecordHeaders(std::span<const Value> values, Event* event) {
  record_headers.clear();
  for (std::size_t i = 0; i < header_slots.size(); ++i) {
    const bool null =
        values[static_cast<std::size_t>(header_slots[i].index)].kind == Value::Kind::kNull;
    if (!null) {
      Header header{options.record_headers[i].first, std::string_view()};
      RETURN_IF_ERROR(Text(values, &header_slots[i], *event, false, &header.value));
      record_headers.push_back(header);
    }
  }
  event->record_headers = record_headers;
  return absl::OkStatus();
}

}  // namespace walpost::outbox
