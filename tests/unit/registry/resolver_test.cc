#include "registry/resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "registry/schema_text.h"
#include "unit/registry/mock_registry.h"

namespace walpost::registry {
namespace {

using envelope::Framing;
using envelope::FramingOptions;
using envelope::SchemaNeed;
using envelope::SchemaType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kLookUp[] = "POST /subjects/orders-shop.v1.OrderShipped";
constexpr char kLookUpMoney[] = "POST /subjects/shop/v1/money.proto";
constexpr char kLatest[] = "GET /subjects/orders-shop.v1.OrderShipped/versions/latest";

class ResolverTest : public ::testing::Test {
 protected:
  // One for all: it takes its time to end.
  static void SetUpTestSuite() { shared_ = std::make_unique<MockRegistry>(); }

  static void TearDownTestSuite() { shared_.reset(); }

  ResolverTest() {
    mock_.Forget();
    framing_.framing = Framing::kPayload;
    framing_.descriptor_set = WALPOST_SHOP_SET;
  }

  Resolver& resolver() {
    if (resolver_ == nullptr) {
      RegistryOptions options;
      options.urls = {mock_.url()};
      auto created = Resolver::Create(options, {framing_});
      EXPECT_TRUE(created.ok()) << created.status();
      resolver_ = *std::move(created);
    }
    return *resolver_;
  }

  static SchemaNeed Shipped() {
    return {Framing::kPayload, SchemaType::kProtobuf, "orders-shop.v1.OrderShipped",
            "shop.v1.OrderShipped", 0};
  }

  static std::string Found(int id, int version = 1) {
    return Json({{"id", id}, {"version", version}}).dump();
  }

  // As the newest version of a subject.
  static std::string Newest(const std::string& type, const std::string& text) {
    return Json({{"id", 9}, {"version", 4}, {"schemaType", type}, {"schema", text}}).dump();
  }

  std::string Shop() const {
    return Descriptors::Read(WALPOST_SHOP_SET)->Find("shop.v1.OrderShipped")->file()->DebugString();
  }

  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    for (const MockRegistry::Request& request : mock_.requests()) {
      lines.push_back(request.line.substr(0, request.line.find('?')));
    }
    return lines;
  }

  std::string WhyNot(const SchemaNeed& need) {
    const auto schema = resolver().Resolve(need);
    EXPECT_FALSE(schema.ok() || absl::IsUnavailable(schema.status())) << schema.status();
    return std::string(schema.status().message());
  }

  static inline std::unique_ptr<MockRegistry> shared_;
  MockRegistry& mock_ = *shared_;
  FramingOptions framing_;
  std::shared_ptr<Resolver> resolver_;
};

TEST_F(ResolverTest, ExactSchemaIsLookedUpWithItsImportsAsReferences) {
  mock_.Answer(kLookUpMoney, 200, Found(3, 2));
  mock_.Answer(kLookUp, 200, Found(7));
  const auto schema = resolver().Resolve(Shipped());
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_EQ(schema->id, 7);
  EXPECT_THAT(schema->indexes, ElementsAre(1));
  EXPECT_TRUE(schema->fixed);
  EXPECT_THAT(Lines(), ElementsAre(kLookUpMoney, kLookUp)) << "leaf first";
  const Json body = Json::parse(mock_.requests()[1].body);
  EXPECT_EQ(body["references"],
            Json::parse(R"([{"name": "shop/v1/money.proto", "subject": "shop/v1/money.proto",
                             "version": 2}])"))
      << "every registry knows google/protobuf/timestamp.proto";
  EXPECT_EQ(body["schema"].get<std::string>().find('{'), std::string::npos) << "base64";
  EXPECT_TRUE(ReadSchema(body["schema"]));
}

TEST_F(ResolverTest, NothingIsRegisteredUnlessThatIsAskedFor) {
  mock_.Answer(kLookUpMoney, 200, Found(3));
  EXPECT_THAT(WhyNot(Shipped()), HasSubstr("subject 'orders-shop.v1.OrderShipped' does not have "
                                           "shop/v1/order.proto as it is declared here: register"));
  for (const std::string& line : Lines()) {
    EXPECT_THAT(line, ::testing::Not(HasSubstr("POST /subjects/orders-shop.v1.OrderShipped/v")));
  }
}

TEST_F(ResolverTest, AutoRegisterRegistersWhatIsMissingLeavesFirst) {
  framing_.auto_register = true;
  mock_.Answer("POST /subjects/shop/v1/money.proto/versions", 200, R"({"id": 3})");
  mock_.Answer("POST /subjects/orders-shop.v1.OrderShipped/versions", 200, R"({"id": 7})");
  const auto schema = resolver().Resolve(Shipped());
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_EQ(schema->id, 7);
}

TEST_F(ResolverTest, RegistrationThatIsNotCompatibleDecides) {
  framing_.auto_register = true;
  mock_.Answer(kLookUpMoney, 200, Found(3));
  mock_.Answer("POST /subjects/orders-shop.v1.OrderShipped/versions", 409,
               R"({"error_code": 409, "message": "field 2 was removed"})");
  EXPECT_THAT(WhyNot(Shipped()), HasSubstr("cannot be registered as subject "
                                           "'orders-shop.v1.OrderShipped': the Schema Registry "
                                           "says: field 2 was removed (409)"));
}

TEST_F(ResolverTest, RegistryThatTakesNoBase64GetsText) {
  mock_.Answer(kLookUpMoney, 200, Found(3));
  mock_.Answer(kLookUp, 422, R"({"error_code": 42201, "message": "not a schema"})");
  mock_.AnswerTo(kLookUp, "message OrderShipped", 200, Found(7));
  EXPECT_EQ(resolver().Resolve(Shipped())->id, 7);
}

TEST_F(ResolverTest, NewestVersionThatDeclaresTheSameIsTheOneAndItsOrderCounts) {
  std::string theirs = "// by hand\n" + Shop();
  const std::size_t second = theirs.find("message OrderShipped");
  const std::size_t first = theirs.find("message OrderPlaced");
  theirs = theirs.substr(0, first) + theirs.substr(second) + theirs.substr(first, second - first);
  mock_.Answer(kLookUpMoney, 200, Found(3));
  mock_.Answer(kLatest, 200, Newest("PROTOBUF", theirs));
  const auto schema = resolver().Resolve(Shipped());
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_EQ(schema->id, 9);
  EXPECT_THAT(schema->indexes, ElementsAre(0));
}

TEST_F(ResolverTest, NewestVersionThatDeclaresOtherThingsIsNot) {
  mock_.Answer(kLookUpMoney, 200, Found(3));
  mock_.Answer(kLatest, 200, Newest("PROTOBUF", "syntax = \"proto3\"; package shop.v1;"));
  EXPECT_THAT(WhyNot(Shipped()), HasSubstr("does not have shop/v1/order.proto"));
}

TEST_F(ResolverTest, MessageThatTheDescriptorsDoNotHaveDecides) {
  SchemaNeed need = Shipped();
  need.record = "shop.v1.Unknown";
  EXPECT_THAT(WhyNot(need), HasSubstr("declares no message shop.v1.Unknown"));
}

TEST_F(ResolverTest, EnvelopeNeedsNoDescriptorSet) {
  mock_.Answer("POST /subjects/orders-walpost.v1.Envelope", 200, Found(5));
  SchemaNeed need{Framing::kPayload, SchemaType::kProtobuf, "orders-walpost.v1.Envelope",
                  "walpost.v1.Envelope"};
  const auto schema = resolver().Resolve(need);
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_EQ(schema->id, 5);
  EXPECT_THAT(schema->indexes, ElementsAre(0));
}

TEST_F(ResolverTest, WithoutDescriptorsTheNewestVersionShowsThePlaceOfTheMessage) {
  framing_.descriptor_set = "";
  mock_.Answer(kLatest, 200, Newest("PROTOBUF", Shop()));
  const auto schema = resolver().Resolve(Shipped());
  ASSERT_TRUE(schema.ok()) << schema.status();
  EXPECT_EQ(schema->id, 9);
  EXPECT_THAT(schema->indexes, ElementsAre(1));
  EXPECT_FALSE(schema->fixed);
}

TEST_F(ResolverTest, NewestVersionThatDoesNotFitDecides) {
  framing_.descriptor_set = "";
  EXPECT_THAT(WhyNot(Shipped()), HasSubstr("subject 'orders-shop.v1.OrderShipped': register its"));
  mock_.Answer(kLatest, 200, Newest("AVRO", "{}"));
  EXPECT_THAT(WhyNot(Shipped()), HasSubstr("holds schemas of type AVRO, and `type` says PROTOBUF"));
  mock_.Forget();
  mock_.Answer(kLatest, 200, Newest("PROTOBUF", "syntax = \"proto3\";"));
  EXPECT_THAT(WhyNot(Shipped()), HasSubstr("declares no message shop.v1.OrderShipped"));
  mock_.Forget();
  mock_.Answer(kLatest, 200, Newest("PROTOBUF", "mess"));
  EXPECT_THAT(WhyNot(Shipped()), HasSubstr("cannot be parsed to look for message"));
}

// It may have its messages in another order, and a wrong place has readers read another message.
TEST_F(ResolverTest, SchemaThatIsTooLargeToBeReadDecides) {
  const std::string large = Shop() + std::string(kSchemaBytesMax, ' ');
  mock_.Answer(kLookUpMoney, 200, Found(3, 2));
  mock_.Answer(kLookUp, 200, Newest("PROTOBUF", large));
  EXPECT_THAT(WhyNot(Shipped()), HasSubstr("shop.v1.OrderShipped"));
  resolver_ = nullptr;
  framing_.descriptor_set = "";
  mock_.Answer(kLatest, 200, Newest("PROTOBUF", large));
  EXPECT_THAT(WhyNot(Shipped()), HasSubstr("shop.v1.OrderShipped"));
}

TEST_F(ResolverTest, OtherTypesTakeTheNewestVersion) {
  mock_.Answer(kLatest, 200, Newest("JSON", "{}"));
  SchemaNeed need = Shipped();
  need.type = SchemaType::kJson;
  EXPECT_EQ(resolver().Resolve(need)->id, 9);
}

TEST_F(ResolverTest, GuidIsAskedForWhereTheAnswerHasNone) {
  mock_.Answer(kLookUpMoney, 200, Found(3));
  mock_.Answer(kLookUp, 200, Found(7));
  mock_.Answer("GET /schemas/ids/7", 200, R"({"guid": "01020304-0506-0708-090a-0b0c0d0e0f10"})");
  SchemaNeed need = Shipped();
  need.framing = Framing::kHeader;
  EXPECT_EQ((*resolver().Resolve(need)->guid)[0], 1);
}

TEST_F(ResolverTest, TroubleAnywhereDecidesNothing) {
  mock_.Answer(kLookUpMoney, 200, Found(3));
  for (const char* line : {kLookUpMoney, kLookUp, kLatest}) {
    mock_.Forget();
    mock_.Answer(kLookUpMoney, 200, Found(3));
    mock_.AnswerTo(line, line == kLatest ? "" : "schema", 503, "");
    EXPECT_TRUE(absl::IsUnavailable(resolver().Resolve(Shipped()).status())) << line;
    EXPECT_TRUE(absl::IsUnavailable(resolver().Examine(Shipped()).status())) << line;
  }
}

TEST_F(ResolverTest, TroubleWithOneSubjectIsDistinguishedFromTroubleWithTheRegistry) {
  mock_.Answer(kLookUpMoney, 200, Found(3));
  mock_.Answer("GET /schemas/types", 200, "[]");
  const std::pair<int, const char*> answers[] = {
      {403, R"({"error_code": 40301, "message": "no"})"},
      {400, "<html>bad</html>"},
      {404, R"({"error_code": 404, "message": "HTTP 404 Not Found"})"},
      {500, ""}};
  for (const auto& [code, body] : answers) {
    mock_.AnswerTo(kLookUp, "schema", code, body);
    const absl::Status status = resolver().Resolve(Shipped()).status();
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("orders-shop.v1.OrderShipped"));
  }
  mock_.Forget();
  mock_.AnswerAll(401, "");
  EXPECT_TRUE(absl::IsUnavailable(resolver().Resolve(Shipped()).status()));
}

TEST_F(ResolverTest, SubjectThatIsAPathIsNotAskedFor) {
  for (const char* subject : {"..", ".", "../config", "orders/.."}) {
    SchemaNeed need = Shipped();
    need.subject = subject;
    EXPECT_TRUE(absl::IsOutOfRange(resolver().Resolve(need).status())) << subject;
    need.type = SchemaType::kJson;  // no imports, which are asked for before
    const auto found = resolver().Examine(need);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->state, Finding::State::kRejected) << subject;
  }
  EXPECT_THAT(Lines(), ElementsAre());
}

TEST_F(ResolverTest, ExaminationSaysWhatWouldBecomeOfIt) {
  constexpr char kCompare[] =
      "POST /compatibility/subjects/orders-shop.v1.OrderShipped/versions/latest";
  EXPECT_EQ(resolver().Examine(Shipped())->state, Finding::State::kRejected) << "no money.proto";
  mock_.Answer(kLookUpMoney, 200, Found(3));
  EXPECT_EQ(resolver().Examine(Shipped())->state, Finding::State::kNewSubject);
  mock_.Answer(kCompare, 200, R"({"is_compatible": true})");
  EXPECT_EQ(resolver().Examine(Shipped())->state, Finding::State::kCompatible);
  mock_.AnswerTo(kCompare, "schema", 200, R"({"is_compatible": false, "messages": ["why"]})");
  const auto rejected = resolver().Examine(Shipped());
  EXPECT_EQ(rejected->state, Finding::State::kRejected);
  EXPECT_THAT(rejected->text, HasSubstr("not compatible with the newest version: why"));
  mock_.Answer(kLookUp, 200, Found(7));
  EXPECT_EQ(resolver().Examine(Shipped())->state, Finding::State::kRegistered);
  for (const std::string& line : Lines()) {
    EXPECT_EQ(line.find("OrderShipped/versions "), std::string::npos);
    EXPECT_NE(line, "POST /subjects/orders-shop.v1.OrderShipped/versions") << "read-only";
  }
}

TEST_F(ResolverTest, DescriptorSetThatCannotBeReadIsAnError) {
  framing_.descriptor_set = "/no/such/file.pb";
  EXPECT_EQ(Resolver::Create({}, {framing_}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace walpost::registry
