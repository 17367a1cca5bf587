#include "registry/descriptors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/escaping.h"
#include "fuzz/bounds.h"

namespace walpost::registry {
namespace {

using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using ::testing::AllOf;
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
              AllOf(HasSubstr("/no/such/file.pb"), HasSubstr("No such file")));
  EXPECT_THAT(WhyNot(::testing::TempDir()), HasSubstr(::testing::TempDir()));
  EXPECT_THAT(WhyNot(WriteFile("")), HasSubstr("make it with `protoc --include_imports"));
  EXPECT_THAT(WhyNot(WriteFile("syntax = \"proto3\";")),
              HasSubstr("make it with `protoc --include_imports"));
  FileDescriptorSet without_imports;
  FileDescriptorProto* const file = without_imports.add_file();
  file->set_name("a.proto");
  file->add_dependency("b.proto");
  EXPECT_THAT(WhyNot(WriteFile(without_imports.SerializeAsString())),
              HasSubstr("does not hold together: a.proto: Import \"b.proto\""));
}

TEST(DescriptorsTest, DeviceWithoutAnEndIsRejected) {
  const fuzz::Bounds bounds;
  EXPECT_THAT(WhyNot("/dev/zero"), HasSubstr("/dev/zero"));
  bounds.Check();
}

// It would be waited for at the start, and by a reload.
TEST(DescriptorsTest, PipeThatNobodyWritesToIsRejected) {
  const std::string path =
      ::testing::TempDir() + "/descriptors_test.pipe-" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(WhyNot(path), HasSubstr(path));
  unlink(path.c_str());
}

TEST(DescriptorsTest, FileIsReadUpToItsLimit) {
  FileDescriptorSet set;
  set.add_file()->set_name("a.proto");
  std::string bytes = set.SerializeAsString();
  const auto padded = [&bytes](std::size_t size) {
    FileDescriptorSet with_unknown;
    with_unknown.ParseFromString(bytes);
    std::string padding(size - bytes.size() - 6, 'x');
    with_unknown.mutable_unknown_fields()->AddLengthDelimited(100, padding);
    return with_unknown.SerializeAsString();
  };
  EXPECT_EQ(padded(kDescriptorSetBytesMax).size(), kDescriptorSetBytesMax);
  EXPECT_TRUE(Descriptors::Read(WriteFile(padded(kDescriptorSetBytesMax))).ok());
  EXPECT_THAT(WhyNot(WriteFile(padded(kDescriptorSetBytesMax + 1))), HasSubstr("16777216 bytes"));
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
