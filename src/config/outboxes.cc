#include "config/outboxes.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "config/debezium.h"
#include "config/schema_registry.h"
#include "outbox/presets.h"
#include "outbox/topic_template.h"

namespace walpost::config {
namespace {

void ReadTable(MapReader* reader, outbox::TableOptions* table) {
  std::string name;
  if (!reader->Text("table", &name)) {
    return;
  }
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos || dot == 0 || dot + 1 == name.size()) {
    reader->Problem("table",
                    absl::StrFormat("'%s': write schema.table, such as outbox.events", name));
    return;
  }
  table->schema = name.substr(0, dot);
  table->table = name.substr(dot + 1);
}

void ReadColumns(MapReader reader, outbox::ColumnMapping* columns) {
  const std::pair<const char*, outbox::ColumnNames*> fields[] = {
      {"id", &columns->id},
      {"key", &columns->key},
      {"aggregate_type", &columns->aggregate_type},
      {"type", &columns->type},
      {"payload", &columns->payload},
      {"content_type", &columns->content_type},
      {"schema_name", &columns->schema_name},
      {"headers", &columns->headers},
      {"occurred_at", &columns->occurred_at},
      {"traceparent", &columns->traceparent},
      {"tracestate", &columns->tracestate},
      {"baggage", &columns->baggage},
      {"tracingspancontext", &columns->tracingspancontext},
      {"topic", &columns->topic},
      {"partition", &columns->partition},
      {"timestamp", &columns->timestamp},
      {"seq", &columns->seq},
  };
  for (const auto& [name, field] : fields) {
    reader.Names(name, field);
  }
  if (columns->id.empty()) {
    reader.Problem("id", "an event needs an id: name its column");
  }
  if (columns->payload.empty()) {
    reader.Problem("payload", "an event needs a payload: name its column");
  }
  reader.Finish();
}

// Names that tell dead letters and redeliveries from events.
constexpr std::string_view kReservedPrefix = "walpost-";

bool IsHeaderName(MapReader* reader, const std::string& name) {
  if (name.empty() || name.substr(0, kReservedPrefix.size()) == kReservedPrefix) {
    reader->Problem(name, "a header needs a name, and names with walpost- belong to walpost");
    return false;
  }
  return true;
}

void ReadRecordHeaders(MapReader reader, const YAML::Node& map, outbox::TableOptions* table) {
  if (!map.IsMap()) {
    return;
  }
  for (const auto& entry : map) {
    std::string column;
    const std::string name = entry.first.Scalar();
    if (reader.Text(name, &column) && IsHeaderName(&reader, name)) {
      table->record_headers.emplace_back(name, column);
    }
  }
}

void ReadTopics(MapReader reader, outbox::TableOptions* table) {
  outbox::TopicOptions* topics = &table->topics;
  const auto fits = [topics](const std::string& topic) {
    return topics->allowed.empty() || std::find(topics->allowed.begin(), topics->allowed.end(),
                                                topic) != topics->allowed.end();
  };
  constexpr char kIllegal[] =
      "'%s' is no topic of Kafka's: letters, digits, '.', '_', '-', at most 249";
  if (reader.Names("allowed", &topics->allowed) && topics->allowed.empty()) {
    reader.Problem("allowed", "no topic is listed: leave it out to allow all");
  }
  for (const std::string& topic : topics->allowed) {
    if (!outbox::IsLegalTopic(topic)) {
      reader.Problem("allowed", absl::StrFormat(kIllegal, topic));
    }
  }
  const YAML::Node types = reader.Child("by_aggregate_type");
  MapReader by_type = reader.Map("by_aggregate_type");
  if (types.IsMap()) {
    for (const auto& entry : types) {
      const std::string type = entry.first.Scalar();
      std::string topic;
      if (!by_type.Text(type, &topic)) {
        continue;
      }
      if (!outbox::IsLegalTopic(topic)) {
        by_type.Problem(type, absl::StrFormat(kIllegal, topic));
      } else if (!fits(topic)) {
        by_type.Problem(type, absl::StrFormat("'%s' is not one of topics.allowed", topic));
      }
      topics->by_aggregate_type.emplace_back(type, topic);
    }
  }
  if (outbox::IsLegalTopic(table->topic) && !fits(table->topic)) {
    reader.Problem("allowed", absl::StrFormat("topic '%s' is not among them", table->topic));
  }
  reader.Finish();
}

void ReadCloudEvents(MapReader reader, envelope::CloudEventOptions* options) {
  using envelope::CloudEventMode;
  const CloudEventMode modes[] = {CloudEventMode::kBinary, CloudEventMode::kStructuredProtobuf,
                                  CloudEventMode::kStructuredJson};
  options->mode =
      modes[reader.Choice("mode", {"binary", "structured_protobuf", "structured_json"}, 0)];
  if (reader.Text("source", &options->source) && !envelope::IsUriReference(options->source)) {
    reader.Problem("source", absl::StrFormat("'%s' is no URI reference, such as "
                                             "https://shop.example/orders or /shop/orders",
                                             options->source));
  }
  reader.Finish();
}

pipeline::OutboxOptions ReadOutbox(MapReader reader, Problems* problems) {
  pipeline::OutboxOptions outbox;
  const std::vector<std::string> presets(std::begin(outbox::kPresetNames),
                                         std::end(outbox::kPresetNames));
  const YAML::Node debezium = reader.Child("debezium");
  const std::string& preset =
      presets[reader.Choice("preset", presets, debezium.IsDefined() ? 1 : 0)];
  outbox.table = *outbox::PresetOptions(preset);
  if (preset == "debezium") {
    outbox.encoder = {envelope::ValueFormat::kRaw, envelope::HeaderSet::kDebezium};
  }
  ReadTable(&reader, &outbox.table);
  if (debezium.IsDefined()) {
    ReadDebezium(debezium, reader.PathOf("debezium"), problems, &outbox.table);
    if (preset != "debezium") {
      reader.Problem("debezium", "belongs to preset: debezium");
    }
    if (reader.Child("topic").IsDefined()) {
      reader.Problem("topic", "the topic is said by route.topic.replacement in `debezium`");
    }
  }
  ReadColumns(reader.Map("columns"), &outbox.table.columns);
  if (reader.Text("topic", &outbox.table.topic)) {
    if (const auto parsed = outbox::TopicTemplate::Parse(outbox.table.topic); !parsed.ok()) {
      reader.Problem("topic", std::string(parsed.status().message()));
    }
  }
  ReadTopics(reader.Map("topics"), &outbox.table);
  ReadRecordHeaders(reader.Map("record_headers"), reader.Child("record_headers"), &outbox.table);
  ReadConstantHeaders(reader.Map("constant_headers"), reader.Child("constant_headers"),
                      &outbox.encoder);
  for (const auto& [name, value] : outbox.encoder.constant_headers) {
    for (const auto& [other, column] : outbox.table.record_headers) {
      if (name == other) {
        reader.Problem("constant_headers",
                       absl::StrFormat("'%s' is among the record_headers, too", name));
      }
    }
  }
  ReadValue(reader.Map("value"), &outbox.encoder);
  const envelope::FramingOptions& framing = outbox.encoder.framing;
  if (framing.framing != envelope::Framing::kNone && framing.needs_record() &&
      outbox.encoder.format != envelope::ValueFormat::kEnvelope &&
      outbox.table.columns.schema_name.empty()) {
    reader.Problem("columns",
                   "schema_name, the full name of the message, is needed for the Schema Registry: "
                   "name its column");
  }
  if (outbox.table.debezium && outbox.encoder.format != envelope::ValueFormat::kRaw) {
    reader.Problem("value", "with `debezium` only format: raw");
  }
  reader.Finish();
  return outbox;
}

}  // namespace

void ReadValue(MapReader reader, envelope::EncoderOptions* encoder) {
  using envelope::ValueFormat;
  const std::vector<std::string> names = {"envelope", "raw", "cloudevents"};
  const ValueFormat formats[] = {ValueFormat::kEnvelope, ValueFormat::kRaw,
                                 ValueFormat::kCloudEvents};
  const auto fallback = std::find(std::begin(formats), std::end(formats), encoder->format);
  encoder->format = formats[reader.Choice(
      "format", names, static_cast<std::size_t>(fallback - std::begin(formats)))];
  const bool given = reader.Child("cloudevents").IsDefined();
  if (given && encoder->format != ValueFormat::kCloudEvents) {
    reader.Problem("cloudevents", "has no effect without format: cloudevents");
  }
  ReadCloudEvents(reader.Map("cloudevents"), &encoder->cloud_events);
  ReadFraming(reader.Map("schema_registry"), reader.Child("schema_registry").IsDefined(), encoder);
  reader.Finish();
}

void ReadConstantHeaders(MapReader reader, const YAML::Node& map,
                         envelope::EncoderOptions* encoder) {
  if (!map.IsMap()) {
    return;
  }
  for (const auto& entry : map) {
    std::string value;
    const std::string name = entry.first.Scalar();
    if (reader.Text(name, &value) && IsHeaderName(&reader, name)) {
      encoder->constant_headers.emplace_back(name, value);
    }
  }
}

std::vector<pipeline::OutboxOptions> ReadOutboxes(const YAML::Node& list, Problems* problems) {
  std::vector<pipeline::OutboxOptions> outboxes;
  if (!list.IsDefined() || list.IsNull()) {
    pipeline::OutboxOptions outbox;
    outbox.table = *outbox::PresetOptions("walpost");
    outboxes.push_back(std::move(outbox));
    return outboxes;
  }
  if (!list.IsSequence()) {
    problems->Add(list, "outboxes", "expected a list of `- table: schema.table`");
    return outboxes;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    outboxes.push_back(
        ReadOutbox(MapReader(list[i], absl::StrFormat("outboxes[%u]", i), problems), problems));
    for (std::size_t j = 0; j < i; ++j) {
      if (outboxes[j].table.schema == outboxes[i].table.schema &&
          outboxes[j].table.table == outboxes[i].table.table) {
        problems->Add(list[i], absl::StrFormat("outboxes[%u].table", i),
                      "the same table is listed twice");
      }
    }
  }
  return outboxes;
}

}  // namespace walpost::config
