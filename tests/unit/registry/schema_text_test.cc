#include "registry/schema_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "registry/descriptors.h"

namespace walpost::registry {
namespace {

using ::testing::ElementsAre;

// What protobuf's own compiler gives for it: `protoc --decode` of the descriptor set.
constexpr char kAll[] = R"(
// message Commented {}
/* message Commented { */
syntax = "proto2";
package shop . v1;
import public "a{.proto";
option (own.option) = { message: "message X {" list: [1, 2] };
enum Kind { option allow_alias = true; NONE = 0; NIL = 0; message_ = 1; }
message First {
  option deprecated = true;
  reserved 5, 7 to 9;
  reserved "message";
  extensions 100 to max;
  optional .shop.v1.Kind kind = 1 [default = NONE, (own.o) = { message: ["}"] }];
  map<string, Inner> labels = 2;
  oneof choice {
    string message_text = 3;
    group Pick = 4 { optional int32 x = 1; }
  };
  message Inner {
    enum Kind { A = 0; }
    message Innermost {}
  }
  repeated group Result = 6 [deprecated = true] { message Within {} }
  message message { optional string map = 1; }
  extend Second { optional group InExtend = 101 {} }
  message Last {};
}
service Orders { rpc Place(First) returns (stream Second) { option idempotency_level = NO_SIDE_EFFECTS; } }
message Second { extensions 100 to 200; }
;
extend First { optional group AtTop = 100 { } }
message Third {}
)";

std::vector<std::int32_t> Path(const std::string& record) {
  const auto file = ReadSchema(kAll);
  EXPECT_TRUE(file);
  return file ? FindIndexes(*file, record).value_or(std::vector<std::int32_t>{-1})
              : std::vector<std::int32_t>{-2};
}

TEST(FindIndexesTest, MessagesAreFoundWhereTheCompilerCountsThem) {
  EXPECT_THAT(Path("shop.v1.First"), ElementsAre(0));
  EXPECT_THAT(Path("shop.v1.Second"), ElementsAre(1));
  EXPECT_THAT(Path("shop.v1.AtTop"), ElementsAre(2));
  EXPECT_THAT(Path("shop.v1.Third"), ElementsAre(3));
  EXPECT_THAT(Path("shop.v1.First.Pick"), ElementsAre(0, 1)) << "behind that of the map";
  EXPECT_THAT(Path("shop.v1.First.Inner"), ElementsAre(0, 2));
  EXPECT_THAT(Path("shop.v1.First.Inner.Innermost"), ElementsAre(0, 2, 0));
  EXPECT_THAT(Path("shop.v1.First.Result"), ElementsAre(0, 3));
  EXPECT_THAT(Path("shop.v1.First.Result.Within"), ElementsAre(0, 3, 0));
  EXPECT_THAT(Path("shop.v1.First.message"), ElementsAre(0, 4));
  EXPECT_THAT(Path("shop.v1.First.InExtend"), ElementsAre(0, 5));
  EXPECT_THAT(Path("shop.v1.First.Last"), ElementsAre(0, 6));
}

TEST(FindIndexesTest, WhatIsNoMessageIsNotFound) {
  for (const char* record : {"", "First", "shop.v1.", "shop.v1.First.", "shop.v1.Commented",
                             "shop.v1.Kind", "shop.v1.Orders", "shop.v1.X", "shop.v1.First."}) {
    EXPECT_THAT(Path(record), ElementsAre(-1)) << record;
  }
}

TEST(FindIndexesTest, WithoutAPackageTheNameIsShort) {
  EXPECT_THAT(*FindIndexes(*ReadSchema("message A {} message B {}"), "B"), ElementsAre(1));
}

TEST(FindIndexesTest, OtherTextIsNone) {
  for (const char* text :
       {"{\"type\": \"record\"}", "message {", "message A", "message A {", "message A { x",
        "message A {}}", "package ;;(", "option a = \"unfinished", "/* unfinished",
        "message A { = }", "<html>", "enum A", "option a = ];"}) {
    EXPECT_FALSE(ReadSchema(text)) << text;
  }
  std::string deep;
  for (int i = 0; i <= kSchemaDepthMax; ++i) {
    deep += "message A {";
  }
  EXPECT_FALSE(ReadSchema(deep + std::string(kSchemaDepthMax + 1, '}')));
}

TEST(ReadSchemaTest, TextAndBase64AreBothRead) {
  const auto shop = Descriptors::Read(WALPOST_SHOP_SET);
  const google::protobuf::FileDescriptor& ours = *shop->Find("shop.v1.OrderPlaced")->file();
  for (const std::string& text : {ours.DebugString(), AsBase64(ours)}) {
    const auto file = ReadSchema(text);
    ASSERT_TRUE(file) << text;
    EXPECT_THAT(*FindIndexes(*file, "shop.v1.OrderShipped.Parcel"), ElementsAre(1, 0));
  }
  EXPECT_FALSE(ReadSchema("{\"type\": \"record\"}"));
}

constexpr char kByHand[] = R"(// of the shop
syntax = "proto3";
import "shop/v1/money.proto"; import "google/protobuf/timestamp.proto";
package shop.v1;
message OrderShipped {
  string order_id = 1;   /* of the order */
  repeated Parcel parcels = 2;;
  message Parcel { string number = 1; };
}
message OrderPlaced {
  string order_id = 1;
  Money total = 2;
  google.protobuf.Timestamp placed_at = 3;
  map<string, string> labels = 4;
}
)";

bool SameAsShop(const std::string& text) {
  const auto shop = Descriptors::Read(WALPOST_SHOP_SET);
  const auto file = ReadSchema(text);
  return file && SameDeclarations(*shop->Find("shop.v1.OrderPlaced")->file(), *file);
}

std::string With(const std::string& old, const std::string& now) {
  std::string text = kByHand;
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), now);
}

TEST(SameDeclarationsTest, OrderCommentsAndShortNamesDoNotCount) {
  EXPECT_TRUE(SameAsShop(kByHand));
  EXPECT_TRUE(SameAsShop(With("Money total", "v1.Money total")));
  EXPECT_TRUE(SameAsShop(With("Money total", ".shop.v1.Money total")));
  EXPECT_TRUE(SameAsShop(With("Parcel parcels", "OrderShipped.Parcel parcels")));
}

TEST(SameDeclarationsTest, EverythingElseDoes) {
  const std::pair<const char*, const char*> changes[] = {
      {"proto3", "proto2"},
      {"shop.v1;", "shop.v2;"},
      {"order_id = 1", "order_id = 5"},
      {"order_id = 1", "id = 1"},
      {"string order_id", "bytes order_id"},
      {"string order_id", "optional string order_id"},
      {"Money total", "oney total"},
      {"Money total", ".Money total"},
      {"repeated ", ""},
      {"map<string, string>", "map<string, bytes>"},
      {"  string order_id = 1;   /*", "/*"},
      {"message OrderPlaced {", "message Other {} message OrderPlaced {"},
      {"message OrderPlaced {", "option java_package = \"a\"; message OrderPlaced {"},
      {"};\n", "\n"}};
  for (const auto& [old, now] : changes) {
    EXPECT_FALSE(SameAsShop(With(old, now))) << now;
  }
  for (const char* text : {"", "}", "{", "message", "/*"}) {
    EXPECT_FALSE(SameAsShop(text)) << text;
  }
}

}  // namespace
}  // namespace walpost::registry
