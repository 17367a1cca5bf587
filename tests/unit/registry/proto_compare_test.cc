#include "registry/proto_compare.h"

#include <gtest/gtest.h>

#include <string>

#include "registry/descriptors.h"

namespace walpost::registry {
namespace {

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
  return SameDeclarations(shop->Find("shop.v1.OrderPlaced")->file()->DebugString(), text);
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
