// `debezium` options of a table: topic, placements, JSON and tombstones, through the TableMapper.
// Whether two outboxes may meet in a topic.

#include "outbox/event_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "outbox/event.h"
#include "outbox/options.h"
#include "outbox/table_mapper.h"
#include "unit/outbox/test_table.h"

namespace walpost::outbox {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Where = Placement::Where;

class EventRouterTest : public ::testing::Test {
 protected:
  EventRouterTest() {
    options_.debezium.emplace();
    table_.Text("id", "e1").Text("aggregateid", "42").Text("aggregatetype", "order");
    table_.Text("type", "Made").Text("payload", "{\"a\": 1}");
  }

  DebeziumOptions& debezium() { return *options_.debezium; }

  void Place(const char* column, Where where, const char* alias) {
    debezium().placements.push_back({column, where, alias});
  }

  absl::Status Map() {
    mapper_ = TableMapper(options_);
    const absl::Status bound = mapper_.Bind(table_.relation());
    return bound.ok() ? mapper_.Map(table_.values(), &event_) : bound;
  }

  TestTable table_{"public",
                   "outbox",
                   {{"id", type_oid::kText},
                    {"aggregateid", type_oid::kText},
                    {"aggregatetype", type_oid::kText},
                    {"type", type_oid::kText},
                    {"payload", type_oid::kText},
                    {"extra", type_oid::kInt4}}};
  TableOptions options_ = *PresetOptions("debezium");
  TableMapper mapper_{options_};
  Event event_;
};

TEST_F(EventRouterTest, NothingSaidIsTheDefaultOfTheEventRouter) {
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.topic, "outbox.event.order");
  EXPECT_EQ(event_.payload, "{\"a\": 1}");
  EXPECT_THAT(event_.record_headers, IsEmpty());
  EXPECT_EQ(event_.partition, -1);
  EXPECT_FALSE(event_.timestamp);
}

TEST_F(EventRouterTest, TopicIsRoutedByRegexAndIllegalOnesAreUndeliverable) {
  debezium().topic_regex = "o(.*)";
  debezium().topic_replacement = "t.$1";
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.topic, "t.rder");
  table_.Text("aggregatetype", "no match");
  EXPECT_EQ(Map().code(), absl::StatusCode::kInvalidArgument);
  table_.Null("aggregatetype");
  EXPECT_THAT(std::string(Map().message()), HasSubstr("aggregatetype is NULL"));
}

// What the regex does not match stays as it is, and the row could name any topic.
TEST_F(EventRouterTest, ValueThatTheRegexDoesNotMatchNeedsAListedTopic) {
  debezium().topic_regex = "o(.*)";
  debezium().topic_replacement = "t.$1";
  table_.Text("aggregatetype", "payments");
  EXPECT_EQ(ReasonCodeOf(Map()), "topic_not_allowed");
  options_.topics.allowed = {"t.*", "payments"};
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.topic, "payments");
}

TEST_F(EventRouterTest, TableThatIsAnnouncedAgainHasEachHeaderOnce) {
  Place("type", Where::kHeader, "eventType");
  ASSERT_TRUE(Map().ok());
  ASSERT_TRUE(mapper_.Bind(table_.relation()).ok());
  ASSERT_TRUE(mapper_.Map(table_.values(), &event_).ok());
  EXPECT_EQ(event_.record_headers.size(), 1U);
}

TEST_F(EventRouterTest, HeadersComeInTheirOrderAndNullIsNotEmpty) {
  Place("type", Where::kHeader, "eventType");
  Place("extra", Where::kHeader, "extra");
  Place("type", Where::kHeader, "again");
  ASSERT_TRUE(Map().ok());
  ASSERT_THAT(event_.record_headers, SizeIs(3));
  EXPECT_EQ(event_.record_headers[0].name, "eventType");
  EXPECT_EQ(event_.record_headers[0].value, "Made");
  EXPECT_FALSE(event_.record_headers[0].null);
  EXPECT_TRUE(event_.record_headers[1].null);
  EXPECT_EQ(event_.record_headers[2].name, "again");
}

TEST_F(EventRouterTest, PartitionTakesEveryIntegerAndRejectsWhatIsNone) {
  Place("extra", Where::kPartition, "extra");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.partition, -1);
  for (const std::uint32_t oid : {type_oid::kInt2, type_oid::kInt4, type_oid::kInt8}) {
    table_.Retype("extra", oid).Text("extra", "3");
    ASSERT_TRUE(Map().ok());
    EXPECT_EQ(event_.partition, 3);
  }
  for (const char* bad : {"-1", "2147483648"}) {
    table_.Text("extra", bad);
    EXPECT_EQ(Map().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  table_.Retype("extra", type_oid::kText);
  EXPECT_EQ(Map().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(EventRouterTest, TimeOfTheRecordComesFromItsColumn) {
  debezium().timestamp = "extra";
  for (const std::uint32_t oid : {type_oid::kTimestamp, type_oid::kTimestamptz}) {
    table_.Retype("extra", oid)
        .Text("extra",
              oid == type_oid::kTimestamp ? "1970-01-01 00:00:01.5" : "1970-01-01 02:00:01.5+02");
    ASSERT_TRUE(Map().ok());
    EXPECT_EQ(event_.timestamp, base::WallTime(std::chrono::milliseconds(1500)));
  }
  table_.Null("extra");
  ASSERT_TRUE(Map().ok());
  EXPECT_FALSE(event_.timestamp);
  table_.Retype("extra", type_oid::kInt8);
  EXPECT_THAT(std::string(Map().message()), HasSubstr("which is bigint"));
  debezium().timestamp = "nowhere";
  EXPECT_THAT(std::string(Map().message()), HasSubstr("no column"));
}

TEST_F(EventRouterTest, MissingColumnIsASchemaMismatchUnlessIgnored) {
  for (const Where where : {Where::kHeader, Where::kEnvelope, Where::kPartition}) {
    options_.debezium.emplace();
    Place("nowhere", where, "x");
    const absl::Status status = Map();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("has no column nowhere"));
    debezium().missing_ignored = true;
    ASSERT_TRUE(Map().ok());
  }
}

TEST_F(EventRouterTest, PlacedColumnOfAnUnsupportedTypeIsASchemaMismatchThatNamesIt) {
  constexpr std::uint32_t kInterval = 1186;
  Place("extra", Where::kHeader, "x");
  table_.Retype("extra", kInterval);
  EXPECT_THAT(std::string(Map().message()), HasSubstr("column extra is type with OID 1186"));
}

TEST_F(EventRouterTest, EnvelopeHoldsThePayloadAndThePlacedColumns) {
  Place("type", Where::kEnvelope, "event\"Type");
  Place("extra", Where::kEnvelope, "extra");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.payload, R"({"payload":"{\"a\": 1}","event\"Type":"Made","extra":null})");
  debezium().expand_json = true;
  table_.Text("extra", "7");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.payload, R"({"payload":{"a":1},"event\"Type":"Made","extra":7})");
  table_.Null("payload");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.payload, R"({"payload":null,"event\"Type":"Made","extra":7})");
}

TEST_F(EventRouterTest, ExpansionThatFailsSendsTheTextAsAJsonString) {
  debezium().expand_json = true;
  table_.Text("payload", "[\"x\"]");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.payload, R"("[\"x\"]")");
}

TEST_F(EventRouterTest, BlankPayloadIsATombstoneWhenAskedFor) {
  for (const char* blank : {"", " ", "\t\r\n\x01"}) {
    debezium().tombstone_on_empty = true;
    table_.Text("payload", blank);
    ASSERT_TRUE(Map().ok());
    EXPECT_FALSE(event_.payload);
    debezium().tombstone_on_empty = false;
    ASSERT_TRUE(Map().ok());
    EXPECT_EQ(event_.payload, blank);
  }
  debezium().tombstone_on_empty = true;
  table_.Retype("payload", type_oid::kBytea).Text("payload", "\\x");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.payload, "");
}

TEST_F(EventRouterTest, BlankPayloadIsATombstoneAlsoWhereJsonIsSent) {
  debezium().tombstone_on_empty = true;
  debezium().expand_json = true;
  table_.Text("payload", " ");
  ASSERT_TRUE(Map().ok());
  EXPECT_FALSE(event_.payload);
}

TEST_F(EventRouterTest, TextThatIsNotUtf8CannotBecomeJson) {
  Place("type", Where::kEnvelope, "type");
  table_.Text("type", "\xff");
  EXPECT_EQ(Map().code(), absl::StatusCode::kInvalidArgument);
}

TopicReach Reach(const std::string& topic, std::vector<std::string> allowed = {}) {
  TableOptions options;
  options.topic = topic;
  options.topics.allowed = std::move(allowed);
  return TopicReach(options);
}

TEST(PatternsMeetTest, SomeTextMatchesBoth) {
  for (const auto& [one, other] :
       {std::pair{"order", "order"}, std::pair{"order", "*"}, std::pair{"*", "*"},
        std::pair{"shop.*", "*.order"}, std::pair{"a*c", "ab*"}, std::pair{"a*", "**a"},
        std::pair{"*a*b", "a*"}, std::pair{"", "*"}}) {
    EXPECT_TRUE(PatternsMeet(one, other)) << one << " " << other;
    EXPECT_TRUE(PatternsMeet(other, one)) << one << " " << other;
  }
}

TEST(PatternsMeetTest, NoTextMatchesBoth) {
  for (const auto& [one, other] :
       {std::pair{"order", "orders"}, std::pair{"shop.*", "crm.*"}, std::pair{"*.a", "*.b"},
        std::pair{"a*c", "ab"}, std::pair{"", "a*"}, std::pair{"a*a", "a"}}) {
    EXPECT_FALSE(PatternsMeet(one, other)) << one << " " << other;
    EXPECT_FALSE(PatternsMeet(other, one)) << one << " " << other;
  }
}

TEST(TopicReachTest, TemplatesThatGiveTheSameTopicMeet) {
  EXPECT_TRUE(Reach("{aggregate_type}").Meets(Reach("orders")));
  EXPECT_TRUE(Reach("shop.{aggregate_type}").Meets(Reach("{type}.order")));
  EXPECT_FALSE(Reach("shop.{aggregate_type}").Meets(Reach("crm.{aggregate_type}")));
}

TEST(TopicReachTest, TemplateAndListOfAllowedTopicsBothBoundIt) {
  const TopicReach orders = Reach("{aggregate_type}", {"orders", "shop.*"});
  EXPECT_TRUE(orders.Holds("orders"));
  EXPECT_TRUE(orders.Holds("shop.carts"));
  EXPECT_FALSE(orders.Holds("carts"));
  EXPECT_FALSE(orders.Meets(Reach("{aggregate_type}", {"carts"})));
  EXPECT_FALSE(Reach("a.{aggregate_type}", {"*"}).Meets(Reach("b.{aggregate_type}", {"*"})));
}

TEST(TopicReachTest, TopicOfAnAggregateTypeCounts) {
  TableOptions options;
  options.topic = "a.{aggregate_type}";
  options.topics.by_aggregate_type = {{"cart", "carts"}};
  EXPECT_TRUE(TopicReach(options).Meets(Reach("carts")));
  EXPECT_FALSE(TopicReach(options).Meets(Reach("orders")));
  options.topics.allowed = {"*"};
  EXPECT_TRUE(TopicReach(options).Meets(Reach("carts")));
  EXPECT_FALSE(TopicReach(options).Meets(Reach("orders")));
}

TEST(TopicReachTest, RowThatNamesItsTopicIsBoundByTheListOnly) {
  TableOptions options;
  options.topic = "a.{aggregate_type}";
  options.columns.topic = {"topic"};
  options.topics.allowed = {"orders"};
  EXPECT_TRUE(TopicReach(options).Holds("orders"));
  // Debezium leaves what its regex does not match as it is.
  options.columns.topic.clear();
  EXPECT_FALSE(TopicReach(options).Holds("orders"));
  options.debezium.emplace();
  EXPECT_TRUE(TopicReach(options).Holds("orders"));
}

}  // namespace
}  // namespace walpost::outbox
