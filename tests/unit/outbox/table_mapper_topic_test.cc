// Which topic a row goes to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "outbox/event.h"
#include "outbox/options.h"
#include "outbox/table_mapper.h"
#include "support/pgoutput_bytes.h"
#include "unit/outbox/test_table.h"

namespace walpost::outbox {
namespace {

using ::testing::HasSubstr;

class TableMapperTopicTest : public ::testing::Test {
 protected:
  TableMapperTopicTest() : options_(*PresetOptions("walpost")) {
    options_.topic = "{aggregate_type}";
  }

  // The topic by `options_`, or the status of what failed.
  absl::StatusOr<std::string> Topic() {
    TableMapper mapper(options_);
    if (absl::Status status = mapper.Bind(table_.relation()); !status.ok()) {
      return status;
    }
    Event event;
    if (absl::Status status = mapper.Map(table_.values(), &event); !status.ok()) {
      return status;
    }
    return std::string(event.topic);
  }

  TableOptions options_;
  TestTable table_ = WalpostTable();
};

TEST_F(TableMapperTopicTest, PlaceholderIsAFieldsNameOrAColumns) {
  options_.topic = "shop.{aggregate_type}.{type}-{schema_name}_{seq}";
  table_.Text("schema_name", "Placed.v1").Binary("seq", testing::BigEndian(7, 8));
  EXPECT_EQ(Topic().value(), "shop.order.Placed-Placed.v1_7");
  options_.topic = "{event_type}";
  EXPECT_EQ(Topic().value(), "Placed");
  options_.topic = "{key}.{id}";
  EXPECT_EQ(Topic().value(), "42.3f2504e0-4f89-11d3-9a0c-0305e82c3301");
}

TEST_F(TableMapperTopicTest, FieldsNameStandsForTheColumnMappedToIt) {
  options_.columns.aggregate_type = {"kind", "event_type"};
  EXPECT_EQ(Topic().value(), "Placed");
}

TEST_F(TableMapperTopicTest, PlaceholderWithoutAColumnIsASchemaMismatch) {
  options_.topic = "{nothing}";
  const absl::Status status = Topic().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no column nothing, which is mapped as a placeholder of `topic`"));
  options_.topic = "{payload}";
  EXPECT_EQ(Topic().status().code(), absl::StatusCode::kFailedPrecondition) << "bytea";
}

TEST_F(TableMapperTopicTest, BrokenTemplateIsRejectedByBind) {
  options_.topic = "{";
  EXPECT_EQ(Topic().status().code(), absl::StatusCode::kInvalidArgument);
}

// Failure 39.
TEST_F(TableMapperTopicTest, NullPlaceholderIsUndeliverable) {
  options_.topic = "{content_type}";
  const absl::Status status = Topic().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("column content_type is NULL"));
}

// Failure 68.
TEST_F(TableMapperTopicTest, IllegalTopicIsUndeliverableAndShown) {
  for (const std::string& type :
       {std::string("a b"), std::string("größe"), std::string("."), std::string(".."),
        std::string(250, 'x'), std::string("a\0b", 3)}) {
    table_.Text("aggregate_type", type);
    const absl::Status status = Topic().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << type;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + type + "'"));
  }
  table_.Text("aggregate_type", std::string(249, 'x'));
  EXPECT_TRUE(Topic().ok());
}

// Also as the very first topic, when nothing was found legal before.
TEST_F(TableMapperTopicTest, EmptyTopicIsUndeliverable) {
  table_.Text("aggregate_type", "");
  EXPECT_EQ(Topic().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TableMapperTopicTest, IllegalTopicAfterALegalOneIsStillRejected) {
  TableMapper mapper(options_);
  ASSERT_TRUE(mapper.Bind(table_.relation()).ok());
  Event event;
  ASSERT_TRUE(mapper.Map(table_.values(), &event).ok());
  for (int i = 0; i < 2; ++i) {
    table_.Text("aggregate_type", "a b");
    EXPECT_FALSE(mapper.Map(table_.values(), &event).ok());
  }
  table_.Text("aggregate_type", "order");
  EXPECT_TRUE(mapper.Map(table_.values(), &event).ok());
}

TEST_F(TableMapperTopicTest, TopicColumnOverridesTheTemplateWhenNotNull) {
  options_.columns.topic = {"topic"};
  options_.topic = "{content_type}";
  table_.Add("topic", type_oid::kText).Text("topic", "special");
  EXPECT_EQ(Topic().value(), "special") << "the template's NULL placeholder is not looked at";
  table_.Null("topic").Text("content_type", "by-template");
  EXPECT_EQ(Topic().value(), "by-template");
  for (const char* illegal : {"", "a b"}) {
    table_.Text("topic", illegal);
    EXPECT_EQ(Topic().status().code(), absl::StatusCode::kInvalidArgument) << illegal;
  }
}

TEST_F(TableMapperTopicTest, AggregateTypeMayHaveATopicOfItsOwn) {
  options_.topics.by_aggregate_type = {{"order", "shop.orders"}, {"cart", "shop.carts"}};
  options_.topic = "other.{aggregate_type}.{content_type}";
  EXPECT_EQ(Topic().value(), "shop.orders") << "the template's NULL placeholder is not looked at";
  table_.Text("aggregate_type", "user").Text("content_type", "x");
  EXPECT_EQ(Topic().value(), "other.user.x");
  options_.columns.topic = {"topic"};
  options_.topics.allowed = {"*"};
  table_.Add("topic", type_oid::kText).Text("topic", "special").Text("aggregate_type", "order");
  EXPECT_EQ(Topic().value(), "special") << "the row's own topic comes first";
}

TEST_F(TableMapperTopicTest, TopicThatIsNotAllowedIsUndeliverableByName) {
  options_.topics.allowed = {"order", "cart"};
  EXPECT_EQ(Topic().value(), "order");
  table_.Text("aggregate_type", "ordr");
  const absl::Status status = Topic().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonCodeOf(status), "topic_not_allowed");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("asks for topic 'ordr', which is not one of `topics.allowed`"));
  table_.Text("aggregate_type", "a b");
  EXPECT_EQ(ReasonCodeOf(Topic().status()), "row_invalid");
}

TEST_F(TableMapperTopicTest, RowsOwnTopicMustBeOneThatTheTemplateCanGiveUnlessMoreAreListed) {
  options_.topic = "shop.{aggregate_type}";
  options_.columns.topic = {"topic"};
  table_.Add("topic", type_oid::kText).Text("topic", "special");
  EXPECT_EQ(ReasonCodeOf(Topic().status()), "topic_not_allowed");
  table_.Text("topic", "shop.special");
  EXPECT_EQ(Topic().value(), "shop.special");
  options_.topics.allowed = {"special"};
  table_.Text("topic", "special");
  EXPECT_EQ(Topic().value(), "special");
}

TEST_F(TableMapperTopicTest, NoRowReachesATopicOfWalposts) {
  options_.topics.own = {"progress"};
  for (const char* topic : {"progress", "walpost.progress.shop", "__consumer_offsets"}) {
    table_.Text("aggregate_type", topic);
    EXPECT_EQ(ReasonCodeOf(Topic().status()), "topic_not_allowed") << topic;
  }
}

TEST_F(TableMapperTopicTest, TopicThatIsNotAllowedIsRejectedAgainAfterAnAllowedOne) {
  options_.topics.allowed = {"order"};
  TableMapper mapper(options_);
  ASSERT_TRUE(mapper.Bind(table_.relation()).ok());
  Event event;
  for (int i = 0; i < 2; ++i) {
    table_.Text("aggregate_type", "order");
    EXPECT_TRUE(mapper.Map(table_.values(), &event).ok());
    table_.Text("aggregate_type", "other");
    EXPECT_FALSE(mapper.Map(table_.values(), &event).ok());
  }
}

}  // namespace
}  // namespace walpost::outbox
