#include "operations/deadletters/dlq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "operations/deadletters/dlq_list.h"
#include "outbox/column_value.h"
#include "outbox/options.h"
#include "support/pgoutput_bytes.h"

namespace walpost::operations {
namespace {

using base::DeadLetter;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kPosition = "0000000000c0ffee-00000003-0000000000000064-00000001";

DeadLetter Row() {
  DeadLetter row;
  row.seq = 7;
  row.written_at_ms = 1'000'000;
  row.key = "key-1";
  row.value = "secret";
  row.value_bytes = 6;
  row.event_id = "a1";
  row.event_type = "Created";
  row.topic = "orders";
  row.reason = "record_too_large";
  row.position = kPosition;
  return row;
}

TEST(DeadLetterFilterTest, EmptyMatchesEverything) {
  EXPECT_TRUE(DeadLetterFilter().empty());
  EXPECT_TRUE(DeadLetterFilter().Matches(Row()));
}

TEST(DeadLetterFilterTest, EachFieldMustBeThatOfTheRow) {
  for (std::string DeadLetterFilter::*field :
       {&DeadLetterFilter::id, &DeadLetterFilter::position, &DeadLetterFilter::key,
        &DeadLetterFilter::type, &DeadLetterFilter::topic, &DeadLetterFilter::reason}) {
    DeadLetterFilter filter;
    filter.*field = "other";
    EXPECT_FALSE(filter.empty());
    EXPECT_FALSE(filter.Matches(Row()));
  }
  const DeadLetterFilter all{"a1",     kPosition,          "key-1",   "Created",
                             "orders", "record_too_large", 1'000'000, 1'000'000};
  EXPECT_TRUE(all.Matches(Row()));
}

TEST(DeadLetterFilterTest, RowWithoutKeyMatchesNoKey) {
  DeadLetter row = Row();
  row.key.reset();
  DeadLetterFilter filter;
  filter.key = "key-1";
  EXPECT_FALSE(filter.Matches(row));
}

TEST(DeadLetterFilterTest, TimesAreThoseOfTheRow) {
  DeadLetterFilter filter;
  filter.since_ms = 1'000'001;
  EXPECT_FALSE(filter.empty());
  EXPECT_FALSE(filter.Matches(Row()));
  filter = {};
  filter.until_ms = 999'999;
  EXPECT_FALSE(filter.Matches(Row()));
}

TEST(DeadLetterFilterTest, OnlyIdAndPositionMeanOneEvent) {
  DeadLetterFilter filter;
  filter.key = "key-1";
  EXPECT_FALSE(filter.one_event());
  filter.position = kPosition;
  EXPECT_TRUE(filter.one_event());
}

TEST(DeadLetterFilterTest, WhatCannotMatchIsRejectedWithWhatCan) {
  DeadLetterFilter filter;
  filter.reason = "row_invalid";
  EXPECT_TRUE(CheckFilter(filter).ok());
  filter.reason = "undeliverable";
  EXPECT_THAT(
      std::string(CheckFilter(filter).message()),
      AllOf(HasSubstr("'undeliverable'"), HasSubstr("row_invalid"), HasSubstr("key_parked")));
  filter = {};
  filter.position = "12";
  EXPECT_EQ(CheckFilter(filter).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ParseTimeTest, TakesRfc3339AndNothingElse) {
  EXPECT_EQ(ParseTime("1970-01-01T00:00:01Z").value_or(0), 1'000);
  EXPECT_EQ(ParseTime("1970-01-01T01:00:01.5+01:00").value_or(0), 1'500);
  for (const char* wrong : {"", "yesterday", "1970-01-01", "infinite-future", "infinite-past"}) {
    EXPECT_FALSE(ParseTime(wrong).ok()) << wrong;
  }
}

TEST(DlqTextTest, BytesThatMayBeAnythingArePrintable) {
  EXPECT_EQ(Printable("key-1", 0), "key-1");
  EXPECT_EQ(Printable(std::string_view("a\n\x1b\0\xff", 5), 0), "a\\x0a\\x1b\\x00\\xff");
}

TEST(DlqTextTest, JsonShowsAllButTheValue) {
  DeadLetter row = Row();
  DeadLetterJson json = AsJson(row);
  EXPECT_EQ(json["state"], "dead_letter");
  EXPECT_EQ(json["key"], "key-1");
  EXPECT_EQ(json["seq"], 7);
  EXPECT_EQ(json["value_bytes"], 6);
  EXPECT_TRUE(json["truncated_bytes"].is_null());
  EXPECT_TRUE(json["kept_row_bytes"].is_null());
  EXPECT_EQ(json["written_at"], "1970-01-01T00:16:40Z");
  EXPECT_TRUE(json["event_time"].is_null());
  EXPECT_TRUE(json["decision"].is_null());
  EXPECT_EQ(json.dump().find("secret"), std::string::npos);
}

TEST(DlqTextTest, RowThatIsKeptIsNotShownAsAValue) {
  DeadLetter row = Row();
  row.truncated_bytes = 9;
  const DeadLetterJson json = AsJson(row);
  EXPECT_EQ(json["truncated_bytes"], 9);
  EXPECT_EQ(json["kept_row_bytes"], 6);
  EXPECT_TRUE(json["value_bytes"].is_null());
}

TEST(DlqTextTest, KeptRowIsShownByColumn) {
  namespace type = outbox::type_oid;
  pgoutput::Relation relation;
  relation.id = {16400};
  relation.name = "events";
  relation.columns = {{"id", type::kUuid, -1, true},        {"number", type::kInt4, -1, false},
                      {"payload", type::kBytea, -1, false}, {"made", type::kTimestamptz, -1, false},
                      {"escaped", type::kBytea, -1, false}, {"odd", type::kText, -1, false},
                      {"strange", 16390, -1, false},        {"none", type::kText, -1, false}};
  const outbox::TableMapper mapper(*outbox::PresetOptions("walpost"));
  const std::string insert = testing::InsertBytes(
      relation.id,
      {testing::BinaryColumn(std::string(16, '\x11')),
       testing::BinaryColumn(testing::BigEndian(7, 4)), testing::BinaryColumn("\x01\xff"),
       testing::BinaryColumn(testing::BigEndian(0, 8)), testing::TextColumn("\\x01ff"),
       testing::TextColumn("\xff"), testing::BinaryColumn("\x02"), testing::NullColumn()});
  const std::string bytes = outbox::KeepRow({&mapper, &relation, insert}).value();
  const DeadLetterJson json = AsJson(outbox::KeptRow::Parse(bytes).value());
  EXPECT_EQ(json["id"], "11111111-1111-1111-1111-111111111111");
  EXPECT_EQ(json["number"], "7");
  EXPECT_EQ(json["payload"], "\\x01ff");
  EXPECT_EQ(json["made"], "2000-01-01T00:00:00Z");
  EXPECT_EQ(json["escaped"], "\\x01ff");
  EXPECT_EQ(json["strange"], "\\x02");
  EXPECT_TRUE(json["none"].is_null());
  EXPECT_THAT(Dump(json), HasSubstr("\"odd\": \"\xef\xbf\xbd\""));
}

TEST(DlqTextTest, StateSaysWhatBecameOfIt) {
  DeadLetter row = Row();
  row.parked = true;
  EXPECT_EQ(StateName(row), "parked");
  row.closed = true;
  row.decision = DeadLetter::Decision::kDiscard;
  EXPECT_EQ(StateName(row), "discarded");
  row.decision = DeadLetter::Decision::kRetry;
  EXPECT_EQ(StateName(row), "delivered");
  row.send_to = "corrected";
  EXPECT_EQ(StateName(row), "sent_elsewhere");
  row.foreign = true;
  EXPECT_EQ(StateName(row), "foreign");
}

TEST(DlqTextTest, KeyThatIsNotUtf8DoesNotBreakTheJson) {
  DeadLetter row = Row();
  row.key = "\xff";
  EXPECT_THAT(Dump(AsJson(row)), HasSubstr("\"key\": \"\xef\xbf\xbd\""));
}

TEST(DlqDecideTest, WithoutAFilterNothingIsDecidedAndNobodyIsAsked) {
  for (const Outcome& outcome : {DlqRetry({}, {}), DlqDiscard({}, {})}) {
    EXPECT_EQ(outcome.exit_code, 64);
    EXPECT_THAT(outcome.error, HasSubstr("--all-undecided"));
  }
}

}  // namespace
}  // namespace walpost::operations
