#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "base/text.h"
#include "config/config.h"
#include "config/debezium.h"
#include "config/document.h"
#include "config/outboxes.h"
#include "outbox/options.h"
#include "postgres/sql_connection.h"

namespace walpost::config {
namespace {

// What is hidden while one configuration is shown, in each text of it: a list of the keys that may
// hold a secret would miss the next one.
thread_local const std::vector<std::string>* hidden = nullptr;

std::string Shown(std::string text) {
  return hidden == nullptr ? std::move(text) : Hidden(std::move(text), *hidden);
}

// The emitter writes control characters as they are, where they are lost or move the terminal's
// cursor; between double quotes it writes them as escapes.
class Scalar {
 public:
  explicit Scalar(std::string shown) : text_(std::move(shown)) {}

  friend YAML::Emitter& operator<<(YAML::Emitter& out, const Scalar& text) {
    const bool control = std::any_of(text.text_.begin(), text.text_.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
    return control ? out << YAML::DoubleQuoted << text.text_ : out << text.text_;
  }

 private:
  const std::string text_;
};

// Text that reads back as itself: a dollar sign that would open a variable is doubled.
Scalar Escaped(const std::string& text) {
  std::string literal;
  for (std::size_t i = 0; i < text.size(); ++i) {
    literal += text[i];
    if (text[i] == '$' && i + 1 < text.size() && (text[i + 1] == '$' || text[i + 1] == '{')) {
      literal += '$';
    }
  }
  return Scalar(std::move(literal));
}

// Hidden before it is escaped, since what a file holds has single dollar signs.
Scalar Literal(const std::string& original) { return Escaped(Shown(original)); }

// libpq takes escapes and percent signs away, so what a file holds may not be in the value as it
// was. A value is shown only if the conninfo says it outside of what came from files, but for what
// is there as a file holds it.
Scalar ShownConninfo(const std::string& conninfo) {
  if (hidden == nullptr) {
    return Literal(postgres::RedactConninfo(conninfo));
  }
  constexpr absl::string_view kTaken("\0", 1);  // which libpq's texts lack
  // All are replaced at once, the longest first: one may be a part of another.
  std::vector<std::pair<absl::string_view, absl::string_view>> foreign_texts;
  for (const std::string& secret : *hidden) {
    if (secret.size() >= kHiddenAnywhereMin || secret.find_first_of("'\\%") != std::string::npos) {
      foreign_texts.emplace_back(secret, kTaken);
    }
  }
  const std::string own = absl::StrReplaceAll(conninfo, foreign_texts);
  const std::string redacted = postgres::RedactConninfo(conninfo, [&](const std::string& value) {
    const std::vector<std::string> parts =
        absl::StrSplit(absl::StrReplaceAll(value, foreign_texts), kTaken);
    const bool foreign =
        own != conninfo && std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
          return own.find(part) == std::string::npos;
        });
    return foreign ? std::string("***") : Shown(value);
  });
  return redacted == conninfo ? Literal(conninfo) : Escaped(redacted);
}

void ShowList(const std::vector<std::string>& names, YAML::Emitter* out) {
  *out << YAML::Flow << YAML::BeginSeq;
  for (const std::string& name : names) {
    *out << Literal(name);
  }
  *out << YAML::EndSeq;
}

// One alone is no list.
void ShowNames(const std::vector<std::string>& names, YAML::Emitter* out) {
  if (names.size() == 1) {
    *out << Literal(names[0]);
  } else {
    ShowList(names, out);
  }
}

void ShowPairs(const char* key, const std::vector<std::pair<std::string, std::string>>& pairs,
               YAML::Emitter* out) {
  *out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginMap;
  for (const auto& [name, value] : pairs) {
    *out << YAML::Key << Scalar(Shown(name)) << YAML::Value << Literal(value);
  }
  *out << YAML::EndMap;
}

void ShowWords(const Key& key, YAML::Emitter* out) {
  switch (key.form) {
    case Key::Form::kText:
    case Key::Form::kGiven:
      *out << Literal(key.words[0]);
      break;
    case Key::Form::kConninfo:
      *out << ShownConninfo(key.words[0]);
      break;
    case Key::Form::kSecret:
      *out << Literal("***");
      break;
    case Key::Form::kNames:
      ShowNames(key.words, out);
      break;
    case Key::Form::kList:
    case Key::Form::kGivenList:
      ShowList(key.words, out);
      break;
  }
}

// The map at `path` with those of `keys` that stand below it; nothing where there are none.
void ShowMap(const std::vector<Key>& keys, const std::string& path, YAML::Emitter* out) {
  const std::string map = path.substr(path.rfind('.') + 1);
  const bool on_one_line = map == "value" || map == "http" || map == "security" || map == "log";
  std::string last;
  for (const Key& key : keys) {
    if (key.path.rfind(path + ".", 0) != 0) {
      continue;
    }
    if (last.empty()) {
      *out << YAML::Key << map << YAML::Value << (on_one_line ? YAML::Flow : YAML::Block)
           << YAML::BeginMap;
    }
    const std::size_t dot = key.path.find('.', path.size() + 1);
    const std::string name = key.path.substr(0, dot);
    if (dot != std::string::npos && name != last) {
      ShowMap(keys, name, out);
    } else if (dot == std::string::npos) {
      *out << YAML::Key << name.substr(path.size() + 1) << YAML::Value;
      ShowWords(key, out);
    }
    last = name;
  }
  if (!last.empty()) {
    *out << YAML::EndMap;
  }
}

void ShowTopics(const outbox::TopicOptions& topics, YAML::Emitter* out) {
  *out << YAML::Key << "topics" << YAML::Value << YAML::BeginMap;
  if (!topics.allowed.empty()) {
    *out << YAML::Key << "allowed" << YAML::Value;
    ShowNames(topics.allowed, out);
  }
  ShowPairs("by_aggregate_type", topics.by_aggregate_type, out);
  *out << YAML::EndMap;
}

void ShowDebezium(const outbox::TableOptions& table, YAML::Emitter* out) {
  *out << YAML::Key << "debezium" << YAML::Value << YAML::BeginMap;
  for (const auto& [name, value] : DebeziumPairs(table)) {
    *out << YAML::Key << name << YAML::Value
         << (IsDebeziumPattern(name) ? Scalar(Shown(value)) : Literal(value));
  }
  *out << YAML::EndMap;
}

void ShowOutbox(const envelope::OutboxOptions& outbox, YAML::Emitter* out) {
  const outbox::ColumnMapping& columns = outbox.table.columns;
  const outbox::ColumnMapping preset =
      outbox::PresetOptions(outbox.table.preset).value_or(outbox::TableOptions()).columns;
  *out << YAML::BeginMap;
  *out << YAML::Key << "table" << YAML::Value
       << Literal(outbox.table.schema + "." + outbox.table.table);
  *out << YAML::Key << "preset" << YAML::Value << Literal(outbox.table.preset);
  *out << YAML::Key << "columns" << YAML::Value << YAML::BeginMap;
  for (const auto& [name, field] : kColumnFields) {
    // No name is shown as [] where leaving it out would bring the preset's back.
    if (!(columns.*field).empty() || !(preset.*field).empty()) {
      *out << YAML::Key << name << YAML::Value;
      ShowNames(columns.*field, out);
    }
  }
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
  ShowMap(ValueKeys(outbox.encoder), "value", out);
  *out << YAML::EndMap;
}

void ShowKafka(const kafka::KafkaOptions& options, YAML::Emitter* out) {
  *out << YAML::Key << "sink" << YAML::Value << YAML::BeginMap << YAML::Key << "kafka"
       << YAML::Value << YAML::BeginMap << YAML::Key << "properties" << YAML::Value
       << YAML::BeginMap;
  if (const auto properties = kafka::EffectiveProperties(options); properties.ok()) {
    for (const auto& [name, value] : *properties) {
      *out << YAML::Key << Scalar(Shown(name)) << YAML::Value << Literal(value);
    }
  }
  *out << YAML::EndMap << YAML::EndMap << YAML::EndMap;
}

}  // namespace

std::string ShowToCompare(const Config& config) {
  const std::vector<Key> keys = KeysOf(config);
  YAML::Emitter out;
  out << YAML::BeginMap;
  out << YAML::Key << "version" << YAML::Value << 1;
  out << YAML::Key << "name" << YAML::Value << Literal(config.run.name);
  ShowMap(keys, "source", &out);
  out << YAML::Key << "outboxes" << YAML::Value << YAML::BeginSeq;
  for (const envelope::OutboxOptions& outbox : config.run.pipeline.outboxes) {
    ShowOutbox(outbox, &out);
  }
  out << YAML::EndSeq;
  for (const char* map : {"messages", "schema_registry", "delivery"}) {
    ShowMap(keys, map, &out);
  }
  ShowKafka(config.run.kafka, &out);
  for (const char* map : {"monitor", "http", "security", "log"}) {
    ShowMap(keys, map, &out);
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

std::string Show(const Config& config) {
  hidden = &config.from_files;
  const absl::Cleanup shown = [] { hidden = nullptr; };
  return ShowToCompare(config);
}

namespace {

// A list is one value; what is on one side only is a node that is not defined.
void Compare(const YAML::Node& before, const YAML::Node& now, const std::string& path,
             std::vector<std::string>* changed) {
  if (before && now && before.IsMap() && now.IsMap()) {
    std::set<std::string> keys;
    for (const YAML::Node& node : {before, now}) {
      for (const auto& member : node) {
        keys.insert(member.first.Scalar());
      }
    }
    for (const std::string& key : keys) {
      Compare(before[key], now[key], path.empty() ? key : path + "." + key, changed);
    }
    return;
  }
  const auto text = [](const YAML::Node& node) { return node ? YAML::Dump(node) : std::string(); };
  if (text(before) != text(now)) {
    changed->push_back(path);
  }
}

}  // namespace

std::vector<std::string> KeysThatNeedRestart(const Config& before, const Config& now) {
  std::vector<std::string> changed;
  Compare(YAML::Load(ShowToCompare(InForce(before, now))), YAML::Load(ShowToCompare(now)), "",
          &changed);
  std::erase_if(changed, [&](const std::string& path) {
    // What is left of them follows from other keys. A registry that was not there is taken.
    return path.rfind("sink.kafka.properties", 0) == 0 ||
           (path == "schema_registry.refresh" && before.run.registry.urls.empty());
  });
  // What is shown as *** looks the same before and after.
  const auto headers = [](const Config& config) {
    std::vector<std::vector<std::pair<std::string, std::string>>> all;
    for (const envelope::OutboxOptions& outbox : config.run.pipeline.outboxes) {
      all.push_back(outbox.encoder.constant_headers);
    }
    return all;
  };
  if (headers(before) != headers(now) &&
      std::find(changed.begin(), changed.end(), "outboxes") == changed.end()) {
    changed.push_back("outboxes");
  }
  return changed;
}

// How the world is reached, and how much is logged.
Config InForce(const Config& before, const Config& now) {
  Config config = before;
  config.log_level = now.log_level;
  config.require_encryption = now.require_encryption;
  config.run.source.conninfo = now.run.source.conninfo;
  config.run.dead_letter_conninfo = now.run.dead_letter_conninfo;
  config.run.kafka.properties = now.run.kafka.properties;
  config.run.registry = now.run.registry;
  config.run.registry.refresh = before.run.registry.refresh;
  config.run.http.token = now.run.http.token;
  AddSecrets(now.from_files, &config.from_files);
  config.run.kafka.secrets = config.from_files;
  config.run.registry.secrets = config.from_files;
  return config;
}

}  // namespace walpost::config
