#include "pgoutput/decoder.h"

#include <gtest/gtest.h>

#include <limits>
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

using testing::KeepaliveFrame;
using testing::WireWriter;
using testing::XLogDataFrame;

absl::StatusCode CodeOf(std::string_view frame) { return DecodeFrame(frame).status().code(); }

TEST(FrameTest, XLogDataIsItsPayloadWithoutTheHeader) {
  const std::string bytes = XLogDataFrame("payload", Lsn(0x100), Lsn(0x200), kNoon);
  const absl::StatusOr<Frame> frame = DecodeFrame(bytes);
  ASSERT_TRUE(frame.ok()) << frame.status();
  const XLogData& data = std::get<XLogData>(*frame);
  EXPECT_EQ(data.payload, "payload");
  EXPECT_EQ(data.payload.data(), bytes.data() + 25) << "the payload was copied";
}

TEST(FrameTest, XLogDataMayBeEmpty) {
  const std::string bytes = XLogDataFrame("");
  EXPECT_EQ(std::get<XLogData>(DecodeFrame(bytes).value()).payload, "");
}

TEST(FrameTest, KeepaliveHoldsPositionTimeAndWhetherToReply) {
  for (const bool reply_requested : {false, true}) {
    const std::string bytes = KeepaliveFrame(Lsn(0x16B374D848), reply_requested, kNoon);
    const absl::StatusOr<Frame> frame = DecodeFrame(bytes);
    ASSERT_TRUE(frame.ok()) << frame.status();
    const Keepalive& keepalive = std::get<Keepalive>(*frame);
    EXPECT_EQ(keepalive.wal_end, Lsn(0x16B374D848));
    EXPECT_EQ(keepalive.server_time, kNoon);
    EXPECT_EQ(keepalive.reply_requested, reply_requested);
  }
}

// Failure 29.
TEST(FrameTest, TimeFarOutsideTheCalendarIsNoError) {
  for (const std::int64_t micros :
       {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    const std::string bytes =
        WireWriter().Tag('k').U64(1).U64(static_cast<std::uint64_t>(micros)).U8(1).bytes();
    const absl::StatusOr<Frame> frame = DecodeFrame(bytes);
    ASSERT_TRUE(frame.ok()) << frame.status();
    EXPECT_TRUE(std::get<Keepalive>(*frame).reply_requested);
    EXPECT_EQ(base::ToPostgresMicros(std::get<Keepalive>(*frame).server_time), micros);
  }
}

TEST(FrameTest, EveryTruncationOfAHeaderIsDataLoss) {
  for (const std::string& frame :
       {XLogDataFrame(""), KeepaliveFrame(Lsn(0x100), /*reply_requested=*/true)}) {
    for (std::size_t size = 0; size < frame.size(); ++size) {
      EXPECT_EQ(CodeOf(frame.substr(0, size)), absl::StatusCode::kDataLoss)
          << frame[0] << " cut to " << size;
    }
  }
}

TEST(FrameTest, LongKeepaliveIsDataLoss) {
  EXPECT_EQ(CodeOf(KeepaliveFrame(Lsn(0x100)) + '\0'), absl::StatusCode::kDataLoss);
}

TEST(FrameTest, UnknownTagIsDataLossAndNamedWithTheSize) {
  for (int tag = 0; tag < 256; ++tag) {
    if (tag == 'w' || tag == 'k') {
      continue;
    }
    const std::string bytes = static_cast<char>(tag) + std::string(40, '\0');
    EXPECT_EQ(CodeOf(bytes), absl::StatusCode::kDataLoss) << tag;
  }
  EXPECT_EQ(DecodeFrame("z12").status().message(),
            "replication stream: unknown frame 0x7a of 3 bytes");
}

TEST(StandbyStatusTest, IsTheManualsThirtyFourBytes) {
  StandbyStatus status;
  status.write = Lsn(0x300);
  status.flush = Lsn(0x200);
  status.apply = Lsn(0x100);
  status.client_time = kNoon;
  for (const bool reply_requested : {false, true}) {
    status.reply_requested = reply_requested;
    const std::string bytes = EncodeStandbyStatus(status);
    EXPECT_EQ(bytes.size(), 34U);
    EXPECT_EQ(bytes, WireWriter()
                         .Tag('r')
                         .U64(0x300)
                         .U64(0x200)
                         .U64(0x100)
                         .U64(762'523'200'123'456)
                         .U8(reply_requested ? 1 : 0)
                         .bytes());
  }
}

TEST(StandbyStatusTest, TimeBeforeThePostgresEpochIsNegative) {
  StandbyStatus status;
  status.client_time = base::FromPostgresMicros(-1);
  EXPECT_EQ(EncodeStandbyStatus(status).substr(25, 8), std::string(8, '\xff'));
}

}  // namespace
}  // namespace walpost::pgoutput
