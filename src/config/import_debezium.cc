#include "config/import_debezium.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "config/config.h"
#include "config/connector_file.h"
#include "config/debezium.h"
#include "outbox/topic_rules.h"
#include "postgres/conninfo.h"

namespace walpost::config {
namespace {

constexpr char kRouter[] = "io.debezium.transforms.outbox.EventRouter";
constexpr char kConnector[] = "io.debezium.connector.postgresql.PostgresConnector";
constexpr char kBootstrap[] = "${WALPOST_KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}";

// Say nothing that walpost could do otherwise.
constexpr const char* kSilent[] = {"tasks.max",
                                   "topic.prefix",
                                   "database.server.name",
                                   "tombstones.on.delete",
                                   "sink.type",
                                   "publication.autocreate.mode",
                                   "poll.interval.ms",
                                   "max.batch.size",
                                   "max.queue.size",
                                   "max.queue.size.in.bytes",
                                   "status.update.interval.ms",
                                   "decimal.handling.mode",
                                   "slot.drop.on.stop",
                                   "transforms",
                                   "schema.include.list",
                                   "database.dbname"};

// Names and what becomes of them; a name that ends with '.' or '*' stands for all that begin so.
constexpr std::pair<const char*, const char*> kLost[] = {
    {"heartbeat.", "not needed: walpost confirms what the server sends without a heartbeat"},
    {"topic.heartbeat.prefix", "not needed: walpost has no heartbeat topic"},
    {"signal.", "there are no signal tables or topics"},
    {"notification.", "there are no notifications; see /metrics and /status"},
    {"predicates", "there are no predicates: walpost reads nothing but outbox tables"},
    {"provide.transaction.metadata", "there is no transaction topic"},
    {"offset", "not needed: the position is that of the slot"},
    {"schema.history", "not needed: columns are read from the stream"},
    {"errors.", "see delivery.on_undeliverable, which decides event by event"},
    {"format.header", "headers are text, as SimpleHeaderConverter writes them"},
    {"slot.failover", "the slot stays as it is"},
    {"slot.stream.params", "walpost chooses the stream's parameters"},
    {"message.prefix.", "messages.prefixes names the prefixes of logical messages"},
    {"time.precision.mode", "placed times are as in adaptive"},
    {"binary.handling.mode", "placed bytes are as in bytes"},
    {"skipped.operations", "walpost publishes inserts alone"},
    {"", "it has no counterpart"}};

const char* WhyLost(const std::string& name) {
  for (const auto& [prefix, why] : kLost) {
    if (name.compare(0, std::string_view(prefix).size(), prefix) == 0) {
      return why;
    }
  }
  return "";
}

// Dollar signs that stand for themselves in walpost.yaml.
std::string Plain(const std::string& value) { return absl::StrReplaceAll(value, {{"$", "$$"}}); }

class Importer {
 public:
  explicit Importer(ConnectorFile file)
      : settings_(std::move(file.settings)),
        producer_(std::move(file.producer)),
        is_server_(file.is_server) {
    imported_.notes = std::move(file.notes);
  }

  absl::StatusOr<ImportedConfig> Run() {
    RETURN_IF_ERROR(FindRouter());
    YAML::Emitter out;
    out << YAML::BeginMap;
    Key(&out, "name", Plain(Take("name", Take("slot.name", "debezium", false))));
    WriteSource(&out);
    RETURN_IF_ERROR(WriteOutboxes(&out));
    WriteSink(&out);
    out << YAML::EndMap;
    ReadConverters();
    ReadSnapshot();
    NoteTheRest();
    imported_.yaml = std::string(out.c_str()) + "\n";
    RETURN_IF_ERROR(Load());
    return std::move(imported_);
  }

 private:
  void Note(const std::string& name, std::string_view what) {
    imported_.notes.push_back(absl::StrFormat("%s: %s", name, what));
  }

  // The value, which is dealt with then.
  std::string Take(const std::string& name, const std::string& fallback, bool dealt_with = true) {
    const auto found = settings_.find(name);
    if (dealt_with) {
      done_.insert(name);
    }
    return found == settings_.end() ? fallback : found->second;
  }

  static void Key(YAML::Emitter* out, const std::string& key, const std::string& value) {
    *out << YAML::Key << key << YAML::Value << YAML::DoubleQuoted << value;
  }

  absl::Status FindRouter() {
    const std::string connector = Take("connector.class", kConnector);
    if (connector != kConnector && connector != "PostgresConnector") {
      return absl::InvalidArgumentError("connector.class is not Debezium's PostgreSQL connector");
    }
    for (const absl::string_view name : absl::StrSplit(Take("transforms", ""), ',')) {
      const std::string alias(absl::StripAsciiWhitespace(name));
      const std::string prefix = "transforms." + alias + ".";
      const std::string type = Take(prefix + "type", "", false);
      if (type == kRouter && router_.empty()) {
        router_ = prefix;
      } else if (!alias.empty()) {
        Note("transforms." + alias, "this transformation is not carried over");
        Drop(prefix);
      }
    }
    return router_.empty() ? absl::InvalidArgumentError(
                                 absl::StrFormat("none of its transformations is %s", kRouter))
                           : absl::OkStatus();
  }

  void Drop(const std::string& prefix) {
    for (const auto& [name, value] : settings_) {
      if (absl::StartsWith(name, prefix)) {
        done_.insert(name);
      }
    }
  }

  // A value that Connect or Quarkus would have looked up elsewhere.
  std::string Resolved(const std::string& name, const std::string& value) {
    if (!absl::StrContains(value, "${")) {
      return Plain(postgres::ConninfoValue(value));
    }
    const std::string variable =
        "WALPOST_" + absl::AsciiStrToUpper(absl::StrReplaceAll(name, {{".", "_"}}));
    Note(name, absl::StrFormat("set the environment variable %s to it", variable));
    variables_.push_back("${" + variable + "}");
    return "'" + variables_.back() + "'";
  }

  void WriteSource(YAML::Emitter* out) {
    constexpr std::pair<const char*, const char*> kParts[] = {
        {"database.hostname", "host"},   {"database.port", "port"},
        {"database.user", "user"},       {"database.dbname", "dbname"},
        {"database.sslmode", "sslmode"}, {"database.sslrootcert", "sslrootcert"},
        {"database.sslcert", "sslcert"}, {"database.sslkey", "sslkey"}};
    std::string conninfo;
    for (const auto& [name, part] : kParts) {
      if (settings_.count(name) != 0) {
        conninfo +=
            std::string(conninfo.empty() ? "" : " ") + part + "=" + Resolved(name, Take(name, ""));
      }
    }
    if (settings_.count("database.password") != 0) {
      Take("database.password", "");
      // libpq reads it as it is: in the connection string, some characters would need a backslash.
      Note("database.password", "set the environment variable PGPASSWORD to it");
    }
    if (Take("plugin.name", "decoderbufs") != "pgoutput") {
      Note("plugin.name",
           "walpost reads pgoutput: this slot cannot be taken over; let Debezium "
           "finish, then make a new one with `walpost init`");
    }
    *out << YAML::Key << "source" << YAML::Value << YAML::BeginMap;
    Key(out, "conninfo", conninfo);
    Key(out, "slot", Plain(Take("slot.name", "debezium")));
    Key(out, "publication", Plain(Take("publication.name", "dbz_publication")));
    *out << YAML::EndMap;
  }

  // table.include.list are expressions; those that are plain names are taken.
  std::vector<std::string> Tables() {
    std::vector<std::string> tables;
    const std::string list = Take("table.include.list", "");
    for (const absl::string_view piece : absl::StrSplit(list, ',', absl::SkipWhitespace())) {
      const std::string expression(absl::StripAsciiWhitespace(piece));
      const std::string name =
          absl::StrReplaceAll(expression, {{"\\.", "."}, {"\\s", " "}, {"\\ ", " "}, {"[.]", "."}});
      if (name.find_first_of("\\[](){}*+?|^$") != std::string::npos ||
          std::count(name.begin(), name.end(), '.') != 1) {
        Note("table.include.list",
             absl::StrFormat("'%s' is not the name of one table: write it under `outboxes`",
                             expression));
      } else {
        tables.push_back(name);
      }
    }
    if (tables.empty()) {
      Note("table.include.list", "it names no table, so public.outbox is taken");
      tables.emplace_back("public.outbox");
    }
    return tables;
  }

  absl::Status WriteOutboxes(YAML::Emitter* out) {
    std::vector<std::pair<std::string, std::string>> options;
    for (const auto& [name, value] : settings_) {
      if (!absl::StartsWith(name, router_)) {
        continue;
      }
      done_.insert(name);
      const std::string option = name.substr(router_.size());
      const std::vector<std::string>& known = DebeziumOptionNames();
      if (option == "type") {
        continue;
      }
      if (std::find(known.begin(), known.end(), option) == known.end()) {
        Note(name, "it is no option of the Event Router");
      } else if (IsDebeziumPattern(option)) {
        options.emplace_back(option, value);
      } else {
        options.emplace_back(option, Plain(value));
      }
    }
    *out << YAML::Key << "outboxes" << YAML::Value << YAML::BeginSeq;
    for (const std::string& table : Tables()) {
      *out << YAML::BeginMap;
      Key(out, "table", Plain(table));
      *out << YAML::Key << "debezium" << YAML::Value << YAML::BeginMap;
      for (const auto& [name, value] : options) {
        Key(out, name, value);
      }
      *out << YAML::EndMap;
      if (AnyTopic()) {
        *out << YAML::Key << "topics" << YAML::Value << YAML::BeginMap << YAML::Key << "allowed"
             << YAML::Value << YAML::DoubleQuoted << "*" << YAML::EndMap;
      }
      *out << YAML::EndMap;
    }
    *out << YAML::EndSeq;
    if (AnyTopic()) {
      Note("route.topic.replacement",
           "a row may name any topic, as it did; list those that it may in topics.allowed");
    }
    return absl::OkStatus();
  }

  void WriteSink(YAML::Emitter* out) {
    constexpr const char* kSame[] = {"compression.type", "linger.ms", "security.protocol",
                                     "sasl.mechanism"};
    *out << YAML::Key << "sink" << YAML::Value << YAML::BeginMap << YAML::Key << "kafka"
         << YAML::Value << YAML::BeginMap << YAML::Key << "properties" << YAML::Value
         << YAML::BeginMap;
    const auto servers = producer_.find("bootstrap.servers");
    const bool known = servers != producer_.end() && !absl::StrContains(servers->second, "${");
    Key(out, "bootstrap.servers", known ? Plain(servers->second) : kBootstrap);
    if (!known) {
      Note("bootstrap.servers", "it is not in this file: set WALPOST_KAFKA_BOOTSTRAP_SERVERS");
    }
    for (const auto& [name, value] : producer_) {
      const bool same = std::find(std::begin(kSame), std::end(kSame), name) != std::end(kSame);
      if (same && !absl::StrContains(value, "${")) {
        Key(out, name, Plain(value));
      } else if (name != "bootstrap.servers" && !absl::EndsWith(name, ".serializer")) {
        Note("producer " + name, "write it as librdkafka calls it, under sink.kafka.properties");
      }
    }
    *out << YAML::EndMap << YAML::EndMap << YAML::EndMap;
    if (const std::string sink = Take("sink.type", "kafka"); sink != "kafka") {
      Note("sink.type", "walpost writes to Kafka alone");
    }
  }

  // Whether nothing in the replacement bounds what a row may name.
  bool AnyTopic() {
    const outbox::DebeziumOptions defaults;
    const auto router = outbox::TopicRouter::Make(
        Take(router_ + "route.topic.regex", defaults.topic_regex, false),
        Take(router_ + "route.topic.replacement", defaults.topic_replacement, false));
    return router.ok() && outbox::AllowsAnyTopic(router->Pattern());
  }

  bool Routes(const std::string& option, std::string_view what) {
    const std::string value = Take(router_ + option, "");
    return !value.empty() && absl::StrContains(absl::AsciiStrToLower(value), std::string(what));
  }

  // Which of them wrote other bytes than walpost does.
  void ReadConverters() {
    if (is_server_) {
      ReadFormat("format.key", "keys");
      ReadFormat("format.value", "values");
      if (Take("format.header", "json") != "clientprovided") {
        Note("format.header", "headers were JSON; walpost writes their text");
      }
      Drop("format.");
      if (Routes("table.field.event.timestamp", "") ||
          Routes("table.fields.additional.placement", "partition")) {
        Note("sink.type", "Debezium Server left partition and timestamp alone; walpost sets them");
      }
      return;
    }
    for (const char* name : {"key.converter", "value.converter", "header.converter"}) {
      const std::string converter = Take(name, "");
      const std::string kind = converter.substr(converter.rfind('.') + 1);
      const bool schemaless = Take(std::string(name) + ".schemas.enable", "true") == "false";
      const bool as_json = Routes("table.expand.json.payload", "true") ||
                           Routes("table.fields.additional.placement", "envelope");
      Drop(std::string(name) + ".");
      if (converter.empty()) {
        if (name != std::string_view("header.converter")) {
          Note(name, "it is the worker's: walpost writes what StringConverter does");
        }
      } else if (kind == "JsonConverter" && name == std::string_view("value.converter")) {
        if (!schemaless) {
          Note(name, "values held their schema; walpost writes them without");
        } else if (!as_json) {
          Note(name, "payloads were quoted JSON strings; walpost writes the text itself");
        }
      } else if (kind != "StringConverter" && kind != "SimpleHeaderConverter" &&
                 kind != "BinaryDataConverter" && kind != "ByteArrayConverter" &&
                 kind != "ByteBufferConverter") {
        Note(name,
             absl::StrFormat("what %s wrote is not what walpost writes: the text itself", kind));
      }
    }
  }

  void ReadFormat(const std::string& name, std::string_view what) {
    const std::string format = Take(name, "json");
    if (format != "simplestring" && format != "binary") {
      Note(name, absl::StrFormat("%s were %s; walpost writes their text or bytes", what, format));
    }
  }

  void ReadSnapshot() {
    const std::string mode = Take("snapshot.mode", "initial");
    if (mode != "no_data" && mode != "never") {
      Note("snapshot.mode",
           "walpost publishes what is committed after the slot was made, and no "
           "rows of before");
    }
    Drop("snapshot.");
  }

  void NoteTheRest() {
    for (const auto& [name, value] : settings_) {
      const bool silent =
          std::find(std::begin(kSilent), std::end(kSilent), name) != std::end(kSilent);
      if (!silent && done_.count(name) == 0) {
        Note(name, WhyLost(name));
      }
    }
  }

  // With something in the place of variables, which are set later.
  absl::Status Load() {
    std::string yaml = imported_.yaml;
    for (const std::string& variable : variables_) {
      yaml = absl::StrReplaceAll(yaml, {{variable, "x"}});
    }
    const absl::StatusOr<Config> config = Parse(yaml, "walpost.yaml", {});
    if (!config.ok()) {
      return config.status();
    }
    for (const std::string& warning : config->warnings) {
      imported_.notes.push_back(warning.substr(warning.find(": ") + 2));
    }
    return absl::OkStatus();
  }

  const std::map<std::string, std::string> settings_;
  const std::map<std::string, std::string> producer_;
  const bool is_server_;
  std::string router_;  // "transforms.outbox."
  std::set<std::string> done_;
  std::vector<std::string> variables_;
  ImportedConfig imported_;
};

}  // namespace

absl::StatusOr<ImportedConfig> ImportDebezium(const std::string& text) {
  ASSIGN_OR_RETURN(ConnectorFile file, ReadConnectorFile(text));
  return Importer(std::move(file)).Run();
}

}  // namespace walpost::config
