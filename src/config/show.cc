#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/secret.h"
#include "base/status.h"
#include "config/config.h"
#include "config/debezium.h"
#include "config/document.h"
#include "config/schema_registry.h"
#include "config/units.h"
#include "outbox/presets.h"
#include "postgres/sql_connection.h"

namespace walpost::config {
namespace {

// What is hidden while one configuration is shown, in each text of it: a list of the keys that may hold
// a secret would miss the next one.
thread_local const std::vector<std::string>* hidden = nullptr;

std::string Shown(std::string text) {
  return hidden == nullptr ? std::move(text) : Hidden(std::move(text), *hidden);
}

// The emitter writes control characters as they are, where they are lost or move the terminal's
// cursor; between double quotes it writes them as escapes.
class Text {
 public:
  explicit Text(std::string shown) : text_(std::move(shown)) {}

  friend YAML::Emitter& operator<<(YAML::Emitter& out, const Text& text) {
    const bool control = std::any_of(text.text_.begin(), text.text_.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
    return control ? out << YAML::DoubleQuoted << text.text_ : out << text.text_;
  }

 private:
  const std::string text_;
};

// Text that reads back as itself: a dollar sign that would open a variable is doubled.
// Hidden before that, since what a file holds has them single.
Text Literal(const std::string& original) {
  const std::string text = Shown(original);
  std::string literal;
  for (std::size_t i = 0; i < text.size(); ++i) {
    literal += text[i];
    if (text[i] == '$' && i + 1 < text.size() && (text[i + 1] == '$' || text[i + 1] == '{')) {
      literal += '$';
    }
  }
  return Text(std::move(literal));
}

// libpq takes escapes and percent signs away, so what a file holds may not be in the value as it was. A
// value is shown only where the conninfo says it outside of what came from files.
Text ShownConninfo(const std::string& conninfo) {
  if (hidden == nullptr) {
    return Literal(postgres::RedactConninfo(conninfo));
  }
  std::string own = conninfo;
  for (const std::string& secret : *hidden) {
    if (secret.size() >= kHiddenAnywhereMin || secret.find_first_of("'\\%") != std::string::npos) {
      own = absl::StrReplaceAll(own, {{secret, "\n"}});
    }
  }
  return Literal(postgres::RedactConninfo(conninfo, [&](const std::string& value) {
    const std::string shown = Shown(value);
    const bool foreign = own != conninfo && own.find(value) == std::string::npos;
    return shown == value && foreign ? std::string("***") : shown;
  }));
}

// No name is shown as [] where leaving it out would bring the preset's back.
void ShowNames(const char* key, const std::vector<std::string>& names,
               const std::vector<std::string>& preset, YAML::Emitter* out) {
  if (names.empty() && preset.empty()) {
    return;
  }
  *out << YAML::Key << key << YAML::Value;
  if (names.size() == 1) {
    *out << Literal(names[0]);
    return;
  }
  *out << YAML::Flow << YAML::BeginSeq;
  for (const std::string& name : names) {
    *out << Literal(name);
  }
  *out << YAML::EndSeq;
}

void ShowPairs(const char* key, const std::vector<std::pair<std::string, std::string>>& pairs,
               YAML::Emitter* out) {
  *out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginMap;
  for (const auto& [name, value] : pairs) {
    *out << YAML::Key << Text(Shown(name)) << YAML::Value << Literal(value);
  }
  *out << YAML::EndMap;
}

void ShowTopics(const outbox::TopicOptions& topics, YAML::Emitter* out) {
  *out << YAML::Key << "topics" << YAML::Value << YAML::BeginMap;
  ShowNames("allowed", topics.allowed, {}, out);
  ShowPairs("by_aggregate_type", topics.by_aggregate_type, out);
  *out << YAML::EndMap;
}

void ShowFraming(const envelope::FramingOptions& framing, YAML::Emitter* out) {
  *out << YAML::Key << "schema_registry" << YAML::Value << YAML::BeginMap << YAML::Key << "framing"
       << YAML::Value << std::string(envelope::FramingName(framing.framing)) << YAML::Key
       << "subject" << YAML::Value << Literal(SubjectName(framing.subject)) << YAML::Key << "type"
       << YAML::Value << std::string(envelope::SchemaTypeName(framing.type));
  if (!framing.descriptor_set.empty()) {
    *out << YAML::Key << "descriptor_set" << YAML::Value << Literal(framing.descriptor_set);
  }
  *out << YAML::Key << "auto_register" << YAML::Value << framing.auto_register << YAML::EndMap;
}

void ShowValue(const envelope::EncoderOptions& encoder, YAML::Emitter* out) {
  constexpr const char* kFormats[] = {"envelope", "raw", "cloudevents"};
  constexpr const char* kModes[] = {"binary", "structured_protobuf", "structured_json"};
  *out << YAML::Key << "value" << YAML::Value << YAML::Flow << YAML::BeginMap << YAML::Key
       << "format" << YAML::Value << kFormats[static_cast<std::size_t>(encoder.format)];
  if (encoder.format == envelope::ValueFormat::kCloudEvents) {
    *out << YAML::Key << "cloudevents" << YAML::Value << YAML::BeginMap << YAML::Key << "mode"
         << YAML::Value << kModes[static_cast<std::size_t>(encoder.cloud_events.mode)];
    if (!encoder.cloud_events.source.empty()) {
      *out << YAML::Key << "source" << YAML::Value << Literal(encoder.cloud_events.source);
    }
    *out << YAML::EndMap;
  }
  if (encoder.framing.framing != envelope::Framing::kNone) {
    ShowFraming(encoder.framing, out);
  }
  *out << YAML::EndMap;
}

void ShowDebezium(const outbox::TableOptions& table, YAML::Emitter* out) {
  *out << YAML::Key << "debezium" << YAML::Value << YAML::BeginMap;
  for (const auto& [name, value] : DebeziumPairs(table)) {
    *out << YAML::Key << name << YAML::Value
         << (IsDebeziumPattern(name) ? Text(Shown(value)) : Literal(value));
  }
  *out << YAML::EndMap;
}

void ShowOutbox(const envelope::OutboxOptions& outbox, YAML::Emitter* out) {
  const outbox::ColumnMapping& c = outbox.table.columns;
  const outbox::ColumnMapping d =
      outbox::PresetOptions(outbox.table.preset).value_or(outbox::TableOptions()).columns;
  *out << YAML::BeginMap;
  *out << YAML::Key << "table" << YAML::Value
       << Literal(outbox.table.schema + "." + outbox.table.table);
  *out << YAML::Key << "preset" << YAML::Value << Literal(outbox.table.preset);
  *out << YAML::Key << "columns" << YAML::Value << YAML::BeginMap;
  ShowNames("id", c.id, d.id, out);
  ShowNames("key", c.key, d.key, out);
  ShowNames("aggregate_type", c.aggregate_type, d.aggregate_type, out);
  ShowNames("type", c.type, d.type, out);
  ShowNames("payload", c.payload, d.payload, out);
  ShowNames("content_type", c.content_type, d.content_type, out);
  ShowNames("schema_name", c.schema_name, d.schema_name, out);
  ShowNames("headers", c.headers, d.headers, out);
  ShowNames("occurred_at", c.occurred_at, d.occurred_at, out);
  ShowNames("traceparent", c.traceparent, d.traceparent, out);
  ShowNames("tracestate", c.tracestate, d.tracestate, out);
  ShowNames("baggage", c.baggage, d.baggage, out);
  ShowNames("tracingspancontext", c.tracingspancontext, d.tracingspancontext, out);
  ShowNames("topic", c.topic, d.topic, out);
  ShowNames("partition", c.partition, d.partition, out);
  ShowNames("timestamp", c.timestamp, d.timestamp, out);
  ShowNames("seq", c.seq, d.seq, out);
  *out << YAML::EndMap;
  if (outbox.table.debezium) {
    ShowDebezium(outbox.table, out);
  } else {
    *out << YAML::Key << "topic" << YAML::Value << Literal(outbox.table.topic);
  }
  ShowTopics(outbox.table.topics, out);
  ShowPairs("record_headers", outbox.table.record_headers, out);
  std::vector<std::pair<std::string, std::string>> constant = outbox.encoder.constant_headers;
  for (auto& [name, value] : constant) {
    value = base::MayHoldSecret(name) ? "***" : value;
  }
  ShowPairs("constant_headers", constant, out);
  ShowValue(outbox.encoder, out);
  *out << YAML::EndMap;
}

void ShowMessages(const pipeline::MessagesOptions& messages, YAML::Emitter* out) {
  *out << YAML::Key << "messages" << YAML::Value << YAML::BeginMap;
  *out << YAML::Key << "prefixes" << YAML::Value << YAML::Flow << YAML::BeginSeq;
  for (const std::string& prefix : messages.prefixes) {
    *out << Literal(prefix);
  }
  *out << YAML::EndSeq;
  *out << YAML::Key << "topic" << YAML::Value << Literal(messages.topic);
  if (!messages.topics.allowed.empty()) {
    *out << YAML::Key << "topics" << YAML::Value << YAML::BeginMap;
    ShowNames("allowed", messages.topics.allowed, {}, out);
    *out << YAML::EndMap;
  }
  *out << YAML::Key << "on_undeliverable" << YAML::Value << (messages.halts ? "halt" : "skip");
  ShowValue(messages.encoder, out);
  *out << YAML::EndMap;
}

void ShowKafka(const kafka::KafkaOptions& options, YAML::Emitter* out) {
  *out << YAML::Key << "sink" << YAML::Value << YAML::BeginMap << YAML::Key << "kafka"
       << YAML::Value << YAML::BeginMap << YAML::Key << "properties" << YAML::Value
       << YAML::BeginMap;
  if (const auto properties = kafka::EffectiveProperties(options); properties.ok()) {
    for (const auto& [name, value] : *properties) {
      *out << YAML::Key << Text(Shown(name)) << YAML::Value << Literal(value);
    }
  }
  *out << YAML::EndMap << YAML::EndMap << YAML::EndMap;
}

void ShowRegistry(const registry::RegistryOptions& options, YAML::Emitter* out) {
  if (options.urls.empty()) {
    return;
  }
  const auto secret = [](const std::string& text) {
    return text.empty() ? std::string() : std::string("***");
  };
  const std::pair<const char*, std::string> texts[] = {
      {"url", absl::StrJoin(options.urls, ",")},
      {"username", options.username},
      {"password", secret(options.password)},
      {"token", secret(options.token)},
      {"ca_file", options.ca_file},
      {"certificate_file", options.certificate_file},
      {"key_file", options.key_file}};
  *out << YAML::Key << "schema_registry" << YAML::Value << YAML::BeginMap;
  for (const auto& [key, text] : texts) {
    if (!text.empty()) {
      *out << YAML::Key << key << YAML::Value << Literal(text);
    }
  }
  *out << YAML::Key << "timeout" << YAML::Value << FormatDuration(options.timeout) << YAML::Key
       << "refresh" << YAML::Value << FormatDuration(options.refresh) << YAML::EndMap;
}

const char* PolicyName(pipeline::OnUndeliverable policy) {
  switch (policy) {
    case pipeline::OnUndeliverable::kHalt:
      return "halt";
    case pipeline::OnUndeliverable::kDeadLetter:
      return "dead_letter";
    case pipeline::OnUndeliverable::kPark:
      return "park";
    case pipeline::OnUndeliverable::kSkip:
      return "skip";
  }
  return "halt";
}

const char* LevelName(observe::Severity level) {
  switch (level) {
    case observe::Severity::kDebug:
      return "debug";
    case observe::Severity::kInfo:
      return "info";
    case observe::Severity::kWarning:
      return "warning";
    case observe::Severity::kError:
      return "error";
  }
  return "info";
}

}  // namespace

std::string ShowToCompare(const Config& config) {
  const runtime::RunOptions& run = config.run;
  YAML::Emitter out;
  out << YAML::BeginMap;
  out << YAML::Key << "version" << YAML::Value << 1;
  out << YAML::Key << "name" << YAML::Value << Literal(run.name);
  out << YAML::Key << "source" << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "conninfo" << YAML::Value << ShownConninfo(run.source.conninfo);
  out << YAML::Key << "slot" << YAML::Value << Literal(run.source.slot);
  out << YAML::Key << "publication" << YAML::Value << Literal(run.source.publication);
  out << YAML::Key << "event_bytes_max" << YAML::Value << FormatSize(run.pipeline.event_bytes_max);
  out << YAML::Key << "reconnect_interval" << YAML::Value
      << FormatDuration(run.pipeline.reconnect_interval);
  out << YAML::EndMap;
  out << YAML::Key << "outboxes" << YAML::Value << YAML::BeginSeq;
  for (const envelope::OutboxOptions& outbox : run.pipeline.outboxes) {
    ShowOutbox(outbox, &out);
  }
  out << YAML::EndSeq;
  ShowMessages(run.pipeline.messages, &out);
  ShowRegistry(run.registry, &out);
  out << YAML::Key << "delivery" << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "mode" << YAML::Value << "at_least_once";
  out << YAML::Key << "on_undeliverable" << YAML::Value
      << PolicyName(run.pipeline.on_undeliverable);
  out << YAML::Key << "on_halt" << YAML::Value
      << (run.on_halt == runtime::OnHalt::kWait ? "wait" : "exit");
  out << YAML::Key << "unknown_topic_wait" << YAML::Value
      << FormatDuration(run.pipeline.unknown_topic_wait);
  out << YAML::Key << "in_flight_bytes_max" << YAML::Value
      << FormatSize(run.pipeline.in_flight_bytes_max);
  out << YAML::Key << "shutdown_timeout" << YAML::Value
      << FormatDuration(run.pipeline.shutdown_timeout);
  out << YAML::Key << "progress_topic" << YAML::Value << Literal(run.pipeline.progress_topic);
  out << YAML::Key << "dead_letters_max" << YAML::Value << run.pipeline.dead_letters_max;
  out << YAML::Key << "dead_letters_per_second" << YAML::Value
      << run.pipeline.dead_letters_per_second;
  out << YAML::Key << "dead_letter_conninfo" << YAML::Value
      << ShownConninfo(run.dead_letter_conninfo);
  out << YAML::Key << "dead_letter_topic" << YAML::Value << Literal(run.dead_letter_topic);
  out << YAML::EndMap;
  ShowKafka(run.kafka, &out);
  out << YAML::Key << "monitor" << YAML::Value << YAML::BeginMap << YAML::Key << "conninfo"
      << YAML::Value << ShownConninfo(run.monitor.conninfo) << YAML::Key << "interval"
      << YAML::Value << FormatDuration(run.monitor.interval) << YAML::EndMap;
  out << YAML::Key << "http" << YAML::Value << YAML::Flow << YAML::BeginMap << YAML::Key << "listen"
      << YAML::Value << Literal(run.http.listen);
  if (!run.http.hosts.empty()) {
    out << YAML::Key << "hosts" << YAML::Value << YAML::BeginSeq;
    for (const std::string& host : run.http.hosts) {
      out << Literal(host);
    }
    out << YAML::EndSeq;
  }
  if (!run.http.token.empty()) {
    out << YAML::Key << "token" << YAML::Value << Literal("***");
  }
  out << YAML::EndMap;
  out << YAML::Key << "security" << YAML::Value << YAML::Flow << YAML::BeginMap << YAML::Key
      << "require_encryption" << YAML::Value << config.require_encryption << YAML::EndMap;
  out << YAML::Key << "log" << YAML::Value << YAML::Flow << YAML::BeginMap << YAML::Key << "level"
      << YAML::Value << LevelName(config.log_level) << YAML::Key << "format" << YAML::Value
      << (config.log_format == observe::LogFormat::kText ? "text" : "json") << YAML::EndMap;
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

std::string Show(const Config& config) {
  hidden = &config.from_files;
  const absl::Cleanup shown = [] { hidden = nullptr; };
  return ShowToCompare(config);
}

}  // namespace walpost::config
