#include "registry/schema_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "fuzz/bounds.h"

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

std::string Repeated(const std::string& text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

// As much of it as a schema may have.
std::string Filled(const std::string& head, const std::string& text) {
  return head + Repeated(text, (kSchemaBytesMax - head.size() - 1) / text.size());
}

// What recurses by as little as 16 bytes for each 4 of a text does not fit.
void OnASmallStack(std::function<void()> job) {
  constexpr std::size_t kStackBytes = std::size_t{1} << 20U;
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread{};
  const auto run = [](void* of) -> void* {
    (*static_cast<std::function<void()>*>(of))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &job), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST(ReadSchemaTest, DeepTextIsRejectedWhereverItsBracesStand) {
  constexpr std::size_t kTimes = 10'000;
  const std::string closed(kTimes, '}');
  const std::string texts[] = {Repeated("message A{/*}*/", kTimes) + closed,
                               Repeated("message A{//}\n", kTimes) + closed,
                               Repeated("message A{option a=\"}\";", kTimes) + closed,
                               Repeated("message A{option a='}';", kTimes) + closed,
                               closed + Repeated("message A{", kTimes) + closed,
                               Repeated("message A{{", kTimes),
                               Repeated("{", kTimes)};
  for (const std::string& text : texts) {
    ASSERT_LE(text.size(), kSchemaBytesMax);
    OnASmallStack([&text] { EXPECT_FALSE(ReadSchema(text)) << text.substr(0, 40); });
  }
}

// Behind an error protobuf's parser loses count of the braces.
TEST(ReadSchemaTest, TextIsRejectedAtItsFirstError) {
  for (const char* text : {"{{}}", "x {{}}", "message A{x {{}}", "{}} ", "{{}{}}"}) {
    const std::string filled = Filled("x {", text);
    OnASmallStack([&filled] { EXPECT_FALSE(ReadSchema(filled)) << filled.substr(0, 40); });
  }
}

TEST(ReadSchemaTest, BracesInCommentsAndStringsDoNotCount) {
  const std::string braces(kSchemaDepthMax + 1, '{');
  for (const std::string& text :
       {"/*" + braces + "*/ message A {}", "//" + braces + "\nmessage A {}",
        "option a = \"" + braces + "\"; message A {}"}) {
    EXPECT_TRUE(ReadSchema(text)) << text;
  }
}

TEST(ReadSchemaTest, MessagesAsDeepAsAllowedAreRead) {
  const auto nested = [](int depth) {
    return Repeated("message A {", depth) + std::string(depth, '}');
  };
  EXPECT_TRUE(ReadSchema(nested(kSchemaDepthMax)));
  EXPECT_FALSE(ReadSchema(nested(kSchemaDepthMax + 1)));
}

TEST(ReadSchemaTest, TextIsReadUpToItsLimit) {
  const std::string message = "message A {}";
  const auto padded = [&message](std::size_t size) {
    return message + std::string(size - message.size(), ' ');
  };
  EXPECT_TRUE(ReadSchema(padded(kSchemaBytesMax)));
  EXPECT_FALSE(ReadSchema(padded(kSchemaBytesMax + 1)));
}

TEST(ReadSchemaTest, PlacesInTheTextAreNotKept) {
  EXPECT_FALSE(ReadSchema("message A {}")->has_source_code_info());
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

// Imports what custom options need, as with most rules for validation.
class OptionsTest : public ::testing::Test {
 protected:
  OptionsTest() {
    google::protobuf::FileDescriptorProto options;
    google::protobuf::FileDescriptorProto::descriptor()->file()->CopyTo(&options);
    pool_.BuildFile(options);
    ours_ = Build(R"(option (o) = { m: { m < i: 1 > } };)");
  }

  static std::string Declared(const std::string& option) {
    return R"(syntax = "proto2"; import "google/protobuf/descriptor.proto";
              message M { optional M m = 1; optional int32 i = 2; optional int32 j = 3; }
              extend google.protobuf.FileOptions { optional M o = 50000; } )" +
           option;
  }

  const google::protobuf::FileDescriptor* Build(const std::string& option) {
    google::protobuf::FileDescriptorProto file = *ReadSchema(Declared(option));
    file.set_name("options.proto");
    return pool_.BuildFile(file);
  }

  bool Same(const std::string& option) const {
    const auto theirs = ReadSchema(Declared(option));
    EXPECT_TRUE(theirs);
    return theirs && SameDeclarations(*ours_, *theirs);
  }

  google::protobuf::DescriptorPool pool_;
  const google::protobuf::FileDescriptor* ours_ = nullptr;
};

TEST_F(OptionsTest, OptionsCountForWhatTheyMean) {
  EXPECT_TRUE(Same("option (o) = { m { m { i: 1 } } };"));
  EXPECT_TRUE(Same("option (o).m.m.i = 1;"));
  EXPECT_FALSE(Same("option (o).m.m.i = 2;"));
  EXPECT_FALSE(Same(""));
}

TEST_F(OptionsTest, DeepOptionsAreNotTheSame) {
  constexpr std::size_t kTimes = 20'000;
  const std::string path = Repeated(".m", kTimes);
  const std::string options[] = {
      "option (o) = {" + Repeated("m<", kTimes) + Repeated(">", kTimes) + "};",
      "option (o)" + path + ".i = 1; option (o)" + path + ".j = 1;"};
  for (const std::string& option : options) {
    OnASmallStack([&] { EXPECT_FALSE(Same(option)) << option.substr(0, 40); });
  }
}

TEST_F(OptionsTest, DeepOptionOfASerializedFileIsNotTheSame) {
  google::protobuf::FileDescriptorProto theirs = *ReadSchema(Declared("option (o) = { i: 1 };"));
  theirs.mutable_options()->mutable_uninterpreted_option(0)->set_aggregate_value(
      Repeated("m{", 40'000) + std::string(40'000, '}'));
  const auto read = ReadSchema(absl::Base64Escape(theirs.SerializeAsString()));
  ASSERT_TRUE(read);
  OnASmallStack([&] { EXPECT_FALSE(SameDeclarations(*ours_, *read)); });
}

// protobuf compares ranges with each other, and says what it finds of each pair.
TEST_F(OptionsTest, LargeSchemaCostsLittle) {
  const std::string texts[] = {Filled("message A{reserved 1", ",1") + ";}",
                               Filled("message A{", "reserved 1;") + "}",
                               Filled("enum E{A=0;reserved 5", ",5") + ";}",
                               Filled("syntax=\"proto3\";message A{", "A a=1;") + "}",
                               Filled("", "option(a)=b;"),
                               Filled("", "import \"a\";"),
                               Filled("package a", ".a") + ";",
                               Filled(Declared(""), "option(o).i=1;"),
                               absl::Base64Escape(Repeated(std::string("\x22\x00", 2), 98'000))};
  for (const std::string& text : texts) {
    const fuzz::Bounds bounds;
    const auto theirs = ReadSchema(text);
    EXPECT_FALSE(theirs && SameDeclarations(*ours_, *theirs)) << text.substr(0, 40);
    bounds.Check();
  }
}

using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using ::testing::AllOf;
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
