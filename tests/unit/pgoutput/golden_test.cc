// What real servers sent for the statements in golden/capture, in text and in binary form.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pgoutput/decoder.h"
#include "support/golden_messages.h"
#include "unit/pgoutput/encode_message.h"

namespace walpost::pgoutput {
namespace {

// Tags of all messages, one line per block of statements. A table is announced before its first
// row, and again after ALTER TABLE, TRUNCATE of others and a new origin.
constexpr char kTags[] =
    "BYYYYRIIC"  // every type; before it, the types that are not built in
    "BRIC"       // a row with a large value
    "BUUDC"      // it changes in place, changes its key, goes
    "BRIUDC"     // replica identity full
    "BRIRIC"     // replica identity by index, and nothing
    "BIRIC"      // a column is added inside a transaction
    "BRRTRTC"    // TRUNCATE
    "MBMC"       // the message outside a transaction overtakes the one inside
    "BORIC";     // replayed from an origin

class GoldenTest : public ::testing::TestWithParam<const char*> {
 protected:
  GoldenTest() : payloads_(testing::GoldenMessages(GetParam())) {}

  // The message at this index of kTags. Its views live until the next call.
  template <typename T>
  T At(std::size_t index) {
    const absl::Status status = decoder_.Decode(payloads_.at(index), &message_);
    EXPECT_TRUE(status.ok()) << status;
    return std::get<T>(message_);
  }

  const std::vector<std::string> payloads_;
  Decoder decoder_;
  Message message_;
};

TEST_P(GoldenTest, EveryMessageIsDecodedToItsLastByte) {
  std::string tags;
  for (const std::string& payload : payloads_) {
    const absl::Status status = decoder_.Decode(payload, &message_);
    ASSERT_TRUE(status.ok()) << status << ", message " << tags.size();
    EXPECT_EQ(EncodeMessage(message_).value_or(payload), payload) << "message " << tags.size();
    tags += payload[0];
  }
  EXPECT_EQ(tags, kTags);
}

TEST_P(GoldenTest, EveryTruncationIsDataLoss) {
  for (std::size_t i = 0; i < payloads_.size(); ++i) {
    for (std::size_t size = 0; size < payloads_[i].size(); ++size) {
      ASSERT_EQ(decoder_.Decode(payloads_[i].substr(0, size), &message_).code(),
                absl::StatusCode::kDataLoss)
          << "message " << i << " cut to " << size;
    }
  }
}

TEST_P(GoldenTest, CommitBelongsToItsBeginAndPositionsGrow) {
  Begin begin;
  base::Lsn last_end;
  int transactions = 0;
  for (const std::string& payload : payloads_) {
    ASSERT_TRUE(decoder_.Decode(payload, &message_).ok());
    if (const auto* found = std::get_if<Begin>(&message_)) {
      EXPECT_GE(found->commit_lsn, last_end);
      EXPECT_GT(found->xid, begin.xid);
      begin = *found;
    } else if (const auto* commit = std::get_if<Commit>(&message_)) {
      EXPECT_EQ(commit->commit_lsn, begin.commit_lsn);
      EXPECT_EQ(commit->commit_time, begin.commit_time);
      EXPECT_GT(commit->end_lsn, commit->commit_lsn);
      last_end = commit->end_lsn;
      ++transactions;
    }
  }
  EXPECT_EQ(transactions, 9);
}

TEST_P(GoldenTest, RelationNamesEveryColumnAndItsType) {
  const Relation relation = At<Relation>(5);
  EXPECT_EQ(relation.schema, "public");
  EXPECT_EQ(relation.name, "every_type");
  ASSERT_EQ(relation.columns.size(), 18U);
  EXPECT_EQ(relation.columns[0].name, "id");
  EXPECT_EQ(relation.columns[0].type_oid, 2950U);
  EXPECT_TRUE(relation.columns[0].part_of_key);
  EXPECT_EQ(relation.columns[11].name, "bounded");
  EXPECT_EQ(relation.columns[11].type_modifier, 20 + 4);
  EXPECT_FALSE(relation.columns[11].part_of_key);
}

// A domain is announced under its own OID with its base type's name; pg_catalog is sent empty.
TEST_P(GoldenTest, TypesThatAreNotBuiltInComeBeforeTheirRelation) {
  const Relation relation = At<Relation>(5);
  const std::pair<std::string, std::string> expected[] = {
      {"public", "mood"}, {"", "varchar"}, {"", "uuid"}, {"", "jsonb"}};
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    const Type type = At<Type>(1 + i);
    EXPECT_EQ(type.oid, relation.columns[14 + i].type_oid);
    EXPECT_EQ(type.schema, expected[i].first);
    EXPECT_EQ(type.name, expected[i].second);
  }
}

TEST_P(GoldenTest, RowHasAValueOrNullInEveryColumn) {
  const bool binary = std::string(GetParam()).find("binary") != std::string::npos;
  const Insert full = At<Insert>(6);
  ASSERT_EQ(full.values.size(), 18U);
  for (const Value& value : full.values) {
    EXPECT_EQ(value.kind, binary ? Value::Kind::kBinary : Value::Kind::kText);
  }
  EXPECT_EQ(full.values[8].bytes, "grüße");
  const Insert sparse = At<Insert>(7);
  ASSERT_EQ(sparse.values.size(), 18U);
  for (const Value& value : sparse.values.subspan(1)) {
    EXPECT_EQ(value.kind, Value::Kind::kNull);
  }
}

// Failure 38.
TEST_P(GoldenTest, RelationChangesBetweenTwoRowsOfOneTransaction) {
  EXPECT_EQ(At<Insert>(31).values.size(), 3U);
  const Relation changed = At<Relation>(32);
  ASSERT_EQ(changed.columns.size(), 4U);
  EXPECT_EQ(changed.columns[3].name, "extra");
  const Insert after = At<Insert>(33);
  EXPECT_EQ(after.relation, changed.id);
  EXPECT_EQ(after.values.size(), 4U);
}

TEST_P(GoldenTest, TruncateNamesItsTablesAndOptions) {
  const RelationId whole = At<Relation>(36).id;
  const RelationId indexed = At<Relation>(37).id;
  const RelationId counted = At<Relation>(39).id;
  const Truncate cascade = At<Truncate>(38);
  ASSERT_EQ(cascade.relations.size(), 2U);
  EXPECT_EQ(cascade.relations[0], whole);
  EXPECT_EQ(cascade.relations[1], indexed);
  EXPECT_TRUE(cascade.cascade);
  EXPECT_FALSE(cascade.restart_identity);
  const Truncate restart = At<Truncate>(40);
  ASSERT_EQ(restart.relations.size(), 1U);
  EXPECT_EQ(restart.relations[0], counted);
  EXPECT_FALSE(restart.cascade);
  EXPECT_TRUE(restart.restart_identity);
}

TEST_P(GoldenTest, LogicalMessagesAndOriginsAreRead) {
  const LogicalMessage outside = At<LogicalMessage>(42);
  EXPECT_FALSE(outside.transactional);
  EXPECT_EQ(outside.prefix, "orders");
  EXPECT_EQ(outside.content, "outside");
  const LogicalMessage inside = At<LogicalMessage>(44);
  EXPECT_TRUE(inside.transactional);
  EXPECT_EQ(inside.content, "inside");
  EXPECT_LT(inside.lsn, outside.lsn);
  const Origin origin = At<Origin>(47);
  EXPECT_EQ(origin.commit_lsn, base::Lsn(0xABCDEF));
  EXPECT_EQ(origin.name, "elsewhere");
  // The origin's time stands for the transaction's: 2024-02-29 12:00 UTC.
  EXPECT_EQ(At<Begin>(46).commit_time, base::FromPostgresMicros(762'523'200'000'000));
}

INSTANTIATE_TEST_SUITE_P(Captures, GoldenTest, ::testing::Values("v15-text", "v15-binary"),
                         [](const auto& param) {
                           std::string name = param.param;
                           name[name.find('-')] = '_';
                           return name;
                         });

}  // namespace
}  // namespace walpost::pgoutput
