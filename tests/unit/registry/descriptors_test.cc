#include "registry/descriptors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/escaping.h"

namespace walpost::registry {
namespace {

using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string WriteFile(const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "/descriptors_test.pb";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string WhyNot(const std::string& path) {
  const auto read = Descriptors::Read(path);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(read.status().message());
}

TEST(DescriptorsTest, MessagesAreFoundWithTheirPlaces) {
  const auto shop = Descriptors::Read(WALPOST_SHOP_SET);
  ASSERT_TRUE(shop.ok()) << shop.status();
  EXPECT_THAT(shop->Records(), ElementsAre("shop.v1.Money", "shop.v1.OrderPlaced",
                                           "shop.v1.OrderShipped", "shop.v1.OrderShipped.Parcel"));
  EXPECT_THAT(IndexesOf(*shop->Find("shop.v1.OrderPlaced")), ElementsAre(0));
  EXPECT_THAT(IndexesOf(*shop->Find("shop.v1.OrderShipped.Parcel")), ElementsAre(1, 0));
  EXPECT_EQ(shop->Find("shop.v1.Nothing"), nullptr);
}

TEST(DescriptorsTest, FileThatCannotBeUsedIsNamedWithHowToMakeIt) {
  EXPECT_THAT(WhyNot("/no/such/file.pb"),
              HasSubstr("/no/such/file.pb cannot be read, or is empty: No such file"));
  EXPECT_THAT(WhyNot(WriteFile("syntax = \"proto3\";")),
              HasSubstr("make it with `protoc --include_imports"));
  FileDescriptorSet without_imports;
  FileDescriptorProto* const file = without_imports.add_file();
  file->set_name("a.proto");
  file->add_dependency("b.proto");
  EXPECT_THAT(WhyNot(WriteFile(without_imports.SerializeAsString())),
              HasSubstr("does not hold together: a.proto: Import \"b.proto\""));
}

// Serializers that look the same file up, or have registered it, send these bytes.
TEST(DescriptorsTest, FileIsSentAsGeneratedCodeHasIt) {
  FileDescriptorSet set;
  FileDescriptorProto* const file = set.add_file();
  file->set_name("a.proto");
  auto* const field = file->add_message_type()->add_field();
  file->mutable_message_type(0)->set_name("A");
  field->set_name("order_id_2x");
  field->set_number(1);
  field->set_label(google::protobuf::FieldDescriptorProto::LABEL_OPTIONAL);
  field->set_type(google::protobuf::FieldDescriptorProto::TYPE_STRING);
  const std::string plain = file->SerializeAsString();
  field->set_json_name("orderId2x");
  const auto read = Descriptors::Read(WriteFile(set.SerializeAsString()));
  std::string sent;
  ASSERT_TRUE(absl::Base64Unescape(AsBase64(*read->Find("A")->file()), &sent));
  EXPECT_EQ(sent, plain);
  field->set_json_name("its own");
  const auto named = Descriptors::Read(WriteFile(set.SerializeAsString()));
  EXPECT_NE(named->Find("A")->file()->DebugString().find("its own"), std::string::npos);
}

}  // namespace
}  // namespace walpost::registry
