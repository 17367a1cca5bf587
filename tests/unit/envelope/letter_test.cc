#include "envelope/letter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace walpost::envelope {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LetterTest : public ::testing::Test {
 protected:
  LetterTest() {
    event_.topic = "orders";
    event_.key = "key-7";
    event_.value = "the value";
    event_.headers = headers_;
  }

  static Letter Full() {
    Letter letter;
    letter.kind = LetterKind::kParked;
    letter.pipeline = "shop";
    letter.topic = "orders";
    letter.table = "outbox.events";
    letter.id = "a1";
    letter.type = "Created";
    letter.position = "0000000000c0ffee-00000003-0000000000000064-00000001";
    letter.reason = "record_too_large";
    letter.detail = "larger than max.message.bytes";
    letter.attempts = 3;
    letter.partition = 2;
    letter.timestamp_ms = 1'700'000'000'123;
    return letter;
  }

  static Letter Parsed(const Record& record) {
    const auto letter = ParseLetter(record.headers);
    EXPECT_TRUE(letter.ok()) << letter.status();
    return letter.ok() && *letter ? **letter : Letter();
  }

  std::vector<RecordHeader> headers_ = {{"id", "a1"}, {"traceparent", "00-1"}};
  Record event_;
  base::ChunkArena arena_;
};

MATCHER_P2(Header, name, value, "") { return arg.name == name && arg.value == value; }

TEST_F(LetterTest, CarriesTheEventAsItIs) {
  const Record record = EncodeLetter(Full(), "dead", event_, &arena_);
  EXPECT_EQ(record.topic, "dead");
  EXPECT_EQ(record.partition, 0);
  EXPECT_EQ(record.timestamp_ms, 0) << "its age in the dead-letter topic is that of the decision";
  EXPECT_EQ(record.key, "key-7");
  EXPECT_EQ(record.value, "the value");
  EXPECT_THAT(EventHeaders(record.headers),
              ElementsAre(Header("id", "a1"), Header("traceparent", "00-1")));
}

TEST_F(LetterTest, ReadsBackAsWritten) {
  Letter letter = Full();
  letter.action = LetterAction::kFailed;
  letter.through = letter.position;
  letter.answers = 77;
  const Letter read = Parsed(EncodeLetter(letter, "dead", event_, &arena_));
  EXPECT_EQ(read.kind, LetterKind::kParked);
  EXPECT_EQ(read.action, LetterAction::kFailed);
  EXPECT_EQ(read.pipeline, letter.pipeline);
  EXPECT_EQ(read.topic, letter.topic);
  EXPECT_EQ(read.table, letter.table);
  EXPECT_EQ(read.id, letter.id);
  EXPECT_EQ(read.type, letter.type);
  EXPECT_EQ(read.position, letter.position);
  EXPECT_EQ(read.through, letter.through);
  EXPECT_EQ(read.reason, letter.reason);
  EXPECT_EQ(read.detail, letter.detail);
  EXPECT_EQ(read.attempts, 3U);
  EXPECT_EQ(read.partition, 2);
  EXPECT_EQ(read.timestamp_ms, letter.timestamp_ms);
  EXPECT_EQ(read.answers, 77);
  EXPECT_FALSE(read.left_out_bytes);
}

TEST_F(LetterTest, NullKeyAndTombstoneStayNull) {
  event_.key.reset();
  event_.value.reset();
  const Record record = EncodeLetter(Full(), "dead", event_, &arena_);
  EXPECT_FALSE(record.key);
  EXPECT_FALSE(record.value);
}

TEST_F(LetterTest, HeaderWithoutValueStaysOne) {
  headers_ = {{"null", std::string_view()}, {"empty", ""}};
  event_.headers = headers_;
  const Record record = EncodeLetter(Full(), "dead", event_, &arena_);
  EXPECT_EQ(record.headers[0].value.data(), nullptr);
  EXPECT_NE(record.headers[1].value.data(), nullptr);
}

TEST_F(LetterTest, StubLeavesOutValueAndHeadersAndKeepsTheKey) {
  Letter letter = Full();
  letter.left_out_bytes = 5'000'000;
  const Record record = EncodeLetter(letter, "dead", event_, &arena_);
  EXPECT_FALSE(record.value);
  EXPECT_EQ(record.key, "key-7");
  EXPECT_THAT(EventHeaders(record.headers), IsEmpty());
  EXPECT_EQ(Parsed(record).left_out_bytes, 5'000'000U);
}

TEST_F(LetterTest, StubKeepsALargeKeyOnlyWhereOrderDependsOnIt) {
  const std::string large(kStubKeyBytesMax + 1, 'k');
  event_.key = large;
  Letter letter = Full();
  letter.left_out_bytes = 1;
  EXPECT_EQ(EncodeLetter(letter, "dead", event_, &arena_).key, large);
  letter.kind = LetterKind::kLetter;
  EXPECT_FALSE(EncodeLetter(letter, "dead", event_, &arena_).key);
}

TEST_F(LetterTest, LongTextIsCut) {
  Letter letter = Full();
  letter.detail = std::string(100'000, 'x');
  EXPECT_EQ(Parsed(EncodeLetter(letter, "dead", event_, &arena_)).detail.size(), Letter::kTextMax);
}

TEST_F(LetterTest, HeadersOfAnEventThatWasALetterBeforeAreTheEvents) {
  headers_.push_back({"walpost-dlq", "letter"});
  headers_.push_back({"walpost-dlq-id", "another"});
  event_.headers = headers_;
  const Record record = EncodeLetter(Full(), "dead", event_, &arena_);
  EXPECT_EQ(EventHeaders(record.headers).size(), 4U);
  EXPECT_EQ(Parsed(record).id, "a1");
}

TEST_F(LetterTest, RecordOfSomebodyElseIsNone) {
  const auto letter = ParseLetter(headers_);
  ASSERT_TRUE(letter.ok());
  EXPECT_FALSE(*letter);
  EXPECT_EQ(EventHeaders(headers_).size(), 2U);
}

TEST_F(LetterTest, WhatCannotBeReadIsNamed) {
  for (const auto& [name, value] :
       {std::pair("walpost-dlq", "postcard"), std::pair("walpost-dlq-attempts", "3x"),
        std::pair("walpost-dlq-timestamp-ms", ""), std::pair("walpost-dlq-action", "resend")}) {
    const std::vector<RecordHeader> headers = {{"walpost-dlq", "letter"}, {name, value}};
    const std::vector<RecordHeader> kind = {{name, value}};
    const auto letter = ParseLetter(std::string_view(name) == "walpost-dlq" ? kind : headers);
    EXPECT_EQ(letter.status().code(), absl::StatusCode::kDataLoss) << name;
    EXPECT_NE(letter.status().message().find(name), std::string::npos);
  }
}

TEST_F(LetterTest, HeaderOfALaterVersionIsPassedOver) {
  const std::vector<RecordHeader> headers = {{"walpost-dlq", "letter"}, {"walpost-dlq-new", "?"}};
  EXPECT_TRUE(ParseLetter(headers).ok());
}

TEST_F(LetterTest, RedeliveryIsMarkedAndHasNoLivePosition) {
  headers_.push_back({"walpost-position", "p1"});
  EXPECT_THAT(RedeliveryHeaders(headers_, "dlq-retry", "p1"),
              ElementsAre(Header("id", "a1"), Header("traceparent", "00-1"),
                          Header("walpost-redelivery", "dlq-retry"),
                          Header("walpost-original-position", "p1")));
}

}  // namespace
}  // namespace walpost::envelope
