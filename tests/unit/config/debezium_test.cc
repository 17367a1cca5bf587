// `outboxes[].debezium`: pasted options of the Event Router.
#include "config/debezium.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "config/config.h"
#include "unit/config/scoped_env.h"

namespace walpost::config {
namespace {

using outbox::Placement;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// `options` as they would be pasted, one to a line.
absl::StatusOr<Config> ParseOptions(const std::string& options, const std::string& more = "") {
  std::string yaml =
      "sink: {kafka: {properties: {bootstrap.servers: 'k:9092'}}}\noutboxes:\n  - table: "
      "public.outbox\n" +
      more + "    debezium:\n";
  std::size_t at = 0;
  while (at < options.size()) {
    const std::size_t end = options.find('\n', at);
    yaml += "      " + options.substr(at, end == std::string::npos ? end : end - at) + "\n";
    at = end == std::string::npos ? options.size() : end + 1;
  }
  return Parse(yaml, "w.yaml", {});
}

Config ParseOk(const std::string& options) {
  const absl::StatusOr<Config> config = ParseOptions(options);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : Config();
}

outbox::TableOptions TableOf(const std::string& options) {
  const Config config = ParseOk(options);
  return config.run.pipeline.outboxes.empty() ? outbox::TableOptions()
                                              : config.run.pipeline.outboxes[0].table;
}

std::string ErrorOf(const std::string& options, const std::string& more = "") {
  const absl::StatusOr<Config> config = ParseOptions(options, more);
  EXPECT_FALSE(config.ok()) << options;
  return std::string(config.status().message());
}

TEST(DebeziumConfigTest, EmptyBlockIsTheEventRoutersDefaults) {
  const outbox::TableOptions table = TableOf("");
  EXPECT_EQ(table.preset, "debezium");
  ASSERT_TRUE(table.debezium);
  EXPECT_EQ(*table.debezium, outbox::DebeziumOptions());
  EXPECT_THAT(table.columns.key, ElementsAre("aggregateid"));
}

TEST(DebeziumConfigTest, EveryOptionIsTakenUnderItsOwnName) {
  const outbox::TableOptions table = TableOf(R"(table.field.event.id: a
table.field.event.key: b
table.field.event.type: c
table.field.event.payload: d
table.field.event.timestamp: e
table.fields.additional.placement: "f:header, g : ENVELOPE : h ,i:partition"
table.field.additional.missing: ignore
table.expand.json.payload: "TRUE"
table.json.payload.null.behavior: optional_bytes
table.json.payload.empty.array.behavior: optional_string
route.by.field: j
route.topic.regex: (k.*)
route.topic.replacement: l$1
route.tombstone.on.empty.payload: true
field.name.adjustment.mode: none
type: io.debezium.transforms.outbox.EventRouter)");
  EXPECT_THAT(table.columns.id, ElementsAre("a"));
  EXPECT_THAT(table.columns.key, ElementsAre("b"));
  EXPECT_THAT(table.columns.type, ElementsAre("c"));
  EXPECT_THAT(table.columns.payload, ElementsAre("d"));
  EXPECT_THAT(table.columns.aggregate_type, ElementsAre("j"));
  outbox::DebeziumOptions expected;
  expected.timestamp = "e";
  expected.placements = {{"f", Placement::Where::kHeader, "f"},
                         {"g", Placement::Where::kEnvelope, "h"},
                         {"i", Placement::Where::kPartition, "i"}};
  expected.missing_ignored = expected.expand_json = true;
  expected.keep_json_nulls = expected.keep_empty_arrays = true;
  expected.tombstone_on_empty = true;
  expected.topic_regex = "(k.*)";
  expected.topic_replacement = "l$1";
  EXPECT_EQ(*table.debezium, expected);
}

TEST(DebeziumConfigTest, PrefixOfTheTransformationIsTakenOff) {
  EXPECT_THAT(TableOf("transforms.any.table.field.event.key: k").columns.key, ElementsAre("k"));
  EXPECT_THAT(TableOf("debezium.transforms.o.table.field.event.key: k").columns.key,
              ElementsAre("k"));
  EXPECT_THAT(ErrorOf("transforms.a.route.by.field: k\nroute.by.field: l"),
              HasSubstr("stands here a second time"));
}

TEST(DebeziumConfigTest, GroupsAreNoVariables) {
  const ScopedEnv name("name", std::optional<std::string>("wrong"));
  const outbox::TableOptions table =
      TableOf("route.topic.regex: (?<name>.*)\nroute.topic.replacement: t.${name}");
  EXPECT_EQ(table.debezium->topic_replacement, "t.${name}");
}

TEST(DebeziumConfigTest, OptionsWithoutEffectAreWarnedOfWithTheirLine) {
  const Config config = ParseOk(R"(table.op.invalid.behavior: fatal
table.field.event.schema.version: v
tracing.span.context.field: t
tracing.operation.name: o
tracing.with.context.field.only: true
predicate: IsOutbox
negate: false)");
  ASSERT_EQ(config.warnings.size(), 7u);
  EXPECT_THAT(config.warnings[0],
              AllOf(HasSubstr("w.yaml:5:"), HasSubstr("table.op.invalid.behavior: has no effect")));
}

TEST(DebeziumConfigTest, WrongValuesAreErrorsWithTheirLine) {
  const std::pair<const char*, const char*> wrong[] = {
      {"table.op.invalid.behavior: ignore", "none of warn, error, fatal"},
      {"table.field.additional.missing: skip", "none of error, ignore"},
      {"table.expand.json.payload: yes", "neither true nor false"},
      {"table.json.payload.null.behavior: keep", "none of ignore, optional_bytes"},
      {"table.fields.additional.placement: type", "column:placement"},
      {"table.fields.additional.placement: a:b:c:d", "column:placement"},
      {"table.fields.additional.placement: ''", "column:placement"},
      {"table.fields.additional.placement: type:body", "none of header, envelope, partition"},
      {"table.fields.additional.placement: ':header'", "a name is empty"},
      {"table.fields.additional.placement: type:envelope:payload", "member 'payload' already"},
      {"table.fields.additional.placement: a:envelope:x,b:envelope:x", "member 'x' already"},
      {"table.fields.additional.placement: a:header:walpost-x", "belong to walpost"},
      {"route.by.field: ''", "names no column"},
      {"route.topic.regex: '(?<a>.*'", "not understood"},
      {"route.topic.regex: '[a&&b]'", "which Java reads differently"},
      {"route.topic.replacement: t.$2", "no group 2"},
      {"route.topic.replacement: 't.${other}'", "no group named 'other'"},
      {"field.name.adjustment.mode: avro", "none of none"},
      {"type: io.debezium.transforms.ByLogicalTableRouter", "EventRouter is built in"},
      {"table.field.event.keys: k", "did you mean 'table.field.event.key'?"},
      {"route.by.field: [a]", "expected one value"}};
  for (const auto& [options, what] : wrong) {
    EXPECT_THAT(ErrorOf(options),
                AllOf(HasSubstr("w.yaml:5:"), HasSubstr("outboxes[0].debezium"), HasSubstr(what)))
        << options;
  }
}

TEST(DebeziumConfigTest, RoutingAndValueAreSaidOnce) {
  EXPECT_THAT(ErrorOf("", "    topic: t\n"), HasSubstr("route.topic.replacement"));
  EXPECT_THAT(ErrorOf("", "    preset: walpost\n"), HasSubstr("belongs to preset: debezium"));
  EXPECT_THAT(ErrorOf("", "    value: {format: envelope}\n"), HasSubstr("only format: raw"));
}

TEST(DebeziumConfigTest, ShownOptionsReadBackAsTheSame) {
  const Config config = ParseOk(R"(table.field.event.key: b
table.field.event.timestamp: "e${X:-f}"
table.fields.additional.placement: "f:header,g:envelope:h,i:partition"
table.field.additional.missing: ignore
table.expand.json.payload: true
table.json.payload.null.behavior: optional_bytes
table.json.payload.empty.array.behavior: optional_string
route.topic.regex: (?<k>.*)$
route.topic.replacement: l$1.${k}
route.tombstone.on.empty.payload: true)");
  const std::string shown = Show(config);
  const absl::StatusOr<Config> again = Parse(shown, "shown.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status() << shown;
  const outbox::TableOptions& table = config.run.pipeline.outboxes[0].table;
  const outbox::TableOptions& same = again->run.pipeline.outboxes[0].table;
  EXPECT_EQ(same.debezium, table.debezium);
  EXPECT_EQ(same.columns.key, table.columns.key);
  EXPECT_EQ(table.debezium->timestamp, "ef");
  EXPECT_EQ(Show(*again), shown);
}

}  // namespace
}  // namespace walpost::config
