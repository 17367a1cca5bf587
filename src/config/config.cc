#include "config/config.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"
#include "config/default_config.h"
#include "config/document.h"
#include "config/outboxes.h"
#include "config/reader.h"
#include "config/schema_registry.h"
#include "observe/http_client.h"
#include "outbox/options.h"
#include "outbox/topic_rules.h"

namespace walpost::config {
namespace {

using Form = Key::Form;

bool IsSlotName(std::string_view name) {
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

void ReadSource(MapReader reader, Config* config) {
  postgres::ConnectOptions& source = config->run.source;
  constexpr std::size_t kMiB = std::size_t{1} << 20U;
  reader.Text("conninfo", &source.conninfo, Form::kConninfo);
  reader.Text("slot", &source.slot);
  reader.Text("publication", &source.publication);
  reader.Size("event_bytes_max", &config->run.pipeline.event_bytes_max, kMiB, 1024 * kMiB);
  reader.Duration("reconnect_interval", &config->run.pipeline.reconnect_interval);
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
  std::string& topic = config->run.pipeline.progress_topic;
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

void ReadDelivery(MapReader reader, Config* config) {
  pipeline::PipelineOptions& options = config->run.pipeline;
  constexpr std::size_t kKiB = 1024;
  if (reader.Choice("mode", {"at_least_once", "exactly_once"}, 0) != 0) {
    reader.Problem("mode",
                   "exactly_once is not built yet; use at_least_once and drop repeats by id");
  }
  reader.Choice("on_undeliverable", {"halt", "dead_letter", "park", "skip"},
                &options.on_undeliverable);
  reader.Choice("on_halt", {"wait", "exit"}, &config->run.on_halt);
  reader.Duration("unknown_topic_wait", &options.unknown_topic_wait, {}, std::chrono::minutes(10));
  reader.Size("in_flight_bytes_max", &options.in_flight_bytes_max, 64 * kKiB,
              4 * kKiB * kKiB * kKiB);
  reader.Duration("shutdown_timeout", &options.shutdown_timeout);
  ReadProgressTopic(&reader, config);
  reader.Count("dead_letters_max", &options.dead_letters_max);
  reader.Count("dead_letters_per_second", &options.dead_letters_per_second);
  reader.Text("dead_letter_conninfo", &config->run.dead_letter_conninfo, Form::kConninfo);
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

void ReadMonitor(MapReader reader, runtime::MonitorOptions* options) {
  reader.Text("conninfo", &options->conninfo, Form::kConninfo);
  reader.Duration("interval", &options->interval, std::chrono::seconds(1));
  reader.Finish();
}

void ReadHttp(MapReader reader, observe::HttpOptions* options) {
  constexpr std::size_t kTokenMin = 16;
  constexpr std::size_t kTokenMax = 256;
  if (reader.Text("listen", &options->listen)) {
    reader.Problem("listen", std::string(observe::ParseListen(options->listen).status().message()));
  }
  reader.Names("hosts", &options->hosts, Form::kGivenList);
  const std::string& token = options->token;
  if (reader.Text("token", &options->token, Form::kSecret) && !token.empty() &&
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

void ReadLog(MapReader reader, Config* config) {
  reader.Choice("level", {"debug", "info", "warning", "error"}, &config->log_level);
  reader.Choice("format", {"text", "json"}, &config->log_format);
  reader.Finish();
}

}  // namespace

absl::StatusOr<Config> Parse(const std::string& yaml, const std::string& file,
                             const std::vector<std::string>& sets) {
  Config config;
  config.run.pipeline.messages.topic = outbox::kDefaultTopic;
  config.run.pipeline.progress_topic = "walpost.progress.{name}";
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
    config.run.pipeline.name = config.run.name;
    config.run.source.application_name = "walpost-" + config.run.name;
    config.run.pipeline.outboxes = ReadOutboxes(root.Child("outboxes"), &problems);
    for (const envelope::OutboxOptions& outbox : config.run.pipeline.outboxes) {
      config.run.source.tables.push_back(
          {outbox.table.schema, outbox.table.table, outbox::MappedColumns(outbox.table)});
    }
    ReadMessages(root.Map("messages"), &config.run.pipeline.messages);
    config.run.source.message_prefixes = config.run.pipeline.messages.prefixes;
    if (const YAML::Node outboxes = root.Child("outboxes");
        outboxes.IsSequence() && outboxes.size() == 0 &&
        config.run.source.message_prefixes.empty()) {
      problems.Add(outboxes, "outboxes",
                   "expected a list with at least one `- table: schema.table`, or "
                   "`messages.prefixes`");
    }
    ReadSchemaRegistry(root.Map("schema_registry"), &config.run.registry);
    config.run.registry.secrets = config.from_files;
    config.run.pipeline.schema_refresh = config.run.registry.refresh;
    CheckFramings(&root, config);
    ReadDelivery(root.Map("delivery"), &config);
    ReadKafka(root.Map("sink"), &config, &problems);
    ReadMonitor(root.Map("monitor"), &config.run.monitor);
    ReadHttp(root.Map("http"), &config.run.http);
    ReadLog(root.Map("log"), &config);
    ReadSecurity(root.Map("security"), &config);
    CheckEncryption(&root, config);
    root.Finish();
  } catch (const YAML::Exception& error) {
    problems.lines.push_back(absl::StrFormat("%s: %s", file, error.what()));
  }
  if (!problems.lines.empty()) {
    return absl::InvalidArgumentError(
        Hidden(absl::StrJoin(problems.lines, "\n"), config.from_files));
  }
  for (std::string& warning : problems.warnings) {
    config.warnings.push_back(Hidden(std::move(warning), config.from_files));
  }
  return config;
}

std::vector<Key> KeysOf(Config config) {
  std::vector<Key> keys;
  Problems none;  // nothing is read
  MapReader root({}, "", &none, &keys);
  ReadSource(root.Map("source"), &config);
  ReadMessages(root.Map("messages"), &config.run.pipeline.messages);
  ReadSchemaRegistry(root.Map("schema_registry"), &config.run.registry);
  ReadDelivery(root.Map("delivery"), &config);
  ReadMonitor(root.Map("monitor"), &config.run.monitor);
  ReadHttp(root.Map("http"), &config.run.http);
  ReadSecurity(root.Map("security"), &config);
  ReadLog(root.Map("log"), &config);
  return keys;
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
