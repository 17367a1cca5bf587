// One row of every supported type as a real server sent it, in text and in binary form: both must
// come out the same.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "outbox/column_value.h"
#include "outbox/table_mapper.h"
#include "pgoutput/decoder.h"
#include "support/golden_messages.h"

namespace walpost::outbox {
namespace {

using pgoutput::Value;

constexpr char kUuid[] = "3f2504e0-4f89-11d3-9a0c-0305e82c3301";

// The capture up to the first row of table every_type, see tests/unit/pgoutput/golden/capture.
class GoldenRowTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const std::string& payload : payloads_) {
      ASSERT_TRUE(decoder_.Decode(payload, &message_).ok());
      if (const auto* type = std::get_if<pgoutput::Type>(&message_)) {
        types_.push_back(*type);
      } else if (const auto* relation = std::get_if<pgoutput::Relation>(&message_)) {
        relation_ = *relation;
      } else if (const auto* insert = std::get_if<pgoutput::Insert>(&message_)) {
        values_.assign(insert->values.begin(), insert->values.end());
        return;
      }
    }
    FAIL() << "no row";
  }

  // The column's value as text, or as bytes for a bytea.
  std::string At(const std::string& column) {
    for (std::size_t i = 0; i < relation_.columns.size(); ++i) {
      if (relation_.columns[i].name == column) {
        std::string scratch;
        return std::string(
            ToBytes(values_[i], relation_.columns[i].type_oid, &scratch).value_or("(rejected)"));
      }
    }
    return "(no such column)";
  }

  const std::vector<std::string> payloads_ = testing::GoldenMessages(GetParam());
  pgoutput::Decoder decoder_;
  pgoutput::Message message_;
  std::vector<pgoutput::Type> types_;
  pgoutput::Relation relation_;
  std::vector<Value> values_;
};

TEST_P(GoldenRowTest, EveryTypeIsReadAsWritten) {
  EXPECT_EQ(At("id"), kUuid);
  EXPECT_EQ(At("yes"), "true");
  EXPECT_EQ(At("no"), "false");
  EXPECT_EQ(At("raw"), std::string("\0\xff\\x", 4));
  EXPECT_EQ(At("label"), "a name");
  EXPECT_EQ(At("big"), "-9223372036854775808");
  EXPECT_EQ(At("small"), "-32768");
  EXPECT_EQ(At("number"), "2147483647");
  EXPECT_EQ(At("words"), "grüße");
  EXPECT_EQ(At("document"), "{\"b\": 1,  \"a\": [true, null]}");
  EXPECT_EQ(At("padded"), "ab    ");
  EXPECT_EQ(At("bounded"), "varying");
  EXPECT_EQ(At("tree"), "{\"a\": [true, null], \"b\": 1}");
  EXPECT_EQ(At("feeling"), "wild");
  EXPECT_EQ(At("brief"), "brief");
}

TEST_P(GoldenRowTest, TimeIsTheSameInstant) {
  EXPECT_EQ(relation_.columns[12].type_oid, type_oid::kTimestamptz);
  EXPECT_EQ(ToTime(values_[12]).value(), base::FromPostgresMicros(762'546'599'123'456));
}

// A domain arrives under an OID of its own, in the form of the type below it.
TEST_P(GoldenRowTest, DomainIsReadAsTheTypeBelowIt) {
  TableOptions options;
  options.schema = "public";
  options.table = "every_type";
  options.columns.id = {"alias"};       // a domain over uuid
  options.columns.type = {"feeling"};   // an enum
  options.columns.key = {"brief"};      // a domain over varchar
  options.columns.payload = {"paper"};  // a domain over jsonb
  options.columns.headers = {"paper"};
  options.topic = "{feeling}";
  TableMapper mapper(options);
  for (const pgoutput::Type& type : types_) {
    mapper.Learn(type);
  }
  // An enum and a composite look alike in the stream.
  EXPECT_EQ(
      mapper.Bind(relation_).message(),
      "table public.every_type: column feeling is of type public.mood, but as type it must be "
      "text: change its type back, or map another column");
  for (const pgoutput::Column& column : relation_.columns) {
    if (column.name == "feeling") {
      mapper.SetTextTypes({column.type_oid});
    }
  }
  const absl::Status bound = mapper.Bind(relation_);
  ASSERT_TRUE(bound.ok()) << bound;
  Event event;
  const absl::Status status = mapper.Map(values_, &event);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(event.id, kUuid);
  EXPECT_EQ(event.type, "wild");
  EXPECT_EQ(event.key, "brief");
  EXPECT_EQ(event.payload, "{\"b\": 1}");
  ASSERT_EQ(event.headers.size(), 1U);
  EXPECT_EQ(event.headers[0].value, "1");
}

INSTANTIATE_TEST_SUITE_P(Captures, GoldenRowTest, ::testing::Values("v15-text", "v15-binary"),
                         [](const auto& param) {
                           std::string name = param.param;
                           name[name.find('-')] = '_';
                           return name;
                         });

}  // namespace
}  // namespace walpost::outbox
