#include "outbox/kept_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/dead_letter.h"
#include "outbox/column_value.h"
#include "outbox/options.h"
#include "support/pgoutput_bytes.h"

namespace walpost::outbox {
namespace {

using pgoutput::Relation;
using pgoutput::Value;
using testing::BinaryColumn;
using testing::NullColumn;
using testing::TextColumn;

constexpr pgoutput::RelationId kTable{16400};
constexpr std::uint32_t kEventId = 16390;   // CREATE DOMAIN event_id AS uuid
constexpr std::uint32_t kKind = 16391;      // CREATE TYPE kind AS ENUM
constexpr std::uint32_t kPair = 16392;      // CREATE TYPE pair AS (...)
constexpr std::uint32_t kSomeTime = 16393;  // CREATE DOMAIN some_time AS timestamp

Relation Table() {
  Relation relation;
  relation.id = kTable;
  relation.schema = "public";
  relation.name = "outbox";
  relation.columns = {{"id", kEventId, -1, true},
                      {"aggregatetype", kKind, -1, false},
                      {"aggregateid", type_oid::kVarchar, 24, false},
                      {"payload", type_oid::kBytea, -1, false},
                      {"type", type_oid::kText, -1, false},
                      {"pair", kPair, -1, false},
                      {"some_time", kSomeTime, -1, false}};
  return relation;
}

std::string Row(const std::string& payload = "x") {
  return testing::InsertBytes(
      kTable, {BinaryColumn(std::string(16, '\x11')), BinaryColumn("order"), TextColumn("42"),
               BinaryColumn(payload), NullColumn(), TextColumn("(1,2)"),
               BinaryColumn(testing::BigEndian(7, 8))});
}

class KeptRowTest : public ::testing::Test {
 protected:
  KeptRowTest() : mapper_(*PresetOptions("debezium")) {
    mapper_.Learn({kEventId, "", "uuid"});
    mapper_.Learn({kSomeTime, "", "timestamp"});
    mapper_.SetTextTypes({kKind});
    EXPECT_TRUE(mapper_.Bind(relation_).ok());
  }

  std::optional<std::string> Keep(const std::string& insert) {
    return KeepRow({&mapper_, &relation_, insert});
  }

  const Relation relation_ = Table();
  TableMapper mapper_;
};

TEST_F(KeptRowTest, ReadAgainItHasTheNamesAndValuesOfTheStream) {
  const std::string bytes = Keep(Row("\xff payload")).value();
  const auto kept = KeptRow::Parse(bytes);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->relation().schema, "public");
  EXPECT_EQ(kept->relation().name, "outbox");
  ASSERT_EQ(kept->values().size(), relation_.columns.size());
  for (std::size_t i = 0; i < relation_.columns.size(); ++i) {
    EXPECT_EQ(kept->relation().columns[i].name, relation_.columns[i].name);
    EXPECT_EQ(kept->relation().columns[i].type_modifier, relation_.columns[i].type_modifier);
  }
  EXPECT_EQ(kept->values()[2].kind, Value::Kind::kText);
  EXPECT_EQ(kept->values()[2].bytes, "42");
  EXPECT_EQ(kept->values()[3].kind, Value::Kind::kBinary);
  EXPECT_EQ(kept->values()[3].bytes, "\xff payload");
  EXPECT_EQ(kept->values()[4].kind, Value::Kind::kNull);
}

// Later nobody knows what the types of then were.
TEST_F(KeptRowTest, TypesMadeByUsersAreKeptAsWhatTheyAreReadAs) {
  const std::string bytes = Keep(Row()).value();
  const auto kept = KeptRow::Parse(bytes);
  ASSERT_TRUE(kept.ok()) << kept.status();
  const std::vector<pgoutput::Column>& columns = kept->relation().columns;
  EXPECT_EQ(columns[0].type_oid, type_oid::kUuid);
  EXPECT_EQ(columns[1].type_oid, type_oid::kText);
  EXPECT_EQ(columns[5].type_oid, kPair) << "not read";
  EXPECT_EQ(columns[6].type_oid, kSomeTime) << "a placed column of a domain over it is not read";
}

TEST_F(KeptRowTest, AnotherMapperMakesTheSameEventOfIt) {
  const std::string bytes = Keep(Row()).value();
  const auto kept = KeptRow::Parse(bytes);
  ASSERT_TRUE(kept.ok()) << kept.status();
  TableMapper later(*PresetOptions("debezium"));
  const absl::Status bound = later.Bind(kept->relation());
  ASSERT_TRUE(bound.ok()) << bound;
  Event event;
  const absl::Status mapped = later.Map(kept->values(), &event);
  ASSERT_TRUE(mapped.ok()) << mapped;
  EXPECT_EQ(event.id, "11111111-1111-1111-1111-111111111111");
  EXPECT_EQ(event.aggregate_type, "order");
  EXPECT_EQ(event.key, "42");
  EXPECT_EQ(event.payload, "x");
}

TEST_F(KeptRowTest, LargerThanADeadLetterMayBeItIsNotKept) {
  constexpr std::size_t kMax = base::DeadLetter::kRecordBytesMax;
  const std::size_t rest = Keep(Row())->size() - 1;
  EXPECT_EQ(Keep(Row(std::string(kMax - rest, 'x')))->size(), kMax);
  EXPECT_FALSE(Keep(Row(std::string(kMax - rest + 1, 'x'))));
  EXPECT_FALSE(Keep(Row(std::string(kMax + 1, 'x'))));
}

// Who may write the table of dead letters may write anything there.
TEST_F(KeptRowTest, WhatIsNoKeptRowIsRejected) {
  const std::string bytes = Keep(Row()).value();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(KeptRow::Parse(bytes.substr(0, size)).status())) << size;
  }
  EXPECT_TRUE(absl::IsDataLoss(KeptRow::Parse(bytes + "x").status()));
  EXPECT_TRUE(absl::IsDataLoss(KeptRow::Parse("an envelope").status()));
  Relation other = Table();
  other.columns.pop_back();
  const std::string row = Row();
  EXPECT_TRUE(absl::IsDataLoss(KeptRow::Parse(KeepRow({&mapper_, &other, row}).value()).status()));
  other = Table();
  other.id = {16401};
  EXPECT_TRUE(absl::IsDataLoss(KeptRow::Parse(KeepRow({&mapper_, &other, row}).value()).status()));
}

}  // namespace
}  // namespace walpost::outbox
