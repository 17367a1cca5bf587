#include "registry/proto_outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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
enum Kind { option allow_alias = true; NONE = 0; message_ = 1; }
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
  const auto outline = OutlineOf(kAll);
  EXPECT_TRUE(outline);
  return outline ? FindIndexes(*outline, record).value_or(std::vector<std::int32_t>{-1})
                 : std::vector<std::int32_t>{-2};
}

TEST(ProtoOutlineTest, MessagesAreFoundWhereTheCompilerCountsThem) {
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

TEST(ProtoOutlineTest, WhatIsNoMessageIsNotFound) {
  for (const char* record : {"", "First", "shop.v1.", "shop.v1.First.", "shop.v1.Commented",
                             "shop.v1.Kind", "shop.v1.Orders", "shop.v1.X", "shop.v1.First."}) {
    EXPECT_THAT(Path(record), ElementsAre(-1)) << record;
  }
}

TEST(ProtoOutlineTest, WithoutAPackageTheNameIsShort) {
  EXPECT_THAT(*FindIndexes(*OutlineOf("message A {} message B {}"), "B"), ElementsAre(1));
}

TEST(ProtoOutlineTest, OtherTextIsNone) {
  for (const char* text :
       {"{\"type\": \"record\"}", "message {", "message A", "message A {", "message A { x",
        "message A {}}", "package ;;(", "option a = \"unfinished", "/* unfinished",
        "message A { = }", "<html>", "enum A", "option a = ];"}) {
    EXPECT_FALSE(OutlineOf(text)) << text;
  }
  std::string deep;
  for (int i = 0; i <= kOutlineDepthMax; ++i) {
    deep += "message A {";
  }
  EXPECT_FALSE(OutlineOf(deep + std::string(kOutlineDepthMax + 1, '}')));
}

}  // namespace
}  // namespace walpost::registry
