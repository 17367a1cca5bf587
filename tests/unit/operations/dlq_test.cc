#include "operations/dlq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "operations/dlq_decide.h"
#include "operations/dlq_text.h"

namespace walpost::operations {
namespace {

using kafka::StoredLetter;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kPosition = "0000000000c0ffee-00000003-0000000000000064-00000001";

StoredLetter Stored() {
  StoredLetter stored;
  stored.offset = 7;
  stored.timestamp_ms = 1'000'000;
  stored.key = "key-1";
  stored.value = "secret";
  stored.letter.id = "a1";
  stored.letter.type = "Created";
  stored.letter.topic = "orders";
  stored.letter.reason = "record_too_large";
  stored.letter.position = kPosition;
  return stored;
}

TEST(LetterFilterTest, EmptyMatchesEverything) {
  EXPECT_TRUE(LetterFilter().empty());
  EXPECT_TRUE(LetterFilter().Matches(Stored()));
}

TEST(LetterFilterTest, EachFieldMustBeThatOfTheLetter) {
  for (std::string LetterFilter::*field :
       {&LetterFilter::id, &LetterFilter::position, &LetterFilter::key, &LetterFilter::type,
        &LetterFilter::topic, &LetterFilter::reason}) {
    LetterFilter filter;
    filter.*field = "other";
    EXPECT_FALSE(filter.empty());
    EXPECT_FALSE(filter.Matches(Stored()));
  }
  const LetterFilter all{"a1",     kPosition,          "key-1",   "Created",
                         "orders", "record_too_large", 1'000'000, 1'000'000};
  EXPECT_TRUE(all.Matches(Stored()));
}

TEST(LetterFilterTest, LetterWithoutKeyMatchesNoKey) {
  StoredLetter stored = Stored();
  stored.key.reset();
  LetterFilter filter;
  filter.key = "key-1";
  EXPECT_FALSE(filter.Matches(stored));
}

TEST(LetterFilterTest, TimesAreThoseOfTheLetter) {
  LetterFilter filter;
  filter.since_ms = 1'000'001;
  EXPECT_FALSE(filter.empty());
  EXPECT_FALSE(filter.Matches(Stored()));
  filter = {};
  filter.until_ms = 999'999;
  EXPECT_FALSE(filter.Matches(Stored()));
}

TEST(LetterFilterTest, OnlyIdAndPositionMeanOneEvent) {
  LetterFilter filter;
  filter.key = "key-1";
  EXPECT_FALSE(filter.one_event());
  filter.position = kPosition;
  EXPECT_TRUE(filter.one_event());
}

TEST(LetterFilterTest, WhatCannotMatchIsRefusedWithWhatCan) {
  LetterFilter filter;
  filter.reason = "row_unfit";
  EXPECT_TRUE(CheckFilter(filter).ok());
  filter.reason = "unfit";
  EXPECT_THAT(std::string(CheckFilter(filter).message()),
              AllOf(HasSubstr("'unfit'"), HasSubstr("row_unfit"), HasSubstr("key_parked")));
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
  EXPECT_EQ(Printable("abcdef", 3), "abc...");
  EXPECT_EQ(Printable("abc", 3), "abc");
}

TEST(DlqTextTest, JsonTellsAllButTheValue) {
  StoredLetter stored = Stored();
  stored.letter.left_out_bytes = 9;
  LetterState state;
  state.undecided = true;
  LetterJson json = LetterAsJson(stored, state);
  EXPECT_EQ(json["state"], "letter");
  EXPECT_EQ(json["key"], "key-1");
  EXPECT_EQ(json["offset"], 7);
  EXPECT_EQ(json["value_bytes"], 6);
  EXPECT_EQ(json["left_out_bytes"], 9);
  EXPECT_EQ(json["letter_time"], "1970-01-01T00:16:40Z");
  EXPECT_TRUE(json["event_time"].is_null());
  EXPECT_EQ(json.dump().find("secret"), std::string::npos);
  const envelope::LetterLog::Decision decision{envelope::LetterAction::kDiscarded, 12};
  state.decision = &decision;
  json = LetterAsJson(stored, state);
  EXPECT_EQ(json["state"], "discarded");
  EXPECT_EQ(json["decision_offset"], 12);
}

TEST(DlqTextTest, KeyThatIsNotUtf8DoesNotBreakTheJson) {
  StoredLetter stored = Stored();
  stored.key = "\xff";
  EXPECT_THAT(Dump(LetterAsJson(stored, {})), HasSubstr("\"key\": \"\xef\xbf\xbd\""));
}

TEST(DlqDecideTest, WithoutAFilterNothingIsDecidedAndKafkaIsNotAsked) {
  for (const Outcome& outcome : {DlqRetry({}, {}), DlqDiscard({}, {})}) {
    EXPECT_EQ(outcome.exit_code, 64);
    EXPECT_THAT(outcome.error, HasSubstr("--all-undecided"));
  }
}

}  // namespace
}  // namespace walpost::operations
