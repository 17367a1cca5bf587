#include "envelope/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace walpost::envelope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SchemaNeed Payload(SchemaType type = SchemaType::kProtobuf) {
  return SchemaNeed{Framing::kPayload, type, "orders-shop.v1.Order", "shop.v1.Order", 0};
}

SchemaNeed Header() {
  SchemaNeed need = Payload();
  need.framing = Framing::kHeader;
  return need;
}

std::string Hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    text += {kDigits[byte >> 4U], kDigits[byte & 15U]};
  }
  return text;
}

Schema Known(std::vector<std::int32_t> indexes) {
  return Schema{0x01020304, SchemaGuid{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
                std::move(indexes), true};
}

// Confluent's clients write and read these.
TEST(FrameTest, PayloadHasTheIdAndThePathAsZigZagNumbersBehindTheirCount) {
  EXPECT_EQ(Hex(*FrameOf(Payload(), Known({0}))), "000102030400") << "the short form";
  EXPECT_EQ(Hex(*FrameOf(Payload(), Known({2}))), "00010203040204");
  EXPECT_EQ(Hex(*FrameOf(Payload(), Known({0, 0}))), "0001020304040000");
  EXPECT_EQ(Hex(*FrameOf(Payload(), Known({2, 0, 100}))), "0001020304060400c801");
}

TEST(FrameTest, OtherTypesHaveNoPath) {
  EXPECT_EQ(Hex(*FrameOf(Payload(SchemaType::kJson), Known({}))), "0001020304");
  EXPECT_EQ(Hex(*FrameOf(Payload(SchemaType::kAvro), Known({}))), "0001020304");
}

TEST(FrameTest, HeaderHasTheGuidAndThePath) {
  EXPECT_EQ(Hex(*FrameOf(Header(), Known({2}))), "010102030405060708090a0b0c0d0e0f100204");
}

TEST(FrameTest, HeaderOfARegistryWithoutGuidsIsRejected) {
  const auto frame = FrameOf(Header(), Schema{7, std::nullopt, {0}, true});
  EXPECT_EQ(frame.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(frame.status().message()), HasSubstr("use `framing: payload`"));
}

TEST(FrameTest, MessageThatIsNestedDeeperThanThereIsRoomIsRejected) {
  const std::vector<std::int32_t> deep(kSchemaRoom, 1);
  EXPECT_EQ(FrameOf(Payload(), Known(deep)).status().code(), absl::StatusCode::kInvalidArgument);
  const std::vector<std::int32_t> fits(kSchemaRoom - 6, 1);
  EXPECT_TRUE(FrameOf(Payload(), Known(fits)).ok());
}

TEST(SubjectTest, PlaceholdersAreReplacedAndNothingElse) {
  EXPECT_EQ(ExpandSubject("{topic}-{record}", "a", "b.C"), "a-b.C");
  EXPECT_EQ(ExpandSubject("x-{record}{topic}{", "{record}", "r"), "x-r{record}{");
  EXPECT_EQ(ExpandSubject("same", "a", "b"), "same");
}

TEST(NeedTest, NoteReadsBackAsTheSameButForTheSource) {
  SchemaNeed need = Header();
  need.subject = "with a space";
  const auto again = ParseNeed(NeedAsText(need));
  ASSERT_TRUE(again.ok());
  need.source = SchemaNeed::kNoSource;
  EXPECT_EQ(*again, need);
  need.record = "";
  EXPECT_EQ(*ParseNeed(NeedAsText(need)), need);
}

TEST(NeedTest, OtherTextIsNoNote) {
  for (const char* text : {"", "payload", "payload protobuf a", "none protobuf a b", "x json a b",
                           "payload thrift a b"}) {
    EXPECT_EQ(ParseNeed(text).status().code(), absl::StatusCode::kDataLoss) << text;
  }
}

class FramedTest : public ::testing::Test {
 protected:
  FramedTest() {
    Record plain;
    std::string topic = "orders";
    plain.topic = topic;
    plain.key = "k";
    plain.value = "value";
    plain.headers = headers_;
    record_ = WithRoom(plain, &arena_);
    topic = "-gone-";  // nothing of the copy is somebody else's
    record_.schema = 1;
  }

  const std::vector<RecordHeader> headers_ = {{"id", "1"}, {"null", {}}};
  base::ChunkArena arena_;
  Record record_;
};

TEST_F(FramedTest, CopyWithRoomIsTheSameRecord) {
  EXPECT_EQ(record_.topic, "orders");
  EXPECT_EQ(record_.key, "k");
  EXPECT_EQ(record_.value, "value");
  ASSERT_EQ(record_.headers.size(), 2U);
  EXPECT_EQ(record_.headers[0].name, "id");
  EXPECT_EQ(record_.headers[0].value, "1");
  EXPECT_EQ(record_.headers[1].value.data(), nullptr) << "null stays null";
}

TEST_F(FramedTest, PayloadStandsBehindItsFrameAndTheRecordItselfStaysAsItIs) {
  const Record framed = Framed(record_, Framing::kPayload, "FRAME");
  EXPECT_EQ(framed.value, "FRAMEvalue");
  EXPECT_EQ(framed.headers.size(), 2U);
  EXPECT_EQ(record_.value, "value");
  EXPECT_EQ(Framed(record_, Framing::kPayload, "longer").value, "longervalue") << "another id";
}

TEST_F(FramedTest, HeaderComesLastAndTheValueStaysAsItIs) {
  const Record framed = Framed(record_, Framing::kHeader, "FRAME");
  EXPECT_EQ(framed.value, "value");
  ASSERT_EQ(framed.headers.size(), 3U);
  EXPECT_EQ(framed.headers[2].name, "__value_schema_id");
  EXPECT_EQ(framed.headers[2].value, "FRAME");
  EXPECT_EQ(record_.headers.size(), 2U);
}

TEST_F(FramedTest, LargestFrameIsAccountedForBeforeItIsKnown) {
  const std::string frame(kSchemaRoom, 'f');
  for (const Framing framing : {Framing::kPayload, Framing::kHeader}) {
    EXPECT_LE(Framed(record_, framing, frame).AccountedBytes(), record_.AccountedBytes());
  }
}

TEST(SchemaTableTest, SameNeedIsTheSameEntryAndAnotherSourceIsNot) {
  SchemaTable table;
  SchemaNeed other = Payload();
  other.source = 1;
  EXPECT_EQ(table.RefOf(Payload()), 1U);
  EXPECT_EQ(table.RefOf(other), 2U);
  EXPECT_EQ(table.RefOf(Payload()), 1U);
  EXPECT_EQ(table.wanted().size(), 0U);
  table.Use(1);
  table.Use(2);
  EXPECT_EQ(table.wanted().size(), 2U);
}

TEST(SchemaTableTest, WhatIsKnownIsNotRejectedAnyMore) {
  SchemaTable table;
  const SchemaTable::Ref ref = table.RefOf(Payload());
  table.Reject(ref, "no such subject");
  EXPECT_EQ(table.entry(ref).state, SchemaTable::State::kRejected);
  EXPECT_EQ(table.wanted().size(), 0U);
  table.Learn(ref, "frame", false);
  table.Reject(ref, "the subject was deleted");
  EXPECT_EQ(table.entry(ref).state, SchemaTable::State::kKnown);
  EXPECT_EQ(table.entry(ref).frame, "frame");
}

TEST(SchemaTableTest, ForgottenRejectionIsWantedOnceItIsNeededAgain) {
  SchemaTable table;
  const SchemaTable::Ref ref = table.RefOf(Payload());
  table.Reject(ref, "no");
  table.ForgetRejections();
  EXPECT_EQ(table.wanted().size(), 0U);
  EXPECT_EQ(table.Use(ref).state, SchemaTable::State::kUnknown);
  EXPECT_EQ(table.wanted().size(), 1U);
  table.Use(ref);
  EXPECT_EQ(table.wanted().size(), 1U);
}

using Ref = SchemaTable::Ref;
using State = SchemaTable::State;

SchemaNeed Need(const std::string& subject) {
  return {Framing::kPayload, SchemaType::kJson, subject, "", 0};
}

class SchemaTableRoomTest : public ::testing::Test {
 protected:
  // New ones until there are too many; the last.
  Ref Crowd(bool known) {
    Ref ref = 0;
    while (!table_.crowded()) {
      ref = table_.RefOf(Need("invented-" + std::to_string(invented_++)));
      if (known) {
        table_.Use(ref);
        table_.Learn(ref, "frame", true);
      }
    }
    return ref;
  }

  SchemaTable table_;
  int invented_ = 0;
};

TEST_F(SchemaTableRoomTest, ForgetsWhatIsNotKnownAndNotInUse) {
  const Ref known = table_.RefOf(Need("known"));
  table_.Learn(known, "frame", true);
  const Ref waits = table_.RefOf(Need("waits"));
  table_.Use(waits);
  Crowd(false);
  const std::uint64_t epoch = table_.epoch();
  table_.ForgetUnused({0, waits});
  EXPECT_NE(table_.epoch(), epoch);
  EXPECT_EQ(table_.wanted().size(), 1U);
  EXPECT_EQ(table_.RefOf(Need("known")), known);
  EXPECT_EQ(table_.entry(known).frame, "frame");
  EXPECT_EQ(table_.RefOf(Need("waits")), waits);
  EXPECT_LT(table_.bytes(), 2'000U);
  const Ref highest = table_.size();
  EXPECT_LE(table_.RefOf(Need("new")), highest) << "a place that is free";
  EXPECT_EQ(table_.wanted().size(), 1U) << "not before it is used";
}

TEST_F(SchemaTableRoomTest, KeepsOfWhatIsKnownTheHalfThatWasUsedLast) {
  const Ref first = table_.RefOf(Need("first"));
  table_.Learn(first, "frame", true);
  const Ref last = Crowd(true);
  table_.Use(first);
  table_.ForgetUnused({});
  EXPECT_LE(table_.bytes(), SchemaTable::kBytesMax / 2);
  EXPECT_GT(table_.bytes(), SchemaTable::kBytesMax / 3);
  EXPECT_EQ(table_.entry(first).state, State::kKnown);
  EXPECT_EQ(table_.entry(last).state, State::kKnown);
  EXPECT_EQ(table_.entry(first + 1).state, State::kUnknown);
  EXPECT_EQ(table_.wanted().size(), 0U);
}

TEST_F(SchemaTableRoomTest, KeepsWhatIsInUseHoweverLongAgoItWasUsed) {
  const Ref first = table_.RefOf(Need("first"));
  table_.Learn(first, "frame", true);
  Crowd(true);
  table_.ForgetUnused({first});
  EXPECT_EQ(table_.entry(first).state, State::kKnown);
  EXPECT_EQ(table_.RefOf(Need("first")), first);
}

// Else it would be looked through at each step.
TEST_F(SchemaTableRoomTest, IsCrowdedAgainOnlyWhenAsMuchWasAddedAsIsInUse) {
  Crowd(false);
  std::vector<Ref> in_use;
  for (Ref ref = 1; ref <= table_.size(); ++ref) {
    in_use.push_back(ref);
  }
  table_.ForgetUnused(in_use);
  EXPECT_FALSE(table_.crowded());
  Crowd(false);
  EXPECT_GT(table_.bytes(), 2 * SchemaTable::kBytesMax);
}

}  // namespace
}  // namespace walpost::envelope
