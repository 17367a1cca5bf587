#include "config/outboxes.h"

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
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
      {"topic", &columns->topic},
      {"partition", &columns->partition},
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

void ReadRecordHeaders(MapReader reader, const YAML::Node& map, outbox::TableOptions* table) {
  if (!map.IsMap()) {
    return;
  }
  for (const auto& entry : map) {
    std::string column;
    if (reader.Text(entry.first.Scalar(), &column)) {
      table->record_headers.emplace_back(entry.first.Scalar(), column);
    }
  }
}

void ReadValue(MapReader reader, envelope::EncoderOptions* encoder) {
  const std::vector<std::string> formats = {"envelope", "raw", "cloudevents"};
  const std::size_t fallback = encoder->format == envelope::ValueFormat::kEnvelope ? 0 : 1;
  switch (reader.Choice("format", formats, fallback)) {
    case 0:
      encoder->format = envelope::ValueFormat::kEnvelope;
      break;
    case 1:
      encoder->format = envelope::ValueFormat::kRaw;
      break;
    default:
      reader.Problem("format", "cloudevents is not built yet; use envelope or raw");
  }
  reader.Finish();
}

pipeline::OutboxOptions ReadOutbox(MapReader reader) {
  pipeline::OutboxOptions outbox;
  const std::vector<std::string> presets(std::begin(outbox::kPresetNames),
                                         std::end(outbox::kPresetNames));
  const std::string& preset = presets[reader.Choice("preset", presets, 0)];
  outbox.table = *outbox::PresetOptions(preset);
  if (preset == "debezium") {
    outbox.encoder = {envelope::ValueFormat::kRaw, envelope::HeaderSet::kDebezium};
  }
  ReadTable(&reader, &outbox.table);
  ReadColumns(reader.Map("columns"), &outbox.table.columns);
  if (reader.Text("topic", &outbox.table.topic)) {
    if (const auto parsed = outbox::TopicTemplate::Parse(outbox.table.topic); !parsed.ok()) {
      reader.Problem("topic", std::string(parsed.status().message()));
    }
  }
  ReadRecordHeaders(reader.Map("record_headers"), reader.Child("record_headers"), &outbox.table);
  ReadValue(reader.Map("value"), &outbox.encoder);
  reader.Finish();
  return outbox;
}

}  // namespace

std::vector<pipeline::OutboxOptions> ReadOutboxes(const YAML::Node& list, Problems* problems) {
  std::vector<pipeline::OutboxOptions> outboxes;
  if (!list.IsDefined() || list.IsNull()) {
    pipeline::OutboxOptions outbox;
    outbox.table = *outbox::PresetOptions("walpost");
    outboxes.push_back(std::move(outbox));
    return outboxes;
  }
  if (!list.IsSequence() || list.size() == 0) {
    problems->Add(list, "outboxes", "expected a list with at least one `- table: schema.table`");
    return outboxes;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    outboxes.push_back(
        ReadOutbox(MapReader(list[i], absl::StrFormat("outboxes[%u]", i), problems)));
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
