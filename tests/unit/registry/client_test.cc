#include "registry/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "fuzz/bounds.h"
#include "unit/registry/mock_registry.h"

namespace walpost::registry {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class ClientTest : public ::testing::Test {
 protected:
  // One for all: it takes its time to end.
  static void SetUpTestSuite() { shared_ = std::make_unique<MockRegistry>(); }

  static void TearDownTestSuite() { shared_.reset(); }

  ClientTest() { mock_.Forget(); }

  Client client() {
    RegistryOptions options;
    options.urls = {mock_.url()};
    return Client(options);
  }

  absl::Status LookUpStatus(int code, const std::string& body) {
    mock_.Forget();
    mock_.AnswerAll(code, body);
    return client().LookUp("s", {"PROTOBUF", "text", {}}).status();
  }

  static inline std::unique_ptr<MockRegistry> shared_;
  MockRegistry& mock_ = *shared_;
};

TEST_F(ClientTest, LookUpSendsTheSchemaWithItsReferences) {
  mock_.Answer("POST /subjects/a/b", 200,
               R"({"subject": "a/b", "id": 7, "version": 3, "schema": "x", "schemaType": "PROTOBUF",
                   "guid": "01020304-0506-0708-090a-0b0c0d0e0fff"})");
  const auto found = client().LookUp("a/b", {"PROTOBUF", "text", {{"i.proto", "i", 2}}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->id, 7);
  EXPECT_EQ(found->version, 3);
  EXPECT_EQ((*found->guid)[15], 0xff);
  EXPECT_EQ(mock_.requests()[0].line, "POST /subjects/a/b?normalize=true");
  EXPECT_EQ(Json::parse(mock_.requests()[0].body),
            Json::parse(R"({"schemaType": "PROTOBUF", "schema": "text",
                            "references": [{"name": "i.proto", "subject": "i", "version": 2}]})"));
}

// The subject is a part of the URL, which servers and proxies may shorten.
TEST_F(ClientTest, SubjectThatIsAPathIsNotAskedFor) {
  mock_.AnswerAll(200, R"({"id": 5, "is_compatible": true})");
  for (const char* subject : {"..", ".", "../config", "orders/.."}) {
    const SchemaText schema{"JSON", "{}", {}};
    EXPECT_TRUE(absl::IsInvalidArgument(client().LookUp(subject, schema).status())) << subject;
    EXPECT_TRUE(absl::IsInvalidArgument(client().Latest(subject).status())) << subject;
    EXPECT_TRUE(absl::IsInvalidArgument(client().Register(subject, schema).status())) << subject;
    EXPECT_TRUE(absl::IsInvalidArgument(client().Compare(subject, schema).status())) << subject;
  }
  EXPECT_THAT(mock_.requests(), ::testing::IsEmpty());
  EXPECT_TRUE(client().Latest("..orders...v1").ok());
}

TEST_F(ClientTest, RegisterAndLatestAskWhereTheyShould) {
  mock_.AnswerAll(200, R"({"id": 5})");
  EXPECT_EQ(client().Register("s", {"JSON", "{}", {}})->id, 5);
  const auto latest = client().Latest("s");
  EXPECT_EQ(latest->schema.type, "AVRO") << "what is left out";
  EXPECT_EQ(latest->guid, std::nullopt);
  EXPECT_EQ(mock_.requests()[0].line, "POST /subjects/s/versions?normalize=true");
  EXPECT_EQ(mock_.requests()[1].line, "GET /subjects/s/versions/latest");
}

TEST_F(ClientTest, AnswersAboutASchemaAreDistinguishedFromTrouble) {
  EXPECT_TRUE(absl::IsNotFound(LookUpStatus(404, R"({"error_code": 40401, "message": "no"})")));
  EXPECT_TRUE(absl::IsNotFound(LookUpStatus(404, R"({"error_code": 40403, "message": "no"})")));
  EXPECT_TRUE(
      absl::IsFailedPrecondition(LookUpStatus(409, R"({"error_code": 409, "message": "no"})")));
  EXPECT_TRUE(
      absl::IsInvalidArgument(LookUpStatus(422, R"({"error_code": 42201, "message": "no"})")));
}

TEST_F(ClientTest, TroubleIsNeverAboutASchema) {
  const std::pair<int, const char*> answers[] = {
      {401, "{}"},
      {403, R"({"error_code": 40301, "message": "no"})"},
      {404, "<html>not here</html>"},
      {404, R"({"error_code": 404, "message": "HTTP 404 Not Found"})"},
      {200, "garbage"},
      {200, "[]"},
      {200, "{}"},
      {200, R"({"id": "7"})"},
      {200, R"({"id": -7})"},
      {200, R"({"id": 99999999999})"},
      {302, ""},
      {405, R"({"error_code": 405, "message": "no"})"},
      {429, R"({"error_code": 42901, "message": "slow down"})"},
      {500, R"({"error_code": 50001, "message": "store"})"},
      {409, "conflict"},
      {422, R"({"error_code": "42201"})"}};
  for (const auto& [code, body] : answers) {
    EXPECT_TRUE(absl::IsUnavailable(LookUpStatus(code, body))) << code << " " << body;
  }
}

// A tree of so many values takes much more memory than the text.
TEST_F(ClientTest, AnswerOfMoreValuesThanARegistrySendsIsTrouble) {
  std::string list = "[0";
  std::string objects = "[{}";
  std::string names = "{\"a\":0";
  while (list.size() < Http::kAnswerBytesMax - 10'000) {
    list += ",0";
    objects += ",{}";
    names += ",\"" + std::to_string(names.size()) + "\":0";
  }
  const std::string bodies[] = {
      std::string(Http::kAnswerBytesMax, '['), R"({"id": 7, "a": )" + list + "]}",
      R"({"id": 7, "a": )" + objects + "]}", R"({"id": 7, "a": )" + names + "}}"};
  for (const std::string& body : bodies) {
    for (const long code : {200L, 404L}) {
      const HttpAnswer answer{code, body, mock_.url()};
      const fuzz::Bounds bounds;
      const absl::Status status = RegisteredFrom(answer).status();
      bounds.Check();
      EXPECT_TRUE(absl::IsUnavailable(status)) << body.substr(0, 30);
      EXPECT_THAT(std::string(status.message()), HasSubstr("is no Schema Registry"));
    }
  }
}

TEST_F(ClientTest, AnswerThatIsNestedDeeperThanARegistrySendsIsTrouble) {
  const auto nested = [](std::size_t depth) {
    return R"({"id": 7, "a": )" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_TRUE(RegisteredFrom(HttpAnswer{200, nested(20), mock_.url()}).ok());
  EXPECT_TRUE(
      absl::IsUnavailable(RegisteredFrom(HttpAnswer{200, nested(1'000), mock_.url()}).status()));
}

TEST_F(ClientTest, AnswerWithALargeSchemaIsRead) {
  const Json body = {{"id", 7}, {"schemaType", "JSON"}, {"schema", std::string(4'000'000, '{')}};
  const auto registered = RegisteredFrom(HttpAnswer{200, body.dump(), mock_.url()});
  ASSERT_TRUE(registered.ok()) << registered.status();
  EXPECT_EQ(registered->schema.text.size(), 4'000'000U);
}

TEST_F(ClientTest, MissingRightSaysWhatToCorrect) {
  const absl::Status status = LookUpStatus(401, "");
  EXPECT_THAT(std::string(status.message()), HasSubstr("correct schema_registry.username"));
}

TEST_F(ClientTest, WordsOfTheRegistryAreShownButNotWithoutEnd) {
  const std::string text(10'000, 'x');
  const absl::Status status =
      LookUpStatus(422, Json({{"error_code", 42201}, {"message", text}}).dump());
  EXPECT_THAT(std::string(status.message()), HasSubstr("xxx"));
  EXPECT_LT(status.message().size(), 1'000U);
}

TEST_F(ClientTest, CompatibilityIsReportedWithItsReasons) {
  mock_.AnswerAll(200, R"({"is_compatible": false, "messages": ["field removed", "more", 7]})");
  const auto compared = client().Compare("s", {"PROTOBUF", "text", {}});
  EXPECT_FALSE(compared->compatible);
  EXPECT_EQ(compared->reasons, "field removed; more");
  EXPECT_EQ(mock_.requests()[0].line,
            "POST /compatibility/subjects/s/versions/latest?verbose=true&normalize=true");
}

TEST_F(ClientTest, GuidIsAskedForById) {
  mock_.Answer("GET /schemas/ids/7", 200, R"({"guid": "0102030405060708090A0b0c0d0e0f10"})");
  mock_.Answer("GET /schemas/ids/8", 200, R"({"schema": "x"})");
  mock_.Answer("GET /schemas/ids/9", 200, R"({"guid": "not-a-guid"})");
  EXPECT_EQ((**client().GuidOf(7))[9], 0x0a);
  EXPECT_EQ(*client().GuidOf(8), std::nullopt);
  EXPECT_EQ(*client().GuidOf(9), std::nullopt);
}

}  // namespace
}  // namespace walpost::registry
