#include "config/config.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/secret.h"
#include "base/status.h"
#include "config/default_config.h"
#include "config/document.h"
#include "config/encryption.h"
#include "config/messages.h"
#include "config/outboxes.h"
#include "config/reader.h"
#include "config/schema_registry.h"
#include "observe/http_access.h"
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
  reader.Duration("reconnect_interval", &config->run.pipeline.reconnect_interval);
  std::size_t& event_bytes_max = config->run.pipeline.event_bytes_max;
  constexpr std::size_t kMiB = std::size_t{1024} * 1024;
  if (reader.Size("event_bytes_max", &event_bytes_max) &&
      (event_bytes_max < kMiB || event_bytes_max > 1024 * kMiB)) {
    reader.Problem("event_bytes_max", "must be between 1MiB and 1GiB");
  }
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
    // Two names may become one topic: the key of the records distinguishes them.
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

// What walpost writes or reads itself is never an event's topic, and each of its topics is another.
void KeepOwnTopics(MapReader* delivery, Config* config) {
  pipeline::PipelineOptions& options = config->run.pipeline;
  if (!options.progress_topic.empty() && options.progress_topic == config->run.dead_letter_topic) {
    delivery->Problem("dead_letter_topic", absl::StrFormat("'%s' is the progress_topic, too",
                                                           config->run.dead_letter_topic));
  }
  const std::vector<std::string> own = {options.progress_topic, config->run.dead_letter_topic};
  const auto keep = [&](const std::string& topic, const std::string& owner,
                        outbox::TopicOptions* topics) {
    topics->own = own;
    std::vector<std::string> named = topics->allowed;
    named.push_back(topic);
    for (const auto& [type, to] : topics->by_aggregate_type) {
      named.push_back(to);
    }
    for (const std::string& name : named) {
      if (std::find(own.begin(), own.end(), name) != own.end()) {
        delivery->Problem(name == own[0] ? "progress_topic" : "dead_letter_topic",
                          absl::StrFormat("'%s' is a topic of %s, too", name, owner));
      }
    }
  };
  for (std::size_t i = 0; i < options.outboxes.size(); ++i) {
    outbox::TableOptions& table = options.outboxes[i].table;
    keep(table.topic, absl::StrFormat("outboxes[%u]", i), &table.topics);
  }
  keep(options.messages.topic, "messages", &options.messages.topics);
}

void ReadCount(MapReader* reader, const char* key, std::size_t* count) {
  std::string text;
  if (!reader->Text(key, &text)) {
    return;
  }
  if (text.empty() || text.size() > 7 || !std::all_of(text.begin(), text.end(), ::isdigit) ||
      std::stoi(text) < 1) {
    reader->Problem(key, "must be a whole number from 1 to 9999999");
    return;
  }
  *count = static_cast<std::size_t>(std::stoi(text));
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
  reader.Duration("unknown_topic_wait", &options.unknown_topic_wait);
  if (options.unknown_topic_wait > std::chrono::minutes(10)) {
    reader.Problem("unknown_topic_wait", "must be 10min at most");
  }
  reader.Size("in_flight_bytes_max", &options.in_flight_bytes_max);
  if (options.in_flight_bytes_max < 64 * 1024 || options.in_flight_bytes_max > std::size_t{4}
                                                                                   << 30) {
    reader.Problem("in_flight_bytes_max", "must be between 64KiB and 4GiB");
  }
  reader.Duration("shutdown_timeout", &options.shutdown_timeout);
  ReadProgressTopic(&reader, config);
  ReadCount(&reader, "dead_letters_max", &options.dead_letters_max);
  ReadCount(&reader, "dead_letters_per_second", &options.dead_letters_per_second);
  reader.Text("dead_letter_conninfo", &config->run.dead_letter_conninfo);
  std::string& topic = config->run.dead_letter_topic;
  reader.Text("dead_letter_topic", &topic);
  if (!topic.empty() && !outbox::IsLegalTopic(topic)) {
    reader.Problem("dead_letter_topic",
                   absl::StrFormat("'%s' is not a topic's name: 1 to 249 letters, digits, '.', '_' "
                                   "and '-'",
                                   topic));
  }
  postgres::ConnectOptions& source = config->run.source;
  source.pipeline = config->run.name;
  source.writes_dead_letters = options.on_undeliverable == pipeline::OnUndeliverable::kDeadLetter ||
                               options.on_undeliverable == pipeline::OnUndeliverable::kPark;
  source.dead_letters_elsewhere = !config->run.dead_letter_conninfo.empty();
  KeepOwnTopics(&reader, config);
  reader.Finish();
}

// What librdkafka would take, and no pipeline can live with; empty = nothing.
std::string WhyRejected(const YAML::detail::iterator_value& property) {
  const std::string name = property.first.Scalar();
  if (name.rfind("test.mock.", 0) == 0) {
    return "makes a Kafka of its own inside walpost, which keeps nothing: name real brokers";
  }
  return "";
}

void ReadKafka(MapReader sink, Config* config, Problems* problems) {
  MapReader kafka = sink.Map("kafka");
  const YAML::Node properties = kafka.Child("properties");
  if (properties.IsDefined() && !properties.IsNull() && !properties.IsMap()) {
    problems->Add(properties, "sink.kafka.properties", "expected a map of librdkafka's properties");
  } else if (properties.IsMap()) {
    std::set<std::string> seen;
    for (const auto& entry : properties) {
      const std::string path = "sink.kafka.properties." + entry.first.Scalar();
      if (!seen.insert(entry.first.Scalar()).second) {
        problems->Add(entry.first, path, "stands here a second time");
      }
      if (const std::string why = WhyRejected(entry); !why.empty()) {
        problems->Add(entry.second, path, why);
      }
      if (!entry.second.IsScalar()) {
        problems->Add(entry.second, path, "expected one value");
        continue;
      }
      config->run.kafka.properties.emplace_back(entry.first.Scalar(), entry.second.Scalar());
    }
  }
  kafka.Finish();
  sink.Finish();
  config->run.kafka.secrets = config->from_files;
  config->run.kafka.name = config->run.name;
  config->run.kafka.in_flight_bytes_max = config->run.pipeline.in_flight_bytes_max;
  config->run.kafka.unknown_topic_wait = config->run.pipeline.unknown_topic_wait;
  if (const auto effective = kafka::EffectiveProperties(config->run.kafka); !effective.ok()) {
    problems->lines.push_back(
        absl::StrFormat("%s: %s", problems->file, std::string(effective.status().message())));
  }
}

void CheckFramings(MapReader* root, const Config& config) {
  const auto check = [&](const envelope::EncoderOptions& encoder, const std::string& owner) {
    if (encoder.framing.framing != envelope::Framing::kNone && config.run.registry.urls.empty()) {
      root->Problem(
          "schema_registry",
          absl::StrFormat("%s.value.schema_registry.framing needs schema_registry.url", owner));
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
  if (reader.Text("listen", &options->listen)) {
    if (const auto addresses = observe::ParseListen(options->listen); !addresses.ok()) {
      reader.Problem("listen", std::string(addresses.status().message()));
    }
  }
  reader.Names("hosts", &options->hosts);
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

// A value may be cut into pieces before one of them is at fault.
std::string WithoutSecrets(std::string message, const std::vector<std::string>& from_files) {
  message = Hidden(std::move(message), from_files);
  for (const std::string& secret : from_files) {
    message = base::HideRuns(message, secret);
  }
  return message;
}

}  // namespace

absl::StatusOr<Config> Parse(const std::string& yaml, const std::string& file,
                             const std::vector<std::string>& sets) {
  Config config;
  ASSIGN_OR_RETURN(const YAML::Node document, LoadDocument(yaml, file, sets, &config.from_files));
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
    for (const envelope::OutboxOptions& outbox : config.run.pipeline.outboxes) {
      config.run.source.tables.push_back(
          {outbox.table.schema, outbox.table.table, outbox::MappedColumns(outbox.table)});
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
    ReadSecurity(root.Map("security"), &root, &config);
    root.Finish();
  } catch (const YAML::Exception& error) {
    problems.lines.push_back(absl::StrFormat("%s: %s", file, error.what()));
  }
  if (!problems.lines.empty()) {
    return absl::InvalidArgumentError(
        WithoutSecrets(absl::StrJoin(problems.lines, "\n"), config.from_files));
  }
  for (std::string& warning : problems.warnings) {
    config.warnings.push_back(WithoutSecrets(std::move(warning), config.from_files));
  }
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
