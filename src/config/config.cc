#include "config/config.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "config/default_config.h"
#include "config/document.h"
#include "config/messages.h"
#include "config/outboxes.h"
#include "config/reader.h"
#include "config/schema_registry.h"
#include "outbox/topic_template.h"

namespace walpost::config {
namespace {

constexpr std::string_view kNotBuilt = "is not built yet";

bool IsSlotName(std::string_view name) {
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

void ReadSource(MapReader reader, Config* config) {
  postgres::ConnectOptions& source = config->run.source;
  reader.Text("conninfo", &source.conninfo);
  reader.Text("slot", &source.slot);
  reader.Text("publication", &source.publication);
  reader.Duration("recheck_interval", &config->run.pipeline.recheck_interval);
  if (!IsSlotName(source.slot)) {
    reader.Problem(
        "slot",
        absl::StrFormat("'%s' is not a slot name: lower-case letters, digits and '_', at most 63",
                        source.slot));
  }
  if (source.publication.empty() || source.publication.size() > 63) {
    reader.Problem("publication", "must be a name of 1 to 63 characters");
  }
  reader.Finish();
}

void ReadProgressTopic(MapReader* reader, Config* config) {
  constexpr std::string_view kName = "{name}";
  std::string topic = "walpost.progress.{name}";
  reader->Text("progress_topic", &topic);
  if (const std::size_t at = topic.find(kName); at != std::string::npos) {
    // Two names may become one topic: the records' key tells them apart.
    std::string name = config->run.name;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return !outbox::IsTopicCharacter(c); }, '_');
    topic.replace(at, kName.size(), name);
  }
  if (!topic.empty() && !outbox::IsLegalTopic(topic)) {
    reader->Problem("progress_topic",
                    absl::StrFormat("'%s' is not a topic's name: at most 249 letters, digits, "
                                    "'.', '_' and '-', and {name} for the pipeline's name",
                                    topic));
  }
  config->run.pipeline.name = config->run.name;
  config->run.pipeline.progress_topic = topic;
}

void ReadDelivery(MapReader reader, Config* config) {
  pipeline::PipelineOptions& options = config->run.pipeline;
  if (reader.Choice("mode", {"at_least_once", "exactly_once"}, 0) != 0) {
    reader.Problem(
        "mode",
        absl::StrFormat("exactly_once %s; use at_least_once and drop repeats by id", kNotBuilt));
  }
  options.on_undeliverable = static_cast<pipeline::OnUndeliverable>(
      reader.Choice("on_undeliverable", {"halt", "dead_letter", "park", "skip"}, 0));
  config->run.on_halt = reader.Choice("on_halt", {"wait", "exit"}, 0) == 0 ? runtime::OnHalt::kWait
                                                                           : runtime::OnHalt::kExit;
  std::string attempts;
  if (reader.Text("attempts_max", &attempts) &&
      (attempts.empty() || attempts.size() > 3 ||
       !std::all_of(attempts.begin(), attempts.end(), ::isdigit) || std::stoi(attempts) < 1)) {
    reader.Problem("attempts_max", "must be a whole number from 1 to 999");
  } else if (!attempts.empty()) {
    options.attempts_max = std::stoi(attempts);
  }
  reader.Size("in_flight_bytes_max", &options.in_flight_bytes_max);
  if (options.in_flight_bytes_max < 64 * 1024 || options.in_flight_bytes_max > std::size_t{4}
                                                                                   << 30) {
    reader.Problem("in_flight_bytes_max", "must be between 64KiB and 4GiB");
  }
  reader.Duration("shutdown_timeout", &options.shutdown_timeout);
  ReadProgressTopic(&reader, config);
  options.dead_letter_topic = "walpost.dead-letter";
  reader.Text("dead_letter_topic", &options.dead_letter_topic);
  std::string keys;
  if (reader.Text("park_keys_max", &keys) &&
      (keys.empty() || keys.size() > 7 || !std::all_of(keys.begin(), keys.end(), ::isdigit) ||
       std::stoi(keys) < 1)) {
    reader.Problem("park_keys_max", "must be a whole number from 1 to 9999999");
  } else if (!keys.empty()) {
    options.park_keys_max = static_cast<std::size_t>(std::stoi(keys));
  }
  if (!outbox::IsLegalTopic(options.dead_letter_topic)) {
    reader.Problem("dead_letter_topic",
                   absl::StrFormat("'%s' is not a topic's name: 1 to 249 letters, digits, '.', '_' "
                                   "and '-'",
                                   options.dead_letter_topic));
  }
  reader.Finish();
}

void ReadKafka(MapReader sink, Config* config, Problems* problems) {
  MapReader kafka = sink.Map("kafka");
  const YAML::Node properties = kafka.Child("properties");
  if (properties.IsDefined() && !properties.IsNull() && !properties.IsMap()) {
    problems->Add(properties, "sink.kafka.properties", "expected a map of librdkafka's properties");
  } else if (properties.IsMap()) {
    for (const auto& entry : properties) {
      if (!entry.second.IsScalar()) {
        problems->Add(entry.second, "sink.kafka.properties." + entry.first.Scalar(),
                      "expected one value");
        continue;
      }
      config->run.kafka.properties.emplace_back(entry.first.Scalar(), entry.second.Scalar());
    }
  }
  kafka.Finish();
  sink.Finish();
  config->run.kafka.name = config->run.name;
  config->run.kafka.in_flight_bytes_max = config->run.pipeline.in_flight_bytes_max;
  if (const auto effective = kafka::EffectiveProperties(config->run.kafka); !effective.ok()) {
    problems->lines.push_back(
        absl::StrFormat("%s: %s", problems->file, std::string(effective.status().message())));
  }
}

void CheckFramings(MapReader* root, const Config& config) {
  const auto check = [&](const envelope::EncoderOptions& encoder, const std::string& place) {
    if (encoder.framing.framing != envelope::Framing::kNone && config.run.registry.urls.empty()) {
      root->Problem(
          "schema_registry",
          absl::StrFormat("%s.value.schema_registry.framing needs schema_registry.url", place));
    }
  };
  const pipeline::PipelineOptions& pipeline = config.run.pipeline;
  for (std::size_t i = 0; i < pipeline.outboxes.size(); ++i) {
    check(pipeline.outboxes[i].encoder, absl::StrFormat("outboxes[%u]", i));
  }
  check(pipeline.messages.encoder, "messages");
}

void ReadHttp(MapReader reader, observe::HttpOptions* options) {
  constexpr std::size_t kTokenMin = 16;
  constexpr std::size_t kTokenMax = 256;
  reader.Text("listen", &options->listen);
  const std::string& token = options->token;
  if (reader.Text("token", &options->token) && !token.empty() &&
      (token.size() < kTokenMin || token.size() > kTokenMax ||
       !std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; }))) {
    // Not the value: it is shown.
    reader.Problem(
        "token", absl::StrFormat("must have %u to %u characters of ASCII without spaces; `openssl "
                                 "rand -hex 32` makes one",
                                 kTokenMin, kTokenMax));
  }
  reader.Finish();
}

void ReadRest(MapReader* root, Config* config) {
  MapReader monitor = root->Map("monitor");
  constexpr std::chrono::milliseconds kIntervalMin{1'000};
  monitor.Text("conninfo", &config->run.monitor.conninfo);
  if (monitor.Duration("interval", &config->run.monitor.interval) &&
      config->run.monitor.interval < kIntervalMin) {
    monitor.Problem("interval", "must be at least 1s");
  }
  monitor.Finish();

  ReadHttp(root->Map("http"), &config->run.http);

  MapReader log = root->Map("log");
  constexpr observe::Severity kLevels[] = {observe::Severity::kDebug, observe::Severity::kInfo,
                                           observe::Severity::kWarning, observe::Severity::kError};
  config->log_level = kLevels[log.Choice("level", {"debug", "info", "warning", "error"}, 1)];
  config->log_format = log.Choice("format", {"text", "json"}, 0) == 0 ? observe::LogFormat::kText
                                                                      : observe::LogFormat::kJson;
  log.Finish();
}

}  // namespace

absl::StatusOr<Config> Parse(const std::string& yaml, const std::string& file,
                             const std::vector<std::string>& sets) {
  ASSIGN_OR_RETURN(const YAML::Node document, LoadDocument(yaml, file, sets));
  Config config;
  Problems problems{file, {}, {}};
  try {
    MapReader root(document, "", &problems);
    std::string version;
    root.Text("version", &version);
    if (!version.empty() && version != "1") {
      root.Problem("version", "this walpost reads version 1");
    }
    ReadSource(root.Map("source"), &config);
    config.run.name = config.run.source.slot;
    root.Text("name", &config.run.name);
    if (config.run.name.empty()) {
      root.Problem("name", "must not be empty");
    }
    config.run.source.application_name = "walpost-" + config.run.name;
    config.run.pipeline.outboxes = ReadOutboxes(root.Child("outboxes"), &problems);
    for (const pipeline::OutboxOptions& outbox : config.run.pipeline.outboxes) {
      config.run.source.tables.push_back({outbox.table.schema, outbox.table.table});
    }
    config.run.pipeline.messages = ReadMessages(root.Map("messages"));
    config.run.source.message_prefixes = config.run.pipeline.messages.prefixes;
    if (const YAML::Node outboxes = root.Child("outboxes");
        outboxes.IsSequence() && outboxes.size() == 0 &&
        config.run.source.message_prefixes.empty()) {
      problems.Add(outboxes, "outboxes",
                   "expected a list with at least one `- table: schema.table`, or "
                   "`messages.prefixes`");
    }
    config.run.registry = ReadSchemaRegistry(root.Map("schema_registry"));
    config.run.pipeline.schema_refresh = config.run.registry.refresh;
    CheckFramings(&root, config);
    ReadDelivery(root.Map("delivery"), &config);
    ReadKafka(root.Map("sink"), &config, &problems);
    ReadRest(&root, &config);
    root.Finish();
  } catch (const YAML::Exception& error) {
    problems.lines.push_back(absl::StrFormat("%s: %s", file, error.what()));
  }
  if (!problems.lines.empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(problems.lines, "\n"));
  }
  config.warnings = std::move(problems.warnings);
  return config;
}

absl::StatusOr<Config> Load(const LoadOptions& options) {
  const absl::StatusOr<std::string> yaml = ReadFile(options.file);
  // Only when there is none: one that exists and cannot be read was meant to be used.
  if (absl::IsNotFound(yaml.status()) && options.file == kDefaultFile) {
    return Parse(kShippedConfig, "(built-in default file)", options.sets);
  }
  if (!yaml.ok()) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: the configuration file %s", options.file,
                                                      std::string(yaml.status().message())));
  }
  return Parse(*yaml, options.file, options.sets);
}

}  // namespace walpost::config
