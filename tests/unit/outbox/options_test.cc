#include "outbox/options.h"

#include <gtest/gtest.h>

#include <string>

#include "outbox/table_mapper.h"
#include "unit/outbox/test_table.h"

namespace walpost::outbox {
namespace {

// As Debezium documents the table of its Event Router.
TestTable DebeziumTable() {
  TestTable table("public", "outbox",
                  {{"id", type_oid::kUuid},
                   {"aggregatetype", type_oid::kVarchar},
                   {"aggregateid", type_oid::kVarchar},
                   {"type", type_oid::kVarchar},
                   {"payload", type_oid::kJsonb}});
  table.Text("id", "3f2504e0-4f89-11d3-9a0c-0305e82c3301").Text("aggregatetype", "order");
  return table.Text("aggregateid", "42").Text("type", "Placed").Text("payload", "{\"a\": 1}");
}

TEST(PresetsTest, EveryNameIsAPresetAndNoOther) {
  for (const std::string_view name : kPresetNames) {
    ASSERT_TRUE(PresetOptions(name).has_value()) << name;
    EXPECT_EQ(PresetOptions(name)->preset, name);
  }
  EXPECT_FALSE(PresetOptions("").has_value());
  EXPECT_FALSE(PresetOptions("Walpost").has_value());
}

TEST(WalpostPresetTest, MapsEveryColumnOfItsTable) {
  TestTable table = WalpostTable();
  table.Text("content_type", "application/json").Text("schema_name", "shop.Placed");
  table.Text("headers", "{\"tenant\": \"a\"}").Text("traceparent", "00-ab-cd-01");
  table.Text("tracestate", "x=y").Text("occurred_at", "2000-01-01 00:00:01+00");
  TableMapper mapper(*PresetOptions("walpost"));
  ASSERT_TRUE(mapper.Bind(table.relation()).ok());
  Event event;
  const absl::Status status = mapper.Map(table.values(), &event);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(event.id, "3f2504e0-4f89-11d3-9a0c-0305e82c3301");
  EXPECT_EQ(event.key, "42");
  EXPECT_EQ(event.aggregate_type, "order");
  EXPECT_EQ(event.type, "Placed");
  EXPECT_EQ(event.payload, std::string_view("\0\xff", 2));
  EXPECT_EQ(event.content_type, "application/json");
  EXPECT_EQ(event.schema_name, "shop.Placed");
  ASSERT_EQ(event.headers.size(), 1U);
  EXPECT_EQ(event.headers[0].name, "tenant");
  EXPECT_EQ(event.headers[0].value, "a");
  EXPECT_EQ(event.traceparent, "00-ab-cd-01");
  EXPECT_EQ(event.tracestate, "x=y");
  EXPECT_EQ(event.occurred_at, base::FromPostgresMicros(1'000'000));
  EXPECT_EQ(event.topic, "outbox.event.order");
  EXPECT_EQ(event.partition, -1);
  EXPECT_TRUE(event.record_headers.empty());
  EXPECT_EQ(PresetOptions("walpost")->columns.seq, ColumnNames{"seq"}) << "the order of a replay";
  EXPECT_EQ(event.schema, "outbox");
  EXPECT_EQ(event.table, "events");
}

TEST(WalpostPresetTest, OptionalColumnsMayBeNullOrMissing) {
  TestTable table = WalpostTable();
  TableMapper mapper(*PresetOptions("walpost"));
  for (const bool missing : {false, true}) {
    if (missing) {
      for (const char* column : {"content_type", "schema_name", "headers", "traceparent",
                                 "tracestate", "occurred_at", "seq", "tx", "created_at"}) {
        table.Drop(column);
      }
    }
    ASSERT_TRUE(mapper.Bind(table.relation()).ok());
    Event event;
    ASSERT_TRUE(mapper.Map(table.values(), &event).ok());
    EXPECT_EQ(event.content_type, "");
    EXPECT_EQ(event.schema_name, "");
    EXPECT_TRUE(event.headers.empty());
    EXPECT_EQ(event.traceparent, "");
    EXPECT_EQ(event.tracestate, "");
    EXPECT_FALSE(event.occurred_at.has_value());
  }
}

TEST(DebeziumPresetTest, MapsItsTableToTheEventRoutersTopic) {
  TestTable table = DebeziumTable();
  TableMapper mapper(*PresetOptions("debezium"));
  ASSERT_TRUE(mapper.Bind(table.relation()).ok());
  Event event;
  ASSERT_TRUE(mapper.Map(table.values(), &event).ok());
  EXPECT_EQ(event.id, "3f2504e0-4f89-11d3-9a0c-0305e82c3301");
  EXPECT_EQ(event.key, "42");
  EXPECT_EQ(event.aggregate_type, "order");
  EXPECT_EQ(event.type, "Placed");
  EXPECT_EQ(event.payload, "{\"a\": 1}");
  EXPECT_EQ(event.topic, "outbox.event.order");
  EXPECT_EQ(event.schema, "public");
  EXPECT_EQ(event.table, "outbox");
}

TEST(DebeziumPresetTest, KeyMayBeNullAndTypeMayBeMissing) {
  TestTable table = DebeziumTable();
  table.Drop("type").Null("aggregateid").Null("payload");
  TableMapper mapper(*PresetOptions("debezium"));
  ASSERT_TRUE(mapper.Bind(table.relation()).ok());
  Event event;
  const absl::Status status = mapper.Map(table.values(), &event);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(event.key, std::nullopt);
  EXPECT_EQ(event.payload, std::nullopt);
  EXPECT_EQ(event.type, "");
}

TEST(DebeziumPresetTest, WithoutAggregateTypeThereIsNoTopic) {
  TestTable table = DebeziumTable();
  table.Null("aggregatetype");
  TableMapper mapper(*PresetOptions("debezium"));
  ASSERT_TRUE(mapper.Bind(table.relation()).ok());
  Event event;
  EXPECT_EQ(mapper.Map(table.values(), &event).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace walpost::outbox
