#include "config/outboxes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/document.h"

namespace walpost::config {
namespace {

using envelope::HeaderSet;
using envelope::OutboxOptions;
using envelope::ValueFormat;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class OutboxesTest : public ::testing::Test {
 protected:
  // `list` as it would stand after `outboxes:`.
  std::vector<OutboxOptions> Read(const std::string& list) {
    const auto document = LoadDocument("outboxes:" + list, "w.yaml", {});
    EXPECT_TRUE(document.ok()) << document.status();
    return ReadOutboxes((*document)["outboxes"], &problems_);
  }

  OutboxOptions ReadOne(const std::string& list) {
    std::vector<OutboxOptions> outboxes = Read(list);
    EXPECT_EQ(outboxes.size(), 1u);
    EXPECT_THAT(problems_.lines, IsEmpty());
    return outboxes.empty() ? OutboxOptions() : std::move(outboxes.front());
  }

  Problems problems_{"w.yaml", {}};
};

TEST_F(OutboxesTest, AbsentMeansTheTableThatInitMakes) {
  const OutboxOptions outbox = ReadOne("\n");
  EXPECT_EQ(outbox.table.schema, "outbox");
  EXPECT_EQ(outbox.table.table, "events");
  EXPECT_EQ(outbox.table.preset, "walpost");
  EXPECT_EQ(outbox.table.topic, "outbox.event.{aggregate_type}");
  EXPECT_FALSE(outbox.table.null_key_allowed);
  EXPECT_EQ(outbox.encoder.format, ValueFormat::kEnvelope);
  EXPECT_EQ(outbox.encoder.header_set, HeaderSet::kWalpost);
}

TEST_F(OutboxesTest, WalpostPresetMapsEveryFieldOfItsTable) {
  const outbox::ColumnMapping columns = ReadOne(" [{table: app.events}]\n").table.columns;
  EXPECT_THAT(columns.id, ElementsAre("id"));
  EXPECT_THAT(columns.key, ElementsAre("aggregate_id"));
  EXPECT_THAT(columns.aggregate_type, ElementsAre("aggregate_type"));
  EXPECT_THAT(columns.type, ElementsAre("event_type"));
  EXPECT_THAT(columns.payload, ElementsAre("payload"));
  EXPECT_THAT(columns.headers, ElementsAre("headers"));
  EXPECT_THAT(columns.occurred_at, ElementsAre("occurred_at"));
  EXPECT_THAT(columns.topic, IsEmpty());
  EXPECT_THAT(columns.partition, IsEmpty());
}

// A consumer of Debezium's Event Router must notice no change.
TEST_F(OutboxesTest, DebeziumPresetIsItsTableColumnsTopicAndBareValue) {
  const OutboxOptions outbox = ReadOne(" [{preset: debezium}]\n");
  EXPECT_EQ(outbox.table.schema, "public");
  EXPECT_EQ(outbox.table.table, "outbox");
  EXPECT_THAT(outbox.table.columns.key, ElementsAre("aggregateid"));
  EXPECT_THAT(outbox.table.columns.aggregate_type, ElementsAre("aggregatetype"));
  EXPECT_THAT(outbox.table.columns.type, ElementsAre("type"));
  EXPECT_THAT(outbox.table.columns.content_type, IsEmpty());
  EXPECT_EQ(outbox.table.topic, "outbox.event.{aggregatetype}");
  EXPECT_TRUE(outbox.table.null_key_allowed);
  EXPECT_EQ(outbox.encoder.format, ValueFormat::kRaw);
  EXPECT_EQ(outbox.encoder.header_set, HeaderSet::kDebezium);
}

TEST_F(OutboxesTest, WhatIsWrittenWinsOverThePreset) {
  const OutboxOptions outbox = ReadOne(R"(
  - table: shop.messages
    preset: debezium
    columns: {id: [event_id, id], key: [], topic: target}
    topic: shop.{aggregatetype}
    record_headers: {tenant: tenant_id, region: region}
    value: {format: envelope}
)");
  EXPECT_EQ(outbox.table.schema, "shop");
  EXPECT_EQ(outbox.table.table, "messages");
  EXPECT_THAT(outbox.table.columns.id, ElementsAre("event_id", "id"));
  EXPECT_THAT(outbox.table.columns.key, IsEmpty());
  EXPECT_THAT(outbox.table.columns.topic, ElementsAre("target"));
  EXPECT_THAT(outbox.table.columns.payload, ElementsAre("payload"));
  EXPECT_EQ(outbox.table.topic, "shop.{aggregatetype}");
  EXPECT_THAT(outbox.table.record_headers,
              ElementsAre(Pair("tenant", "tenant_id"), Pair("region", "region")));
  EXPECT_EQ(outbox.encoder.format, ValueFormat::kEnvelope);
}

TEST_F(OutboxesTest, RawValueOfTheWalpostPresetKeepsItsHeaders) {
  const OutboxOptions outbox = ReadOne(" [{value: {format: raw}}]\n");
  EXPECT_EQ(outbox.encoder.format, ValueFormat::kRaw);
  EXPECT_EQ(outbox.encoder.header_set, HeaderSet::kWalpost);
}

TEST_F(OutboxesTest, SeveralTablesKeepTheirOrderAndTheirOwnSettings) {
  const auto outboxes = Read("\n  - table: a.one\n  - preset: debezium\n");
  EXPECT_THAT(problems_.lines, IsEmpty());
  ASSERT_EQ(outboxes.size(), 2u);
  EXPECT_EQ(outboxes[0].table.table, "one");
  EXPECT_EQ(outboxes[0].encoder.format, ValueFormat::kEnvelope);
  EXPECT_EQ(outboxes[1].table.table, "outbox");
  EXPECT_EQ(outboxes[1].encoder.format, ValueFormat::kRaw);
}

TEST_F(OutboxesTest, SameTableTwiceIsAProblem) {
  Read("\n  - table: a.one\n  - table: a.one\n");
  EXPECT_THAT(problems_.lines,
              ElementsAre("w.yaml:3:5: outboxes[1].table: the same table is listed twice"));
}

// An empty list is judged together with `messages`.
TEST_F(OutboxesTest, ListThatIsNoneIsAProblem) {
  for (const char* list : {" {table: a.b}\n", " a.b\n"}) {
    problems_.lines.clear();
    Read(list);
    EXPECT_THAT(problems_.lines, ElementsAre(HasSubstr("expected a list of"))) << list;
  }
}

TEST_F(OutboxesTest, TableWithoutItsSchemaIsAProblem) {
  for (const char* table : {"events", ".events", "outbox.", "''"}) {
    problems_.lines.clear();
    Read(" [{table: " + std::string(table) + "}]\n");
    EXPECT_THAT(problems_.lines, ElementsAre(HasSubstr("outboxes[0].table: '"))) << table;
    EXPECT_THAT(problems_.lines[0], HasSubstr("write schema.table"));
  }
}

TEST_F(OutboxesTest, EventWithoutIdOrPayloadIsAProblem) {
  Read(" [{columns: {id: [], payload: ~}}]\n");
  EXPECT_THAT(problems_.lines,
              ElementsAre(HasSubstr("outboxes[0].columns.id: an event needs an id"),
                          HasSubstr("outboxes[0].columns.payload: an event needs a payload")));
}

TEST_F(OutboxesTest, EventsOfWalpostsOwnTableHaveTheIdsThatItIsMaintainedBy) {
  Read(" [{table: outbox.events, columns: {id: idempotency_key}}]\n");
  EXPECT_THAT(problems_.lines, ElementsAre(HasSubstr("outboxes[0].columns.id: ")));
  problems_.lines.clear();
  Read(" [{table: shop.events, columns: {id: idempotency_key}}]\n");
  EXPECT_THAT(problems_.lines, IsEmpty());
}

TEST_F(OutboxesTest, UnknownKeysAndChoicesNameTheirPlaceAndTheNearest) {
  Read(R"(
  - tabel: a.b
    preset: debesium
    columns: {agregate_type: x}
    value: {format: envelop, options: 1}
)");
  EXPECT_THAT(
      problems_.lines,
      ElementsAre(
          "w.yaml:3:13: outboxes[0].preset: 'debesium' is none of walpost, debezium; did you mean "
          "'debezium'?",
          "w.yaml:4:15: outboxes[0].columns.agregate_type: unknown key; did you mean "
          "'aggregate_type'?",
          HasSubstr("w.yaml:5:21: outboxes[0].value.format: 'envelop' is none of envelope, raw"),
          "w.yaml:5:30: outboxes[0].value.options: unknown key",
          "w.yaml:2:5: outboxes[0].tabel: unknown key; did you mean 'table'?"));
}

TEST_F(OutboxesTest, TopicThatKafkaCannotHaveIsAProblem) {
  for (const char* topic : {"'{aggregate_type'", "'a b'", "'{}'", "'a/b'"}) {
    problems_.lines.clear();
    Read(" [{topic: " + std::string(topic) + "}]\n");
    EXPECT_THAT(problems_.lines, ElementsAre(HasSubstr("outboxes[0].topic: "))) << topic;
  }
}

TEST_F(OutboxesTest, RecordHeadersThatAreNoMapOfNamesAreAProblem) {
  Read(" [{record_headers: [tenant]}]\n");
  Read(" [{record_headers: {tenant: [a, b]}}]\n");
  EXPECT_THAT(problems_.lines,
              ElementsAre(HasSubstr("outboxes[0].record_headers: expected a map of keys"),
                          HasSubstr("outboxes[0].record_headers.tenant: expected one value")));
}

// --- Topics, headers, CloudEvents ---

TEST_F(OutboxesTest, RoutingAndHeadersAreTaken) {
  const OutboxOptions outbox = ReadOne(R"(
  - topic: shop.{aggregate_type}
    topics: {allowed: [shop.order, carts], by_aggregate_type: {cart: carts}}
    columns: {timestamp: occurred_at, baggage: bag, tracingspancontext: tracing}
    constant_headers: {env: prod, empty: ""}
)");
  EXPECT_THAT(outbox.table.topics.allowed, ElementsAre("shop.order", "carts"));
  EXPECT_THAT(outbox.table.topics.by_aggregate_type, ElementsAre(Pair("cart", "carts")));
  EXPECT_THAT(outbox.table.columns.timestamp, ElementsAre("occurred_at"));
  EXPECT_THAT(outbox.table.columns.baggage, ElementsAre("bag"));
  EXPECT_THAT(outbox.table.columns.tracingspancontext, ElementsAre("tracing"));
  EXPECT_THAT(outbox.encoder.constant_headers, ElementsAre(Pair("env", "prod"), Pair("empty", "")));
}

TEST_F(OutboxesTest, TopicsThatCannotBeAreProblemsAtTheirPlace) {
  Read(R"(
  - topic: fixed
    topics:
      allowed: [a, b c]
      by_aggregate_type:
        x: d
        y: "no/topic"
        z: a
    topcs: {}
)");
  EXPECT_THAT(
      problems_.lines,
      ElementsAre("w.yaml:4:16: outboxes[0].topics.allowed: 'b c' is no topic of Kafka's, nor a "
                  "pattern with '*': letters, digits, '.', '_', '-', at most 249",
                  "w.yaml:6:12: outboxes[0].topics.by_aggregate_type.x: 'd' is not one of "
                  "topics.allowed",
                  "w.yaml:7:12: outboxes[0].topics.by_aggregate_type.y: 'no/topic' is no topic of "
                  "Kafka's: letters, digits, '.', '_', '-', at most 249",
                  "w.yaml:4:16: outboxes[0].topics.allowed: topic 'fixed' is not among them",
                  "w.yaml:9:5: outboxes[0].topcs: unknown key; did you mean 'topics'?"));
}

TEST_F(OutboxesTest, EmptyListOfTopicsIsAProblem) {
  Read(" [{topics: {allowed: []}}]\n");
  EXPECT_THAT(problems_.lines, ElementsAre(HasSubstr("topics.allowed: no topic is listed")));
}

TEST_F(OutboxesTest, HeadersOfWalpostAndThoseGivenTwiceAreProblems) {
  Read(" [{constant_headers: {Walpost-dlq: x, a: b}, record_headers: {walpost-x: y, a: c}}]\n");
  EXPECT_THAT(
      problems_.lines,
      ElementsAre(HasSubstr("record_headers.walpost-x: a header needs a name, and names with"),
                  HasSubstr("constant_headers.Walpost-dlq: a header needs a name, and names with"),
                  HasSubstr("record_headers: the header 'a' is given twice")));
}

TEST_F(OutboxesTest, HeadersThatTheFormatWritesAreProblems) {
  Read(" [{constant_headers: {Type: x}, record_headers: {id: y}}]\n");
  Read(" [{preset: debezium, record_headers: {type: y, traceparent: c}}]\n");
  Read(" [{value: {format: cloudevents}, constant_headers: {ce_id: x, ce_mine: y}}]\n");
  Read(" [{columns: {traceparent: t}, record_headers: {Traceparent: y}}]\n");
  Read(" [{debezium: {table.fields.additional.placement: 'a:header:id,b:header:b,c:header:B'}}]\n");
  EXPECT_THAT(problems_.lines,
              ElementsAre(HasSubstr("constant_headers: walpost writes the header 'Type' itself"),
                          HasSubstr("record_headers: walpost writes the header 'id' itself"),
                          HasSubstr("constant_headers: walpost writes the header 'ce_id' itself"),
                          HasSubstr("record_headers: walpost writes the header 'Traceparent'"),
                          HasSubstr("debezium: walpost writes the header 'id' itself"),
                          HasSubstr("debezium: the header 'B' is given twice")));
}

TEST_F(OutboxesTest, TopicThatOnlyTheRowBoundsNeedsAList) {
  for (const char* outbox : {" [{topic: '{aggregate_type}'}]\n", " [{topic: '{type}{key}'}]\n",
                             " [{debezium: {route.topic.replacement: '${routedByValue}'}}]\n"}) {
    problems_.lines.clear();
    Read(outbox);
    EXPECT_THAT(problems_.lines,
                ElementsAre(HasSubstr("topics.allowed: each row names its topic freely")))
        << outbox;
  }
  problems_.lines.clear();
  Read(" [{topic: '{aggregate_type}', topics: {allowed: '*'}}]\n");
  Read(" [{topic: 'shop.{aggregate_type}'}]\n");
  Read(" [{debezium: {}}]\n");
  EXPECT_THAT(problems_.lines, IsEmpty());
}

TEST_F(OutboxesTest, TopicsOfWalpostAndOfKafkaItselfAreProblems) {
  Read(" [{topic: 'walpost.{type}'}]\n");
  Read(" [{topics: {allowed: [__consumer_offsets, 'walpost.*', 'a*b']}}]\n");
  Read(" [{topics: {by_aggregate_type: {x: walpost.dead-letter}}}]\n");
  EXPECT_THAT(problems_.lines,
              ElementsAre(HasSubstr("topic: 'walpost.{type}' belongs to walpost or to Kafka"),
                          HasSubstr("topics.allowed: '__consumer_offsets' belongs"),
                          HasSubstr("topics.allowed: 'walpost.*' belongs"),
                          HasSubstr("by_aggregate_type.x: 'walpost.dead-letter' belongs")));
}

TEST_F(OutboxesTest, CloudEventsAreBinaryUnlessSaidOtherwise) {
  envelope::EncoderOptions encoder = ReadOne(" [{value: {format: cloudevents}}]\n").encoder;
  EXPECT_EQ(encoder.format, ValueFormat::kCloudEvents);
  EXPECT_EQ(encoder.cloud_events.mode, envelope::CloudEventMode::kBinary);
  EXPECT_EQ(encoder.cloud_events.source, "");
  encoder = ReadOne(
                " [{value: {format: cloudevents, cloudevents: {mode: structured_json, source: "
                "'urn:shop'}}}]\n")
                .encoder;
  EXPECT_EQ(encoder.cloud_events.mode, envelope::CloudEventMode::kStructuredJson);
  EXPECT_EQ(encoder.cloud_events.source, "urn:shop");
  encoder = ReadOne(" [{value: {format: cloudevents, cloudevents: {mode: structured_protobuf}}}]\n")
                .encoder;
  EXPECT_EQ(encoder.cloud_events.mode, envelope::CloudEventMode::kStructuredProtobuf);
}

TEST_F(OutboxesTest, CloudEventsThatCannotBeAreProblems) {
  Read(" [{value: {format: cloudevents, cloudevents: {mode: batch, source: 'a b', sorce: x}}}]\n");
  Read(" [{value: {format: raw, cloudevents: {}}}]\n");
  EXPECT_THAT(
      problems_.lines,
      ElementsAre(HasSubstr("value.cloudevents.mode: 'batch' is none of binary, structured_prot"),
                  HasSubstr("value.cloudevents.source: 'a b' is no URI reference"),
                  HasSubstr("value.cloudevents.sorce: unknown key; did you mean 'source'?"),
                  HasSubstr("value.cloudevents: has no effect without format: cloudevents")));
}

constexpr char kLeast[] = "sink: {kafka: {properties: {bootstrap.servers: k}}}\n";

absl::StatusOr<Config> ParseWith(const std::string& yaml) {
  return Parse(kLeast + yaml, "w.yaml", {});
}

std::string ProblemsOf(const std::string& yaml) {
  return std::string(ParseWith(yaml).status().message());
}

TEST(MessagesTest, NoneAreEventsUnlessPrefixesAreListed) {
  const Config config = ParseWith("").value();
  EXPECT_THAT(config.run.pipeline.messages.prefixes, IsEmpty());
  EXPECT_THAT(config.run.source.message_prefixes, IsEmpty());
}

TEST(MessagesTest, SettingsReachPipelineAndSource) {
  const Config config =
      ParseWith("messages: {prefixes: [shop, billing], topic: 'm.{prefix}', value: {format: raw}}")
          .value();
  EXPECT_THAT(config.run.pipeline.messages.prefixes, ElementsAre("shop", "billing"));
  EXPECT_THAT(config.run.source.message_prefixes, ElementsAre("shop", "billing"));
  EXPECT_EQ(config.run.pipeline.messages.topic, "m.{prefix}");
  EXPECT_EQ(config.run.pipeline.messages.encoder.format, envelope::ValueFormat::kRaw);
}

TEST(MessagesTest, OnePrefixMayStandAlone) {
  const Config config = ParseWith("messages: {prefixes: shop}").value();
  EXPECT_THAT(config.run.pipeline.messages.prefixes, ElementsAre("shop"));
  EXPECT_EQ(config.run.pipeline.messages.topic, "outbox.event.{aggregate_type}");
  EXPECT_EQ(config.run.pipeline.messages.encoder.format, envelope::ValueFormat::kEnvelope);
}

TEST(MessagesTest, NoTableIsNeededBesidePrefixes) {
  const Config config = ParseWith("messages: {prefixes: shop}\noutboxes: []").value();
  EXPECT_THAT(config.run.pipeline.outboxes, IsEmpty());
  EXPECT_THAT(config.run.source.tables, IsEmpty());
  EXPECT_THAT(ProblemsOf("outboxes: []"),
              HasSubstr("w.yaml:2:11: outboxes: expected a list with at least one"));
}

TEST(MessagesTest, WrongPrefixesAreReported) {
  for (const std::string& prefixes :
       {std::string("['']"), std::string("[\"a\\n\"]"), "['" + std::string(201, 'a') + "']"}) {
    EXPECT_THAT(ProblemsOf("messages: {prefixes: " + prefixes + "}"),
                HasSubstr("messages.prefixes: a prefix has 1 to 200 bytes"))
        << prefixes;
  }
  EXPECT_THAT(ProblemsOf("messages: {prefixes: [a, b, a]}"), HasSubstr("'a' is listed twice"));
}

TEST(MessagesTest, TopicOfAColumnIsReported) {
  EXPECT_THAT(ProblemsOf("messages: {prefixes: a, topic: '{event_type}'}"),
              HasSubstr("messages.topic: topic template '{event_type}': a message has no"));
}

TEST(MessagesTest, TopicThatOnlyTheMessageBoundsNeedsAList) {
  EXPECT_THAT(ProblemsOf("messages: {prefixes: a, topic: '{type}'}"),
              HasSubstr("messages.topics.allowed: any SQL role may emit"));
  const Config config = ParseWith(
                            "messages: {prefixes: a, topic: '{type}', topics: {allowed: ['x*']}, "
                            "on_undeliverable: halt}")
                            .value();
  EXPECT_THAT(config.run.pipeline.messages.topics.allowed, ElementsAre("x*"));
  EXPECT_TRUE(config.run.pipeline.messages.halts);
  EXPECT_FALSE(ParseWith("messages: {prefixes: a}")->run.pipeline.messages.halts);
}

TEST(MessagesTest, ShownSettingsReadBackAsTheSame) {
  const Config config =
      ParseWith(
          "messages: {prefixes: ['no', \"a$${b}'\"], topic: 'm.{prefix}', value: {format: raw}}\n"
          "outboxes: []")
          .value();
  const Config again = Parse(Show(config), "shown.yaml", {}).value();
  EXPECT_EQ(again.run.pipeline.messages.prefixes, config.run.pipeline.messages.prefixes);
  EXPECT_EQ(again.run.pipeline.messages.topic, "m.{prefix}");
  EXPECT_EQ(again.run.pipeline.messages.encoder.format, envelope::ValueFormat::kRaw);
  EXPECT_THAT(again.run.pipeline.outboxes, IsEmpty());
}

}  // namespace
}  // namespace walpost::config
