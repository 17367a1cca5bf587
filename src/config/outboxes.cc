#include "config/outboxes.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/text.h"
#include "config/debezium.h"
#include "config/schema_registry.h"
#include "outbox/event_router.h"
#include "outbox/message_mapper.h"
#include "outbox/options.h"
#include "outbox/topic_rules.h"

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

void ReadColumns(MapReader reader, outbox::TableOptions* table) {
  outbox::ColumnMapping* const columns = &table->columns;
  for (const auto& [name, field] : kColumnFields) {
    if (reader.Names(name, &(columns->*field)) && !(columns->*field).empty()) {
      table->fields_named.emplace_back(name);
    }
  }
  if (columns->id.empty()) {
    reader.Problem("id", "an event needs an id: name its column");
  } else if (table->schema == "outbox" && table->table == "events" && columns->id[0] != "id") {
    reader.Problem(
        "id", "outbox.events has its ids in id: outbox.maintain finds a dead letter's row by it");
  }
  if (columns->payload.empty()) {
    reader.Problem("payload", "an event needs a payload: name its column");
  }
  reader.Finish();
}

constexpr char kReserved[] =
    "'%s' belongs to walpost or to Kafka itself: no event goes to __... or walpost....";

// Names that distinguish dead letters and redeliveries from events.
constexpr std::string_view kReservedPrefix = "walpost-";

bool IsHeaderName(MapReader* reader, const std::string& name) {
  if (name.empty() || base::StartsWithIgnoringCase(name, kReservedPrefix)) {
    reader->Problem(name, "a header needs a name, and names with walpost- belong to walpost");
    return false;
  }
  return true;
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Header name to what it is made of.
void ReadHeaders(MapReader reader, const YAML::Node& map, Pairs* headers) {
  if (!map.IsMap()) {
    return;
  }
  for (const auto& entry : map) {
    std::string value;
    const std::string name = entry.first.Scalar();
    if (reader.Text(name, &value) && IsHeaderName(&reader, name)) {
      headers->emplace_back(name, value);
    }
  }
}

// The row names the topic, and nothing says which it may name.
void RequireAllowed(MapReader* reader, const outbox::TableOptions& table) {
  if (table.topics.allowed.empty() && outbox::AllowsAnyTopic(outbox::ImpliedTopics(table))) {
    reader->Problem("topics.allowed",
                    "each row names its topic freely: list the topics that rows may name, such as "
                    "[orders, \"shop.*\"], or [\"*\"] for any; or give `topic` a text of its own, "
                    "such as shop.{aggregate_type}");
  }
}

void ReadTopics(MapReader reader, outbox::TableOptions* table) {
  outbox::TopicOptions* topics = &table->topics;
  const auto fits = [topics](const std::string& topic) {
    return topics->allowed.empty() || std::any_of(topics->allowed.begin(), topics->allowed.end(),
                                                  [&](const std::string& allowed) {
                                                    return outbox::MatchesPattern(topic, allowed);
                                                  });
  };
  constexpr char kIllegal[] =
      "'%s' is no topic of Kafka's: letters, digits, '.', '_', '-', at most 249";
  ReadAllowed(&reader, topics);
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
      } else if (outbox::IsReservedTopic(topic)) {
        by_type.Problem(type, absl::StrFormat(kReserved, topic));
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

void ReadCloudEvents(MapReader reader, envelope::EncoderOptions* encoder) {
  envelope::CloudEventOptions* const options = &encoder->cloud_events;
  reader.ShowOnlyIf(encoder->format == envelope::ValueFormat::kCloudEvents);
  reader.Choice("mode", {"binary", "structured_protobuf", "structured_json"}, &options->mode);
  if (reader.Text("source", &options->source, Key::Form::kGiven) &&
      !envelope::IsUriReference(options->source)) {
    reader.Problem("source", absl::StrFormat("'%s' is no URI reference, such as "
                                             "https://shop.example/orders or /shop/orders",
                                             options->source));
  }
  reader.Finish();
}

// A record has each header once, and none that is walpost's.
void CheckHeaderNames(MapReader* reader, const envelope::OutboxOptions& outbox) {
  std::vector<std::pair<const char*, std::string>> names;
  for (const auto& [name, value] : outbox.encoder.constant_headers) {
    names.emplace_back("constant_headers", name);
  }
  for (const auto& [name, column] : outbox.table.record_headers) {
    names.emplace_back("record_headers", name);
  }
  if (outbox.table.debezium) {
    for (const outbox::Placement& placement : outbox.table.debezium->placements) {
      if (placement.where == outbox::Placement::Where::kHeader) {
        names.emplace_back("debezium", placement.alias);
      }
    }
  }
  const outbox::ColumnMapping& c = outbox.table.columns;
  const std::pair<std::string_view, bool> trace[] = {
      {"traceparent", !c.traceparent.empty() || !c.tracingspancontext.empty()},
      {"tracestate", !c.tracestate.empty()},
      {"baggage", !c.baggage.empty()},
      {"tracingspancontext", !c.tracingspancontext.empty()}};
  for (auto name = names.begin(); name != names.end(); ++name) {
    const auto& [key, text] = *name;
    const bool mapped = std::any_of(std::begin(trace), std::end(trace), [&](const auto& field) {
      return field.second && base::EqualsIgnoringCase(field.first, text);
    });
    if (envelope::IsOwnHeader(outbox.encoder, text) || mapped) {
      reader->Problem(key, absl::StrFormat("walpost writes the header '%s' itself", text));
    }
    // As the encoder compares them.
    if (std::any_of(names.begin(), name, [&](const auto& other) {
          return base::EqualsIgnoringCase(other.second, text);
        })) {
      reader->Problem(key, absl::StrFormat("the header '%s' is given twice", text));
    }
  }
}

envelope::OutboxOptions ReadOutbox(MapReader reader, Problems* problems) {
  envelope::OutboxOptions outbox;
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
  ReadColumns(reader.Map("columns"), &outbox.table);
  if (reader.Text("topic", &outbox.table.topic)) {
    if (const auto parsed = outbox::TopicTemplate::Parse(outbox.table.topic); !parsed.ok()) {
      reader.Problem("topic", std::string(parsed.status().message()));
    } else if (outbox::IsReservedTopic(parsed->Pattern())) {
      reader.Problem("topic", absl::StrFormat(kReserved, outbox.table.topic));
    }
  }
  ReadTopics(reader.Map("topics"), &outbox.table);
  ReadHeaders(reader.Map("record_headers"), reader.Child("record_headers"),
              &outbox.table.record_headers);
  ReadHeaders(reader.Map("constant_headers"), reader.Child("constant_headers"),
              &outbox.encoder.constant_headers);
  ReadValue(reader.Map("value"), &outbox.encoder);
  CheckHeaderNames(&reader, outbox);
  RequireAllowed(&reader, outbox.table);
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

void ReadAllowed(MapReader* topics, outbox::TopicOptions* options) {
  if (!topics->Names("allowed", &options->allowed)) {
    return;
  }
  if (options->allowed.empty()) {
    topics->Problem("allowed", "no topic is listed: leave it out to allow what `topic` can give");
  }
  for (const std::string& topic : options->allowed) {
    if (!outbox::IsLegalTopicPattern(topic)) {
      topics->Problem(
          "allowed",
          absl::StrFormat("'%s' is no topic of Kafka's, nor a pattern with '*': letters, "
                          "digits, '.', '_', '-', at most 249",
                          topic));
    } else if (outbox::IsReservedTopic(topic)) {
      topics->Problem("allowed", absl::StrFormat(kReserved, topic));
    }
  }
}

void ReadValue(MapReader reader, envelope::EncoderOptions* encoder) {
  reader.Choice("format", {"envelope", "raw", "cloudevents"}, &encoder->format);
  if (reader.Child("cloudevents").IsDefined() &&
      encoder->format != envelope::ValueFormat::kCloudEvents) {
    reader.Problem("cloudevents", "has no effect without format: cloudevents");
  }
  ReadCloudEvents(reader.Map("cloudevents"), encoder);
  ReadFraming(reader.Map("schema_registry"), reader.Child("schema_registry").IsDefined(), encoder);
  reader.Finish();
}

std::vector<Key> ValueKeys(envelope::EncoderOptions encoder) {
  std::vector<Key> keys;
  Problems none;
  ReadValue(MapReader({}, "value", &none, &keys), &encoder);
  return keys;
}

std::vector<envelope::OutboxOptions> ReadOutboxes(const YAML::Node& list, Problems* problems) {
  std::vector<envelope::OutboxOptions> outboxes;
  if (!list.IsDefined() || list.IsNull()) {
    outboxes.push_back(ReadOutbox(MapReader(list, "outboxes[0]", problems), problems));
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

namespace {

// It becomes part of a metric's label and of headers.
constexpr std::size_t kPrefixBytesMax = 200;

bool IsPrefix(const std::string& prefix) {
  return !prefix.empty() && prefix.size() <= kPrefixBytesMax &&
         std::none_of(prefix.begin(), prefix.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

}  // namespace

void ReadMessages(MapReader reader, pipeline::MessagesOptions* messages) {
  reader.Names("prefixes", &messages->prefixes, Key::Form::kList);
  for (auto prefix = messages->prefixes.begin(); prefix != messages->prefixes.end(); ++prefix) {
    if (!IsPrefix(*prefix)) {
      reader.Problem("prefixes", "a prefix has 1 to 200 bytes and no control characters");
    }
    if (std::find(messages->prefixes.begin(), prefix, *prefix) != prefix) {
      reader.Problem("prefixes", absl::StrFormat("'%s' is listed twice", *prefix));
    }
  }
  if (reader.Text("topic", &messages->topic)) {
    if (const auto parsed = outbox::ParseMessageTopic(messages->topic); !parsed.ok()) {
      reader.Problem("topic", std::string(parsed.status().message()));
    } else if (outbox::IsReservedTopic(parsed->Pattern())) {
      reader.Problem(
          "topic", absl::StrFormat("'%s' belongs to walpost or to Kafka itself", messages->topic));
    }
  }
  MapReader topics = reader.Map("topics");
  ReadAllowed(&topics, &messages->topics);
  topics.Finish();
  const auto parsed = outbox::ParseMessageTopic(messages->topic);
  if (!messages->prefixes.empty() && messages->topics.allowed.empty() && parsed.ok() &&
      outbox::AllowsAnyTopic(parsed->Pattern())) {
    reader.Problem("topics.allowed",
                   "any SQL role may emit, and each message names its topic: list the topics that "
                   "messages may name, such as [orders, \"shop.*\"], or [\"*\"] for any");
  }
  reader.Choice("on_undeliverable", {"skip", "halt"}, &messages->halts);
  ReadValue(reader.Map("value"), &messages->encoder);
  reader.Finish();
}

}  // namespace walpost::config
