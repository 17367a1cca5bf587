#include "config/debezium.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "outbox/topic_rules.h"

namespace walpost::config {
namespace {

using outbox::DebeziumOptions;
using outbox::Placement;

constexpr char kPlacement[] = "table.fields.additional.placement";
constexpr char kRegex[] = "route.topic.regex";
constexpr char kReplacement[] = "route.topic.replacement";
constexpr char kRouterClass[] = "io.debezium.transforms.outbox.EventRouter";

// What one option does; an error says what is wrong with its value.
struct Target {
  outbox::TableOptions* table;
  DebeziumOptions* options;
};

using Error = std::string;  // empty = none
using Apply = std::function<Error(const std::string& value, Target target)>;

struct Option {
  std::string name;
  Apply apply;          // null: no effect
  std::string warning;  // why it has none, or what is different
};

Error ReadBool(const std::string& value, bool* result) {
  const std::string lower = absl::AsciiStrToLower(value);
  if (lower != "true" && lower != "false") {
    return absl::StrFormat("'%s' is neither true nor false", value);
  }
  *result = lower == "true";
  return "";
}

// Kafka Connect's words are read in any case.
Error ReadWord(const std::string& value, const std::vector<std::string>& words,
               std::size_t* result) {
  const auto found = std::find(words.begin(), words.end(), absl::AsciiStrToLower(value));
  if (found == words.end()) {
    return absl::StrFormat("'%s' is none of %s", value, absl::StrJoin(words, ", "));
  }
  *result = static_cast<std::size_t>(found - words.begin());
  return "";
}

Error ReadWord(const std::string& value, const std::vector<std::string>& words, bool* second) {
  std::size_t index = 0;
  Error error = ReadWord(value, words, &index);
  *second = error.empty() ? index == 1 : *second;
  return error;
}

Apply Column(outbox::ColumnNames outbox::ColumnMapping::*column) {
  return [column](const std::string& value, Target target) -> Error {
    if (value.empty()) {
      return "names no column";
    }
    target.table->columns.*column = {value};
    return "";
  };
}

Apply Flag(bool DebeziumOptions::*flag) {
  return [flag](const std::string& value, Target target) {
    return ReadBool(value, &(target.options->*flag));
  };
}

Apply Second(std::vector<std::string> words, bool DebeziumOptions::*flag) {
  return [words = std::move(words), flag](const std::string& value, Target target) {
    return ReadWord(value, words, &(target.options->*flag));
  };
}

Apply Checked(std::vector<std::string> words) {
  return [words = std::move(words)](const std::string& value, Target) {
    std::size_t index = 0;
    return ReadWord(value, words, &index);
  };
}

Error ReadPlacement(absl::string_view text, Placement* placement) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() != 2 && parts.size() != 3) {
    return absl::StrFormat("'%s': write column:placement or column:placement:alias",
                           std::string(text));
  }
  const auto trimmed = [&](std::size_t i) {
    return std::string(absl::StripAsciiWhitespace(parts[i]));
  };
  std::size_t where = 0;
  if (const Error error = ReadWord(trimmed(1), {"header", "envelope", "partition"}, &where);
      !error.empty()) {
    return error;
  }
  placement->column = trimmed(0);
  placement->where = static_cast<Placement::Where>(where);
  placement->alias = parts.size() == 3 ? trimmed(2) : placement->column;
  return placement->column.empty() || placement->alias.empty() ? "a name is empty" : "";
}

Error ReadPlacements(const std::string& value, Target target) {
  std::set<std::string> members = {"payload"};
  for (const absl::string_view text : absl::StrSplit(value, ',')) {
    Placement placement;
    if (Error error = ReadPlacement(text, &placement); !error.empty()) {
      return error;
    }
    if (placement.where == Placement::Where::kEnvelope && !members.insert(placement.alias).second) {
      return absl::StrFormat("the envelope has a member '%s' already", placement.alias);
    }
    // They distinguish dead letters and redeliveries from events.
    if (placement.where == Placement::Where::kHeader &&
        base::StartsWithIgnoringCase(placement.alias, "walpost-")) {
      return absl::StrFormat("'%s': headers with walpost- belong to walpost", placement.alias);
    }
    target.options->placements.push_back(std::move(placement));
  }
  return "";
}

std::vector<Option> MakeOptions() {
  using C = outbox::ColumnMapping;
  using D = DebeziumOptions;
  const std::string no_span = "has no effect: walpost makes no spans";
  return {
      {"table.op.invalid.behavior", Checked({"warn", "error", "fatal"}),
       "has no effect: walpost publishes inserts and never looks at updates"},
      {"table.field.event.id", Column(&C::id), ""},
      {"table.field.event.key", Column(&C::key), ""},
      {"table.field.event.type", Column(&C::type), ""},
      {"table.field.event.payload", Column(&C::payload), ""},
      {"table.field.event.timestamp",
       [](const std::string& value, Target target) -> Error {
         target.options->timestamp = value;
         return "";
       },
       ""},
      {"table.field.event.schema.version", nullptr,
       "has no effect: JSON without schemas has no schema version"},
      {kPlacement, ReadPlacements, ""},
      {"table.field.additional.missing", Second({"error", "ignore"}, &D::missing_ignored), ""},
      {"table.expand.json.payload", Flag(&D::expand_json), ""},
      {"table.json.payload.null.behavior",
       Second({"ignore", "optional_bytes"}, &D::keep_json_nulls), ""},
      {"table.json.payload.empty.array.behavior",
       Second({"ignore", "optional_string"}, &D::keep_empty_arrays), ""},
      {"route.by.field", Column(&C::aggregate_type), ""},
      {kRegex,
       [](const std::string& value, Target target) -> Error {
         target.options->topic_regex = value;
         return "";
       },
       ""},
      {kReplacement,
       [](const std::string& value, Target target) -> Error {
         target.options->topic_replacement = value;
         return "";
       },
       ""},
      {"route.tombstone.on.empty.payload", Flag(&D::tombstone_on_empty), ""},
      {"tracing.span.context.field", nullptr, no_span + "; map `columns` to pass a context on"},
      {"tracing.operation.name", nullptr, no_span},
      {"tracing.with.context.field.only", nullptr, no_span},
      {"field.name.adjustment.mode", Checked({"none"}), ""},
      {"type",
       [](const std::string& value, Target) -> Error {
         return value == kRouterClass ? "" : absl::StrFormat("only %s is built in", kRouterClass);
       },
       ""},
      {"predicate", nullptr, "has no effect: walpost reads nothing but outbox tables"},
      {"negate", nullptr, "has no effect: walpost reads nothing but outbox tables"},
  };
}

const std::vector<Option>& Options() {
  static const auto* const options = new std::vector<Option>(MakeOptions());
  return *options;
}

const Option* FindOption(std::string_view name) {
  for (const Option& option : Options()) {
    if (option.name == name) {
      return &option;
    }
  }
  return nullptr;
}

}  // namespace

const std::vector<std::string>& DebeziumOptionNames() {
  static const auto* const names = [] {
    auto made = std::make_unique<std::vector<std::string>>();
    for (const Option& option : Options()) {
      made->push_back(option.name);
    }
    return made.release();
  }();
  return *names;
}

std::string_view WithoutTransformPrefix(std::string_view key) {
  constexpr std::string_view kServer = "debezium.";
  constexpr std::string_view kTransforms = "transforms.";
  std::string_view rest = key;
  if (rest.substr(0, kServer.size()) == kServer) {
    rest.remove_prefix(kServer.size());
  }
  if (rest.substr(0, kTransforms.size()) != kTransforms) {
    return key;
  }
  rest.remove_prefix(kTransforms.size());
  const std::size_t dot = rest.find('.');
  return dot == std::string_view::npos ? key : rest.substr(dot + 1);
}

bool IsDebeziumPattern(std::string_view key) {
  const std::string_view name = WithoutTransformPrefix(key);
  return name == kRegex || name == kReplacement;
}

void ReadDebezium(const YAML::Node& node, const std::string& path, Problems* problems,
                  outbox::TableOptions* table) {
  DebeziumOptions& options = table->debezium.emplace();
  if (node.IsNull()) {
    return;
  }
  if (!node.IsMap()) {
    problems->Add(node, path, "expected a map of the Event Router's options");
    return;
  }
  std::set<std::string> seen;
  YAML::Node pattern = node;
  for (const auto& entry : node) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "(not a name)";
    const std::string name(WithoutTransformPrefix(key));
    const std::string where = path + "." + key;
    const Option* option = FindOption(name);
    if (option == nullptr) {
      problems->Add(entry.first, where,
                    "no option of the Event Router" + DidYouMean(name, DebeziumOptionNames()));
      continue;
    }
    if (!seen.insert(name).second) {
      problems->Add(entry.first, where, "stands here a second time");
      continue;
    }
    if (!entry.second.IsScalar() && !entry.second.IsNull()) {
      problems->Add(entry.second, where, "expected one value");
      continue;
    }
    const std::string value = entry.second.IsNull() ? "" : entry.second.Scalar();
    if (IsDebeziumPattern(name)) {
      pattern.reset(entry.second);
    }
    if (option->apply) {
      if (const Error error = option->apply(value, {table, &options}); !error.empty()) {
        problems->Add(entry.second, where, error);
        continue;
      }
    }
    if (!option->warning.empty()) {
      problems->Warn(entry.second, where, option->warning);
    }
  }
  // Together: the replacement names groups of the regex.
  const auto router = outbox::TopicRouter::Make(options.topic_regex, options.topic_replacement);
  if (!router.ok()) {
    problems->Add(pattern, path, std::string(router.status().message()));
  }
}

std::vector<std::pair<std::string, std::string>> DebeziumPairs(const outbox::TableOptions& table) {
  const DebeziumOptions& options = *table.debezium;
  const DebeziumOptions defaults;
  std::vector<std::pair<std::string, std::string>> pairs;
  const auto add = [&](bool differs, const std::string& name, const std::string& value) {
    if (differs) {
      pairs.emplace_back(name, value);
    }
  };
  add(!options.timestamp.empty(), "table.field.event.timestamp", options.timestamp);
  std::vector<std::string> placements;
  constexpr const char* kWords[] = {"header", "envelope", "partition"};
  for (const Placement& placement : options.placements) {
    placements.push_back(absl::StrFormat("%s:%s:%s", placement.column,
                                         kWords[static_cast<std::size_t>(placement.where)],
                                         placement.alias));
  }
  add(!placements.empty(), kPlacement, absl::StrJoin(placements, ","));
  add(options.missing_ignored, "table.field.additional.missing", "ignore");
  add(options.expand_json, "table.expand.json.payload", "true");
  add(options.keep_json_nulls, "table.json.payload.null.behavior", "optional_bytes");
  add(options.keep_empty_arrays, "table.json.payload.empty.array.behavior", "optional_string");
  add(options.topic_regex != defaults.topic_regex, kRegex, options.topic_regex);
  add(options.topic_replacement != defaults.topic_replacement, kReplacement,
      options.topic_replacement);
  add(options.tombstone_on_empty, "route.tombstone.on.empty.payload", "true");
  return pairs;
}

}  // namespace walpost::config
