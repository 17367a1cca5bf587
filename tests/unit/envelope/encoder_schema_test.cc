// What a record needs of a Schema Registry, and the room for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <string>

#include "envelope/encoder.h"
#include "outbox/event.h"

namespace walpost::envelope {
namespace {

using outbox::Event;
using outbox::Header;
using ::testing::HasSubstr;

class EncoderSchemaTest : public ::testing::Test {
 protected:
  EncoderSchemaTest() {
    options_.format = ValueFormat::kRaw;
    options_.framing.framing = Framing::kPayload;
    event_.id = "id-1";
    event_.key = "42";
    event_.payload = "payload";
    event_.schema_name = "shop.v1.Order";
    event_.topic = "orders";
    event_.schema = "outbox";
    event_.table = "events";
  }

  absl::StatusOr<Record> Encode() {
    if (!encoder_) {
      encoder_.emplace(options_, "shop", &table_, 3);
    }
    Record record;
    const absl::Status status =
        encoder_->Encode(event_, Position{}, TransactionInfo{}, &arena_, &record);
    return status.ok() ? absl::StatusOr<Record>(record) : status;
  }

  void ExpectUndeliverable(std::string_view reason, const std::string& text) {
    const absl::Status status = Encode().status();
    EXPECT_EQ(outbox::ReasonCodeOf(status), reason) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  EncoderOptions options_;
  Event event_;
  SchemaTable table_;
  base::ChunkArena arena_;
  std::optional<Encoder> encoder_;
};

TEST_F(EncoderSchemaTest, RecordNamesItsSchemaAndTakesAnyFrame) {
  for (const ValueFormat format :
       {ValueFormat::kRaw, ValueFormat::kEnvelope, ValueFormat::kCloudEvents}) {
    options_.format = format;
    event_.type = "Placed";
    encoder_.reset();
    const Record record = *Encode();
    ASSERT_NE(record.schema, 0U);
    const std::string value(*record.value);
    const std::size_t headers = record.headers.size();
    const std::string id(record.headers[0].value);
    const std::string frame(kSchemaRoom, '\xee');
    EXPECT_EQ(Framed(record, Framing::kPayload, frame).value, frame + value);
    EXPECT_EQ(Framed(record, Framing::kHeader, frame).headers.size(), headers + 1);
    EXPECT_EQ(record.value, value);
    EXPECT_EQ(record.key, "42");
    EXPECT_EQ(record.headers[0].value, id);
  }
}

TEST_F(EncoderSchemaTest, SubjectIsOfTopicAndRecordByDefault) {
  const SchemaNeed need = table_.entry(Encode()->schema).need;
  EXPECT_EQ(need, (SchemaNeed{Framing::kPayload, SchemaType::kProtobuf, "orders-shop.v1.Order",
                              "shop.v1.Order", 3}));
  event_.topic = "returns";
  EXPECT_EQ(table_.entry(Encode()->schema).need.subject, "returns-shop.v1.Order");
  event_.topic = "orders";
  EXPECT_EQ(Encode()->schema, 1U) << "the same entry as before";
}

TEST_F(EncoderSchemaTest, EnvelopeIsItsOwnRecordWhateverThePayloadIs) {
  options_.format = ValueFormat::kEnvelope;
  event_.schema_name = "";
  EXPECT_EQ(table_.entry(Encode()->schema).need.subject, "orders-walpost.v1.Envelope");
}

TEST_F(EncoderSchemaTest, TypeUrlNamesTheMessageToo) {
  event_.schema_name = "type.googleapis.com/shop.v1.Order";
  EXPECT_EQ(table_.entry(Encode()->schema).need.record, "shop.v1.Order");
}

TEST_F(EncoderSchemaTest, TombstoneNeedsNothing) {
  event_.payload.reset();
  EXPECT_EQ(Encode()->schema, 0U);
  EXPECT_EQ(table_.size(), 0U);
}

TEST_F(EncoderSchemaTest, RecordWithoutAUsableNameIsUndeliverableWhereItIsNeeded) {
  event_.schema_name = "";
  ExpectUndeliverable("schema_name_invalid", "its schema_name is empty");
  event_.schema_name = "two words";
  ExpectUndeliverable("schema_name_invalid", "its schema_name is no such name");
  const std::string endless(kSchemaNamesMax, 'x');
  event_.schema_name = endless;
  ExpectUndeliverable("schema_name_invalid", "its schema_name is too long");
}

TEST_F(EncoderSchemaTest, NameIsNotNeededWhereTheTopicNamesTheSubjectOfAnotherType) {
  options_.framing.type = SchemaType::kJson;
  options_.framing.subject = "{topic}-value";
  event_.schema_name = "";
  EXPECT_EQ(table_.entry(Encode()->schema).need.subject, "orders-value");
}

// The subject may leave the topic out, so that many topics need one schema. A sanitizer's own
// allocator counts nothing here.
TEST_F(EncoderSchemaTest, WhatWasInventedIsForgotten) {
  options_.framing.subject = "{record}";
  Encode().IgnoreError();
  const std::size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 50'000; ++i) {
    const std::string topic = "orders" + std::to_string(i);
    event_.topic = topic;
    const absl::StatusOr<Record> record = Encode();
    ASSERT_TRUE(record.ok());
    ASSERT_EQ(record->schema, 1U);
    arena_.Release(record->block);
  }
  EXPECT_LT(mallinfo2().uordblks, before + 3 * 1024 * 1024);
}

TEST_F(EncoderSchemaTest, SchemaIsFoundAgainAfterTheTableForgotIt) {
  const SchemaTable::Ref orders = Encode()->schema;
  table_.ForgetUnused({});
  event_.topic = "returns";
  EXPECT_EQ(Encode()->schema, orders) << "its place is free";
  event_.topic = "orders";
  EXPECT_EQ(table_.entry(Encode()->schema).need.subject, "orders-shop.v1.Order");
}

TEST_F(EncoderSchemaTest, RowThatBringsTheHeaderItselfIsUndeliverable) {
  const std::vector<Header> headers = {{"__value_schema_id", "x"}};
  event_.headers = headers;
  ExpectUndeliverable("header_invalid",
                      "brings a header '__value_schema_id', which walpost writes itself");
}

}  // namespace
}  // namespace walpost::envelope
