#include "pgoutput/decoder.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "support/pgoutput_bytes.h"
#include "unit/pgoutput/sample_messages.h"

namespace walpost::pgoutput {
namespace {

using base::Lsn;
using base::WallTime;
using testing::BinaryColumn;
using testing::NullColumn;
using testing::TextColumn;
using testing::UnchangedToastColumn;

constexpr WallTime kNoon = base::FromPostgresMicros(762'523'200'123'456);  // 2024-02-29 12:00
constexpr RelationId kTable{16400};

class DecoderTest : public ::testing::Test {
 protected:
  // The decoded message, which must be a T. Lives until the next call.
  template <typename T>
  const T& Decode(const std::string& payload) {
    payload_ = payload;
    const absl::Status status = decoder_.Decode(payload_, &message_);
    EXPECT_TRUE(status.ok()) << status;
    static const T kNone;
    const T* found = status.ok() ? std::get_if<T>(&message_) : nullptr;
    EXPECT_NE(found, nullptr) << "message of another type, index " << message_.index();
    return found != nullptr ? *found : kNone;
  }

  Decoder decoder_;
  std::string payload_;
  Message message_;
};

TEST_F(DecoderTest, BeginHoldsCommitPositionTimeAndXid) {
  const Begin& begin =
      Decode<Begin>(testing::BeginBytes(Lsn(0x16B374D848), base::Xid{0xFFFFFFFE}, kNoon));
  EXPECT_EQ(begin.commit_lsn, Lsn(0x16B374D848));
  EXPECT_EQ(begin.commit_time, kNoon);
  EXPECT_EQ(begin.xid, base::Xid{0xFFFFFFFE});
}

TEST_F(DecoderTest, CommitDistinguishesItsEndFromItsStart) {
  const Commit& commit = Decode<Commit>(testing::CommitBytes(Lsn(0x100), Lsn(0x130), kNoon));
  EXPECT_EQ(commit.commit_lsn, Lsn(0x100));
  EXPECT_EQ(commit.end_lsn, Lsn(0x130));
  EXPECT_EQ(commit.commit_time, kNoon);
}

TEST_F(DecoderTest, OriginHoldsPositionAndName) {
  const Origin& origin = Decode<Origin>(testing::OriginBytes(Lsn(0xABCDEF), "elsewhere"));
  EXPECT_EQ(origin.commit_lsn, Lsn(0xABCDEF));
  EXPECT_EQ(origin.name, "elsewhere");
}

TEST_F(DecoderTest, RelationHoldsEveryColumn) {
  const Relation& relation = Decode<Relation>(testing::RelationBytes(SampleRelation()));
  EXPECT_EQ(relation.id, kTable);
  EXPECT_EQ(relation.schema, "outbox");
  EXPECT_EQ(relation.name, "events");
  EXPECT_EQ(relation.replica_identity, 'd');
  ASSERT_EQ(relation.columns.size(), 3U);
  EXPECT_EQ(relation.columns[0].name, "id");
  EXPECT_EQ(relation.columns[0].type_oid, 2950U);
  EXPECT_EQ(relation.columns[0].type_modifier, -1);
  EXPECT_TRUE(relation.columns[0].part_of_key);
  EXPECT_EQ(relation.columns[1].name, "note");
  EXPECT_EQ(relation.columns[1].type_oid, 1043U);
  EXPECT_EQ(relation.columns[1].type_modifier, 24);
  EXPECT_FALSE(relation.columns[1].part_of_key);
}

TEST_F(DecoderTest, RelationOutlivesItsPayload) {
  Relation kept = Decode<Relation>(testing::RelationBytes(SampleRelation()));
  payload_.assign(payload_.size(), 'x');
  Decode<Begin>(testing::BeginBytes(Lsn(1)));
  EXPECT_EQ(kept.columns[2].name, "raw");
}

TEST_F(DecoderTest, EveryReplicaIdentityIsKnown) {
  for (const char identity : {'d', 'n', 'f', 'i'}) {
    Relation relation = SampleRelation();
    relation.replica_identity = identity;
    EXPECT_EQ(Decode<Relation>(testing::RelationBytes(relation)).replica_identity, identity);
  }
}

TEST_F(DecoderTest, TypeHoldsOidAndName) {
  const Type& type = Decode<Type>(testing::TypeBytes(16390, "public", "mood"));
  EXPECT_EQ(type.oid, 16390U);
  EXPECT_EQ(type.schema, "public");
  EXPECT_EQ(type.name, "mood");
}

TEST_F(DecoderTest, InsertDistinguishesTextBinaryNullAndEmpty) {
  const Insert& insert = Decode<Insert>(
      testing::InsertBytes(kTable, {TextColumn("text"), BinaryColumn(std::string("\0\x01", 2)),
                                    NullColumn(), TextColumn(""), BinaryColumn("")}));
  EXPECT_EQ(insert.relation, kTable);
  ASSERT_EQ(insert.values.size(), 5U);
  EXPECT_EQ(insert.values[0].kind, Value::Kind::kText);
  EXPECT_EQ(insert.values[0].bytes, "text");
  EXPECT_EQ(insert.values[1].kind, Value::Kind::kBinary);
  EXPECT_EQ(insert.values[1].bytes, std::string("\0\x01", 2));
  EXPECT_EQ(insert.values[2].kind, Value::Kind::kNull);
  EXPECT_EQ(insert.values[3].kind, Value::Kind::kText);
  EXPECT_EQ(insert.values[3].bytes, "");
  EXPECT_EQ(insert.values[4].kind, Value::Kind::kBinary);
}

TEST_F(DecoderTest, InsertKeepsNothingOfTheOneBefore) {
  Decode<Insert>(testing::InsertBytes(kTable, {TextColumn("one"), TextColumn("two")}));
  const Insert& insert = Decode<Insert>(testing::InsertBytes(kTable, {NullColumn()}));
  ASSERT_EQ(insert.values.size(), 1U);
  EXPECT_EQ(insert.values[0].kind, Value::Kind::kNull);
  EXPECT_EQ(insert.values[0].bytes, "");
}

TEST_F(DecoderTest, InsertViewsThePayloadWithoutCopying) {
  const Insert& insert = Decode<Insert>(testing::InsertBytes(kTable, {TextColumn("text")}));
  EXPECT_EQ(insert.values[0].bytes.data(), payload_.data() + payload_.size() - 4);
}

TEST_F(DecoderTest, MostColumnsATableCanHaveAreRead) {
  const testing::Tuple row(Decoder::kColumnsMax, NullColumn());
  EXPECT_EQ(Decode<Insert>(testing::InsertBytes(kTable, row)).values.size(), 1600U);
  Relation relation = SampleRelation();
  relation.columns.resize(Decoder::kColumnsMax);
  EXPECT_EQ(Decode<Relation>(testing::RelationBytes(relation)).columns.size(), 1600U);
}

// Failure 41.
TEST_F(DecoderTest, UpdateIsReadWithAndWithoutAnOldTuple) {
  const testing::Tuple row = {TextColumn("a"), UnchangedToastColumn(), NullColumn()};
  EXPECT_EQ(Decode<Update>(testing::UpdateBytes(kTable, row)).relation, kTable);
  EXPECT_EQ(Decode<Update>(testing::UpdateBytes(kTable, row, 'K', row)).relation, kTable);
  EXPECT_EQ(Decode<Update>(testing::UpdateBytes(kTable, row, 'O', row)).relation, kTable);
}

TEST_F(DecoderTest, DeleteIsReadWithKeyOrOldTuple) {
  EXPECT_EQ(Decode<Delete>(testing::DeleteBytes(kTable, 'K', {TextColumn("a")})).relation, kTable);
  EXPECT_EQ(Decode<Delete>(testing::DeleteBytes(kTable, 'O', {BinaryColumn("a")})).relation,
            kTable);
}

TEST_F(DecoderTest, TruncateHoldsItsTablesAndBothOptions) {
  for (const bool cascade : {false, true}) {
    for (const bool restart_identity : {false, true}) {
      const Truncate& truncate = Decode<Truncate>(
          testing::TruncateBytes({kTable, RelationId{9}}, cascade, restart_identity));
      ASSERT_EQ(truncate.relations.size(), 2U);
      EXPECT_EQ(truncate.relations[0], kTable);
      EXPECT_EQ(truncate.relations[1], RelationId{9});
      EXPECT_EQ(truncate.cascade, cascade);
      EXPECT_EQ(truncate.restart_identity, restart_identity);
    }
  }
}

TEST_F(DecoderTest, LogicalMessageDistinguishesInsideFromOutsideATransaction) {
  for (const bool transactional : {false, true}) {
    const LogicalMessage& message = Decode<LogicalMessage>(testing::LogicalMessageBytes(
        transactional, Lsn(0x90), "orders", std::string("\0content", 8)));
    EXPECT_EQ(message.transactional, transactional);
    EXPECT_EQ(message.lsn, Lsn(0x90));
    EXPECT_EQ(message.prefix, "orders");
    EXPECT_EQ(message.content, std::string("\0content", 8));
  }
}

}  // namespace
}  // namespace walpost::pgoutput
