#include "outbox/table_mapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/text.h"
#include "outbox/event.h"
#include "outbox/options.h"
#include "support/pgoutput_bytes.h"
#include "unit/outbox/test_table.h"

namespace walpost::outbox {
namespace {

using testing::BigEndian;
using ::testing::HasSubstr;
using ::testing::Not;
using std::string_literals::operator""s;

constexpr std::uint32_t kNumeric = 1700;

TableOptions Options() { return *PresetOptions("walpost"); }

class TableMapperTest : public ::testing::Test {
 protected:
  // Binds the table as it is and maps its row.
  absl::Status Map() {
    const absl::Status bound = mapper_.Bind(table_.relation());
    EXPECT_TRUE(bound.ok()) << bound;
    return mapper_.Map(table_.values(), &event_);
  }

  void Use(TableOptions options) { mapper_ = TableMapper(std::move(options)); }

  TestTable table_ = WalpostTable();
  TableMapper mapper_{Options()};
  Event event_;
};

TEST_F(TableMapperTest, ColumnsAreFoundByNameWhereverTheyStand) {
  table_.Swap("aggregate_id", "created_at").Swap("payload", "id");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.key, "42");
  EXPECT_EQ(event_.payload, "\0\xff"s);
  EXPECT_EQ(event_.id, "3f2504e0-4f89-11d3-9a0c-0305e82c3301");
}

TEST_F(TableMapperTest, EventsOfATableWithoutATypeColumnHaveNone) {
  TableOptions options = Options();
  options.columns.type = {};
  Use(options);
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.type, "");
}

TEST_F(TableMapperTest, FirstPresentNameOfAListIsUsed) {
  TableOptions options = Options();
  options.columns.key = {"customer_id", "aggregate_id", "event_type"};
  Use(options);
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.key, "42");
  table_.Add("customer_id", type_oid::kText).Text("customer_id", "c1");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.key, "c1");
}

TEST_F(TableMapperTest, NamesAreCaseSensitive) {
  table_.Rename("aggregate_id", "Aggregate_Id");
  EXPECT_EQ(mapper_.Bind(table_.relation()).code(), absl::StatusCode::kFailedPrecondition);
}

// Failure 36.
TEST_F(TableMapperTest, RelationChangedBetweenTwoRowsIsReadAnew) {
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.topic, "outbox.event.order");
  table_.Swap("aggregate_id", "aggregate_type").Add("extra", kNumeric);
  table_.Retype("aggregate_id", type_oid::kInt8).Binary("aggregate_id", BigEndian(43, 8));
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.key, "43");
  EXPECT_EQ(event_.aggregate_type, "order");
}

TEST_F(TableMapperTest, ColumnDroppedAndTakenAwayIsNotRemembered) {
  table_.Text("traceparent", "00-ab-cd-01").Text("tracestate", "stands where it stood");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.traceparent, "00-ab-cd-01");
  table_.Drop("traceparent");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.traceparent, "");
}

TEST_F(TableMapperTest, TraceContextOfDebeziumsColumnCountsWhenThereIsNoOther) {
  TableOptions options = Options();
  options.columns.baggage = {"bag"};
  options.columns.tracingspancontext = {"tracingspancontext"};
  Use(options);
  table_.Add("bag", type_oid::kText).Text("bag", "a=b");
  table_.Add("tracingspancontext", type_oid::kText);
  table_.Text("tracingspancontext", "#x\ntraceparent=00-ab-cd-01\n");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.baggage, "a=b");
  EXPECT_EQ(event_.tracingspancontext, "#x\ntraceparent=00-ab-cd-01\n");
  EXPECT_EQ(event_.traceparent, "00-ab-cd-01");
  table_.Text("traceparent", "00-ef-00-00");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.traceparent, "00-ef-00-00");
}

TEST_F(TableMapperTest, TimestampColumnIsTheRecordsTimeWhereItHasOne) {
  TableOptions options = Options();
  options.columns.timestamp = {"occurred_at"};
  Use(options);
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.timestamp, std::nullopt);
  table_.Text("occurred_at", "2024-02-29 12:00:00.123456+00");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.timestamp->time_since_epoch().count(), 1'709'208'000'123'456);
  EXPECT_EQ(event_.occurred_at, event_.timestamp);
  table_.Text("occurred_at", "infinity");
  EXPECT_EQ(Map().code(), absl::StatusCode::kInvalidArgument);
  options.columns.occurred_at = {};
  Use(options);
  table_.Retype("occurred_at", type_oid::kInt8);
  EXPECT_THAT(std::string(mapper_.Bind(table_.relation()).message()),
              HasSubstr("as timestamp it must be timestamptz"));
}

TEST_F(TableMapperTest, PayloadColumnsTypeSaysWhatThePayloadMayBe) {
  const std::pair<std::uint32_t, PayloadForm> forms[] = {{type_oid::kBytea, PayloadForm::kBytes},
                                                         {type_oid::kJson, PayloadForm::kJson},
                                                         {type_oid::kJsonb, PayloadForm::kJson},
                                                         {type_oid::kText, PayloadForm::kText},
                                                         {type_oid::kVarchar, PayloadForm::kText}};
  for (const auto& [type, form] : forms) {
    table_.Retype("payload", type);
    ASSERT_TRUE(Map().ok()) << type;
    EXPECT_EQ(event_.payload_form, form) << type;
  }
}

TEST_F(TableMapperTest, RowThatDoesNotFitTheRelationIsDataLoss) {
  ASSERT_TRUE(Map().ok());
  table_.Add("extra", type_oid::kText);
  EXPECT_EQ(mapper_.Map(table_.values(), &event_).code(), absl::StatusCode::kDataLoss);
  table_.Drop("extra").Drop("seq");
  EXPECT_EQ(mapper_.Map(table_.values(), &event_).code(), absl::StatusCode::kDataLoss);
}

TEST_F(TableMapperTest, MissingMandatoryColumnIsASchemaMismatchThatSaysWhatToDo) {
  for (const char* column : {"id", "aggregate_id", "aggregate_type", "event_type", "payload"}) {
    TestTable table = WalpostTable();
    table.Drop(column);
    const absl::Status status = mapper_.Bind(table.relation());
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << column;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("table outbox.events has no column " + std::string(column)));
    EXPECT_THAT(std::string(status.message()), HasSubstr("`outboxes[].columns`"));
  }
}

TEST_F(TableMapperTest, MissingColumnOfAListNamesAllCandidates) {
  TableOptions options = Options();
  options.columns.payload = {"body", "data"};
  Use(options);
  EXPECT_THAT(std::string(mapper_.Bind(table_.relation()).message()),
              HasSubstr("has no column body or data, which is mapped as payload"));
}

// Failure 36.
TEST_F(TableMapperTest, ColumnOfAWrongTypeIsASchemaMismatchThatNamesBothTypes) {
  const std::pair<const char*, std::uint32_t> wrong[] = {{"id", kNumeric},
                                                         {"id", type_oid::kBytea},
                                                         {"aggregate_id", kNumeric},
                                                         {"aggregate_type", type_oid::kBytea},
                                                         {"event_type", type_oid::kTimestamptz},
                                                         {"payload", kNumeric},
                                                         {"content_type", type_oid::kBytea},
                                                         {"headers", type_oid::kText},
                                                         {"occurred_at", type_oid::kText},
                                                         {"traceparent", type_oid::kBytea}};
  for (const auto& [column, type] : wrong) {
    TestTable table = WalpostTable();
    table.Retype(column, type);
    EXPECT_EQ(mapper_.Bind(table.relation()).code(), absl::StatusCode::kFailedPrecondition)
        << column;
  }
  table_.Retype("occurred_at", kNumeric);
  EXPECT_EQ(mapper_.Bind(table_.relation()).message(),
            "table outbox.events: column occurred_at is numeric, but as occurred_at it "
            "must be timestamptz: change its type back, or map another column");
}

// Failure 39.
TEST_F(TableMapperTest, NullInAMandatoryColumnIsAnUndeliverableEvent) {
  for (const char* column : {"id", "aggregate_id", "aggregate_type", "event_type"}) {
    TestTable table = WalpostTable();
    table.Null(column);
    ASSERT_TRUE(mapper_.Bind(table.relation()).ok());
    const absl::Status status = mapper_.Map(table.values(), &event_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << column;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("column " + std::string(column) + " is NULL in event '"));
  }
}

TEST_F(TableMapperTest, LongIdIsCutInWhatIsSaidOfItsEvent) {
  for (const std::string column : {"aggregate_id", "headers"}) {
    table_ = WalpostTable();
    table_.Retype("id", type_oid::kText).Text("id", std::string(100'000, 'i'));
    column == "headers" ? table_.Text(column, "[]") : table_.Null(column);
    const absl::Status status = Map();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << column;
    EXPECT_LE(status.message().size(), 2 * base::kShownBytesMax) << column;
  }
}

TEST_F(TableMapperTest, NullPayloadIsNoPayloadAndEmptyPayloadIsEmpty) {
  table_.Null("payload");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.payload, std::nullopt);
  table_.Text("payload", "\\x");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.payload, "");
}

TEST_F(TableMapperTest, EmptyKeyIsNotNull) {
  table_.Text("aggregate_id", "");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.key, "");
}

TEST_F(TableMapperTest, KeyAllowedToBeNullLetsNamesBeNullToo) {
  TableOptions options = Options();
  options.null_key_allowed = true;
  options.topic = "orders";
  Use(options);
  table_.Null("aggregate_id").Null("aggregate_type").Null("event_type");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.key, std::nullopt);
  EXPECT_EQ(event_.aggregate_type, "");
  EXPECT_EQ(event_.type, "");
}

TEST_F(TableMapperTest, KeyAndPayloadMayBeOfAnyPayloadType) {
  table_.Retype("aggregate_id", type_oid::kBytea).Binary("aggregate_id", "\0k"s);
  table_.Retype("payload", type_oid::kJsonb).Binary("payload", "\x01{\"a\": 1}");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.key, "\0k"s);
  EXPECT_EQ(event_.payload, "{\"a\": 1}");
}

TEST_F(TableMapperTest, EveryViewLivesUntilTheNextMap) {
  // Each of these is rewritten as text, which must not overwrite another.
  table_.Binary("id", std::string(16, '\x11'));
  table_.Retype("aggregate_id", type_oid::kUuid).Binary("aggregate_id", std::string(16, '\x22'));
  table_.Retype("event_type", type_oid::kInt4).Binary("event_type", BigEndian(-7, 4));
  table_.Text("payload", "\\x616263");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.id, "11111111-1111-1111-1111-111111111111");
  EXPECT_EQ(event_.key, "22222222-2222-2222-2222-222222222222");
  EXPECT_EQ(event_.type, "-7");
  EXPECT_EQ(event_.payload, "abc");
}

TEST_F(TableMapperTest, ValueThatDoesNotFitItsTypeIsUndeliverableAndNotShown) {
  const std::pair<const char*, std::uint32_t> columns[] = {
      {"aggregate_id", type_oid::kInt8},       {"aggregate_type", type_oid::kUuid},
      {"event_type", type_oid::kBool},         {"payload", type_oid::kJsonb},
      {"occurred_at", type_oid::kTimestamptz}, {"headers", type_oid::kJsonb}};
  for (const auto& [column, type] : columns) {
    TestTable table = WalpostTable();
    table.Retype(column, type).Binary(column, "s3cret");
    ASSERT_TRUE(mapper_.Bind(table.relation()).ok());
    const absl::Status status = mapper_.Map(table.values(), &event_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << column;
    EXPECT_THAT(std::string(status.message()), HasSubstr(column));
    EXPECT_THAT(std::string(status.message()), HasSubstr("3f2504e0"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("s3cret")));
  }
}

TEST_F(TableMapperTest, IdThatIsTooLongIsUndeliverableAndLeavesKeyAndTopic) {
  table_.Retype("id", type_oid::kText).Text("id", std::string(kIdBytesMax, 'i'));
  ASSERT_TRUE(Map().ok());
  const std::string longer(kIdBytesMax + 1, 'i');
  table_.Text("id", longer);
  const absl::Status status = Map();
  EXPECT_EQ(ReasonCodeOf(status), kIdTooLong);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("its id has 1025 bytes, more than the 1024"));
  EXPECT_EQ(event_.id, longer);
  EXPECT_EQ(event_.key, "42");
  EXPECT_EQ(event_.topic, "outbox.event.order");
}

TEST_F(TableMapperTest, HeadersThatAreNoFlatObjectAreUndeliverable) {
  table_.Text("headers", "{\"a\": [1]}");
  const absl::Status status = Map();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("column headers in event '3f2504e0"));
}

TEST_F(TableMapperTest, NothingOfTheRowBeforeIsKept) {
  table_.Text("headers", "{\"a\": \"1\"}").Text("content_type", "text/plain");
  table_.Text("occurred_at", "2000-01-01 00:00:01+00");
  ASSERT_TRUE(Map().ok());
  table_.Null("headers").Null("content_type").Null("occurred_at").Null("payload");
  ASSERT_TRUE(mapper_.Map(table_.values(), &event_).ok());
  EXPECT_TRUE(event_.headers.empty());
  EXPECT_EQ(event_.content_type, "");
  EXPECT_FALSE(event_.occurred_at.has_value());
  EXPECT_FALSE(event_.payload.has_value());
}

TEST_F(TableMapperTest, PartitionColumnChoosesThePartition) {
  TableOptions options = Options();
  options.columns.partition = {"shard"};
  Use(options);
  table_.Add("shard", type_oid::kInt4);
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.partition, -1) << "NULL chooses none";
  table_.Binary("shard", BigEndian(7, 4));
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.partition, 7);
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{INT32_MAX} + 1}) {
    table_.Retype("shard", type_oid::kInt8).Binary("shard", BigEndian(wrong, 8));
    EXPECT_EQ(Map().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST_F(TableMapperTest, RecordHeadersTakeColumnsAsText) {
  TableOptions options = Options();
  options.record_headers = {{"x-seq", "seq"}, {"x-trace", "traceparent"}, {"x-type", "event_type"}};
  Use(options);
  table_.Binary("seq", BigEndian(99, 8));
  ASSERT_TRUE(Map().ok());
  ASSERT_EQ(event_.record_headers.size(), 2U) << "a NULL column makes no header";
  EXPECT_EQ(event_.record_headers[0].name, "x-seq");
  EXPECT_EQ(event_.record_headers[0].value, "99");
  EXPECT_EQ(event_.record_headers[1].name, "x-type");
  EXPECT_EQ(event_.record_headers[1].value, "Placed");
  table_.Drop("traceparent");
  EXPECT_EQ(mapper_.Bind(table_.relation()).code(), absl::StatusCode::kFailedPrecondition);
}

// Without the Type message the values' form is unknown; text is the best guess, as for an enum.
TEST_F(TableMapperTest, DomainIsReadInTheFormOfTheTypeBelowIt) {
  constexpr std::uint32_t kDomain = 16390;
  table_.Retype("id", kDomain).Binary("id", std::string(16, '\x11'));
  mapper_.Learn({kDomain, "", "uuid"});
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.id, "11111111-1111-1111-1111-111111111111");
  mapper_.Learn({kDomain, "", "numeric"});
  EXPECT_THAT(std::string(mapper_.Bind(table_.relation()).message()),
              HasSubstr("column id is a domain over numeric, but as id it must be text or uuid"));
  // The OID now means an enum: of another database after a reconnect, or made anew.
  mapper_.Learn({kDomain, "public", "mood"});
  mapper_.SetTextTypes({kDomain});
  table_.Binary("id", "calm");
  ASSERT_TRUE(Map().ok());
  EXPECT_EQ(event_.id, "calm");
}

TEST_F(TableMapperTest, UnbindForgetsTheTypes) {
  constexpr std::uint32_t kDomain = 16390;
  table_.Retype("id", kDomain);
  mapper_.SetTextTypes({kDomain});
  mapper_.Learn({kDomain, "", "numeric"});
  EXPECT_FALSE(mapper_.Bind(table_.relation()).ok());
  mapper_.Unbind();
  EXPECT_TRUE(mapper_.Bind(table_.relation()).ok());
}

using TableMapperDeathTest = TableMapperTest;

TEST_F(TableMapperDeathTest, MapWithoutABindingIsFatal) {
  EXPECT_DEATH(mapper_.Map(table_.values(), &event_).IgnoreError(), "bound");
  ASSERT_TRUE(Map().ok());
  mapper_.Unbind();
  EXPECT_DEATH(mapper_.Map(table_.values(), &event_).IgnoreError(), "bound");
  ASSERT_TRUE(Map().ok());
  table_.Drop("id");
  EXPECT_FALSE(mapper_.Bind(table_.relation()).ok());
  EXPECT_DEATH(mapper_.Map(table_.values(), &event_).IgnoreError(), "bound");
}

// A column that the user wrote down is one that matters: without it records would be others.
TEST_F(TableMapperTest, ColumnThatWasNamedMustBeThere) {
  const std::pair<const char*, ColumnNames ColumnMapping::*> fields[] = {
      {"type", &ColumnMapping::type},
      {"content_type", &ColumnMapping::content_type},
      {"schema_name", &ColumnMapping::schema_name},
      {"headers", &ColumnMapping::headers},
      {"occurred_at", &ColumnMapping::occurred_at},
      {"traceparent", &ColumnMapping::traceparent},
      {"tracestate", &ColumnMapping::tracestate},
      {"baggage", &ColumnMapping::baggage},
      {"tracingspancontext", &ColumnMapping::tracingspancontext},
      {"topic", &ColumnMapping::topic},
      {"partition", &ColumnMapping::partition},
      {"timestamp", &ColumnMapping::timestamp}};
  for (const auto& [field, names] : fields) {
    TableOptions options = Options();
    options.type_optional = true;
    options.columns.*names = {"gone"};
    Use(options);
    EXPECT_TRUE(mapper_.Bind(table_.relation()).ok()) << field;
    options.fields_named = {field};
    Use(options);
    EXPECT_THAT(std::string(mapper_.Bind(table_.relation()).message()),
                HasSubstr(std::string("no column gone, which is mapped as ") + field));
  }
}

// An array, a composite or a range of users' types looks like an enum, and its bytes are no text.
TEST_F(TableMapperTest, TypeMadeByUsersIsReadOnlyWhenItIsKnownToBeText) {
  constexpr std::uint32_t kType = type_oid::kFirstUserType + 5;
  for (const char* column : {"aggregate_id", "payload", "event_type", "content_type"}) {
    TestTable table = table_;
    table.Retype(column, kType);
    mapper_.Unbind();
    mapper_.SetTextTypes({});
    mapper_.Learn(pgoutput::Type{kType, "public", "_mood"});
    EXPECT_THAT(std::string(mapper_.Bind(table.relation()).message()),
                HasSubstr("is of type public._mood"))
        << column;
    mapper_.SetTextTypes({kType - 1, kType});
    EXPECT_TRUE(mapper_.Bind(table.relation()).ok()) << column;
  }
}

}  // namespace
}  // namespace walpost::outbox
