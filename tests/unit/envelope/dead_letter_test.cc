#include "envelope/dead_letter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace walpost::envelope {
namespace {

using base::DeadLetter;
using ::testing::SizeIs;

std::map<std::string, std::string> Described(const DeadLetter& row) {
  std::map<std::string, std::string> headers;
  for (const auto& [name, text] : DescribeForTopic(row, "shop")) {
    headers[std::string(name)] = text;
  }
  return headers;
}

TEST(DeadLetterTest, TopicGetsWhatIsKnownAndNothingElse) {
  DeadLetter row;
  row.reason = "record_too_large";
  row.position = "p1";
  row.attempts = 2;
  row.detail = std::string(5'000, 'x');
  const auto headers = Described(row);
  EXPECT_EQ(headers.at("walpost-dlq"), "dead_letter");
  EXPECT_EQ(headers.at("walpost-dlq-pipeline"), "shop");
  EXPECT_EQ(headers.at("walpost-dlq-reason"), "record_too_large");
  EXPECT_EQ(headers.at("walpost-dlq-attempts"), "2");
  EXPECT_THAT(headers.at("walpost-dlq-detail"), SizeIs(DeadLetter::kTextBytesMax));
  EXPECT_FALSE(headers.contains("walpost-dlq-topic"));
  EXPECT_FALSE(headers.contains("walpost-dlq-partition"));
  row.partition = 0;
  EXPECT_EQ(Described(row).at("walpost-dlq-partition"), "0");
  row.parked = true;
  EXPECT_EQ(Described(row).at("walpost-dlq"), "parked");
}

TEST(DeadLetterTest, RecordIsTakenWholeWithNullAndEmptyHeaders) {
  const std::vector<RecordHeader> headers = {{"id", "a1"}, {"null", {}}, {"empty", ""}};
  Record record;
  record.key = "k";
  record.value = "v";
  record.headers = headers;
  DeadLetter row;
  TakeRecord(record, &row);
  EXPECT_EQ(row.key, "k");
  EXPECT_EQ(row.value, "v");
  ASSERT_THAT(row.headers, SizeIs(3));
  EXPECT_EQ(row.headers[1].value, std::nullopt);
  EXPECT_EQ(row.headers[2].value, "");
  const auto back = HeadersOf(row);
  EXPECT_EQ(back[1].value.data(), nullptr);
  EXPECT_NE(back[2].value.data(), nullptr);
}

TEST(DeadLetterTest, TooLargeRecordIsTruncatedAndKeepsTheKeyThatOrderNeeds) {
  const std::string large(DeadLetter::kRecordBytesMax + 1, 'x');
  const std::string key(kTruncatedKeyBytesMax + 1, 'k');
  Record record;
  record.key = key;
  record.value = large;
  DeadLetter row;
  TakeRecord(record, &row);
  EXPECT_EQ(row.truncated_bytes, large.size());
  EXPECT_FALSE(row.value);
  EXPECT_FALSE(row.key);
  DeadLetter parked;
  parked.parked = true;
  TakeRecord(record, &parked);
  EXPECT_EQ(parked.key, key);
}

TEST(DeadLetterTest, ValueOfATruncatedOneIsTheRowThatItKeeps) {
  Record record;
  record.value = "the row";
  DeadLetter row;
  row.truncated_bytes = 5;
  TakeRecord(record, &row);
  EXPECT_EQ(row.value, "the row");
  EXPECT_EQ(row.truncated_bytes, 5U);
  EXPECT_TRUE(row.keeps_row());
  row.truncated_bytes.reset();
  EXPECT_FALSE(row.keeps_row()) << "a record's value";
  DeadLetter nothing;
  nothing.truncated_bytes = 5;
  EXPECT_FALSE(nothing.keeps_row());
}

TEST(DeadLetterTest, RecordThatMayBeNowhereElseIsKeptWhole) {
  const std::string large(DeadLetter::kRecordBytesMax + 1, 'x');
  Record record;
  record.value = large;
  DeadLetter healthy;
  healthy.reason = kKeyParked;
  DeadLetter message;
  message.reason = "record_too_large";
  message.source = "message:shop";
  for (DeadLetter* row : {&healthy, &message}) {
    TakeRecord(record, row);
    EXPECT_FALSE(row->truncated_bytes);
    EXPECT_EQ(row->value, large);
  }
}

TEST(DeadLetterTest, HeadersCountTowardsTheLimit) {
  const std::string half(DeadLetter::kRecordBytesMax / 2, 'x');
  const std::vector<RecordHeader> headers = {{"a", half}, {"b", half}};
  Record record;
  record.headers = headers;
  DeadLetter row;
  TakeRecord(record, &row);
  EXPECT_EQ(row.truncated_bytes, 2 * half.size() + 2);
  EXPECT_THAT(row.headers, SizeIs(0));
}

TEST(DeadLetterTest, WhatIsSentAgainIsMarkedAndHasNoPositionOfItsOwn) {
  DeadLetter row;
  row.headers = {{"id", "a1"}, {"walpost-position", "p1"}, {"x-tenant", "t"}};
  row.position = "p1";
  const auto headers = RedeliveryHeaders(row, "dlq-retry");
  ASSERT_THAT(headers, SizeIs(4));
  EXPECT_EQ(headers[1].name, "x-tenant");
  EXPECT_EQ(headers[2].name, "walpost-redelivery");
  EXPECT_EQ(headers[2].value, "dlq-retry");
  EXPECT_EQ(headers[3].name, "walpost-original-position");
  EXPECT_EQ(headers[3].value, "p1");
  row.position.clear();
  EXPECT_THAT(RedeliveryHeaders(row, "dlq-retry"), SizeIs(3));
}

}  // namespace
}  // namespace walpost::envelope
