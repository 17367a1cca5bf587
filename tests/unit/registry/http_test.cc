#include "registry/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unit/registry/mock_registry.h"

namespace walpost::registry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

RegistryOptions At(std::vector<std::string> urls) {
  RegistryOptions options;
  options.urls = std::move(urls);
  return options;
}

class HttpTest : public ::testing::Test {
 protected:
  // The same for all: they take their time to end.
  static void SetUpTestSuite() {
    first_ = std::make_unique<MockRegistry>();
    second_ = std::make_unique<MockRegistry>();
    dead_url_ = MockRegistry().url();
  }

  static void TearDownTestSuite() {
    first_.reset();
    second_.reset();
  }

  HttpTest() {
    mock_.Forget();
    other_.Forget();
  }

  static inline std::unique_ptr<MockRegistry> first_;
  static inline std::unique_ptr<MockRegistry> second_;
  static inline std::string dead_url_;  // nobody listens there any more
  MockRegistry& mock_ = *first_;
  MockRegistry& other_ = *second_;
};

TEST_F(HttpTest, AnswersAreGivenAsTheyAreAlsoErrors) {
  mock_.Answer("GET /a", 404, "text");
  Http http(At({mock_.url()}));
  const auto answer = http.Get("/a");
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->code, 404);
  EXPECT_EQ(answer->body, "text");
}

TEST_F(HttpTest, BodyIsPostedAndTheNextGetHasNone) {
  Http http(At({mock_.url()}));
  ASSERT_TRUE(http.Post("/a", "body").ok());
  ASSERT_TRUE(http.Get("/b").ok());
  ASSERT_THAT(mock_.requests(), SizeIs(2));
  EXPECT_EQ(mock_.requests()[0].line, "POST /a");
  EXPECT_EQ(mock_.requests()[0].body, "body");
  EXPECT_EQ(mock_.requests()[1].line, "GET /b");
  EXPECT_EQ(mock_.requests()[1].body, "");
}

TEST_F(HttpTest, NextUrlIsAskedWhereOneIsAwayOrFailsAndStaysTheFirst) {
  for (const int code : {500, 503, 429, 0}) {
    mock_.Forget();
    mock_.AnswerAll(code, "");
    other_.Forget();
    other_.AnswerAll(200, "{}");
    Http http(At({code == 0 ? dead_url_ : mock_.url(), other_.url()}));
    EXPECT_TRUE(http.Get("/a").ok()) << code;
    EXPECT_TRUE(http.Get("/b").ok()) << code;
    EXPECT_THAT(other_.requests(), SizeIs(2));
    EXPECT_THAT(mock_.requests(), SizeIs(code == 0 ? 0 : 1)) << "not asked first any more";
  }
}

TEST_F(HttpTest, RegistryThatNobodyCanReachIsReportedWithEachUrl) {
  mock_.AnswerAll(503, "");
  Http http(At({dead_url_, mock_.url()}));
  const absl::Status status = http.Get("/a").status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  const std::string text(status.message());
  EXPECT_THAT(text, HasSubstr("the Schema Registry at " + dead_url_ + " cannot be reached: "));
  EXPECT_THAT(text, HasSubstr("the Schema Registry at " + mock_.url() + " answers 503"));
}

TEST_F(HttpTest, UrlThatIsSecretIsInNoMessage) {
  mock_.AnswerAll(503, "");
  other_.AnswerAll(200, std::string(Http::kAnswerBytesMax + 1, 'x'));
  RegistryOptions options = At({dead_url_, mock_.url(), other_.url(), "http://no-host.invalid"});
  for (const std::string& url : options.urls) {
    options.secrets.push_back(url + "/");
  }
  const absl::Status status = Http(options).Get("/a").status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the Schema Registry at *** cannot be reached: "),
                    HasSubstr("the Schema Registry at *** answers 503"),
                    HasSubstr("the Schema Registry at *** answers with more than"),
                    Not(HasSubstr("127.0.0.1")), Not(HasSubstr("no-host"))));
  other_.AnswerAll(403, "");
  EXPECT_EQ(Http(options).Get("/a")->url, "***");
}

// It may be too short to be hidden by itself.
TEST_F(HttpTest, HostOfASecretUrlIsNotShownInWhatTheLibrarySays) {
  RegistryOptions options = At({"http://h.test"});
  options.secrets = options.urls;
  EXPECT_THAT(std::string(Http(options).Get("/a").status().message()), Not(HasSubstr("h.test")));
}

TEST_F(HttpTest, OtherAnswersAreNotAskedForTwice) {
  mock_.AnswerAll(422, "{}");
  Http http(At({mock_.url(), other_.url()}));
  EXPECT_EQ(http.Get("/a")->code, 422);
  EXPECT_THAT(other_.requests(), IsEmpty());
}

TEST_F(HttpTest, EndlessAnswerIsGivenUp) {
  mock_.AnswerAll(200, std::string(Http::kAnswerBytesMax + 1, 'x'));
  const absl::Status status = Http(At({mock_.url()})).Get("/a").status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("answers with more than 4194304 bytes"));
}

TEST_F(HttpTest, WhoAsksIsNamedAsConfigured) {
  RegistryOptions options = At({mock_.url()});
  options.username = "walpost";
  options.password = "secret";
  ASSERT_TRUE(Http(options).Get("/a").ok());
  options.username = options.password = "";
  options.token = "t0ken";
  ASSERT_TRUE(Http(options).Get("/a").ok());
  EXPECT_EQ(mock_.requests().at(0).authorization, "Basic d2FscG9zdDpzZWNyZXQ=");
  EXPECT_EQ(mock_.requests().at(1).authorization, "Bearer t0ken");
}

// It would see the password.
TEST_F(HttpTest, ProxyOfTheEnvironmentIsNotAsked) {
  mock_.Answer("GET /a", 200, "its own");
  setenv("http_proxy", other_.url().c_str(), 1);
  Http http(At({mock_.url()}));
  const auto answer = http.Get("/a");
  unsetenv("http_proxy");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "its own");
  EXPECT_THAT(other_.requests(), IsEmpty());
}

TEST_F(HttpTest, CertificateFileThatIsNotThereIsNamed) {
  RegistryOptions options = At({"https://127.0.0.1:1"});
  options.ca_file = "/no/such/ca.pem";
  EXPECT_TRUE(absl::IsUnavailable(Http(options).Get("/a").status()));
}

TEST_F(HttpTest, SegmentsAreEncoded) {
  EXPECT_EQ(Http::Encode("a-b.C_d~"), "a-b.C_d~");
  EXPECT_EQ(Http::Encode("shop/v1 ä?"), "shop%2Fv1%20%C3%A4%3F");
}

RegistryOptions Options(std::vector<std::string> urls) {
  RegistryOptions options;
  options.urls = std::move(urls);
  return options;
}

TEST(RegistryEncryptionTest, HttpOverANetworkIsFound) {
  EXPECT_EQ(ClearTextUrl(Options({"https://one", "http://two:8081/path"})), "http://two:8081/path");
  EXPECT_EQ(ClearTextUrl(Options({"http://[2001:db8::1]:8081"})), "http://[2001:db8::1]:8081");
  EXPECT_THAT(ClearTextWarning(Options({"http://two"})), HasSubstr("http://two"));
}

TEST(RegistryEncryptionTest, WarningAboutASecretUrlDoesNotShowIt) {
  RegistryOptions options = Options({"http://registry:8081"});
  options.secrets = {"http://registry:8081/"};
  EXPECT_THAT(ClearTextWarning(options),
              AllOf(HasSubstr("in clear text at ***:"), HasSubstr("schema_registry.url"),
                    Not(HasSubstr("8081"))));
}

TEST(RegistryEncryptionTest, HttpsAndThisMachineAreQuiet) {
  EXPECT_EQ(ClearTextUrl(Options({"https://one", "http://localhost:8081", "http://127.0.0.1/x",
                                  "http://[::1]:8081"})),
            "");
  EXPECT_EQ(ClearTextWarning(Options({})), "");
}

TEST(ReadFileTest, PipeIsReadToItsEnd) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::thread writer([fd = ends[1]] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(write(fd, "0123456789", 10), 10);
    }
    close(fd);
  });
  const auto content = ReadFile("/dev/fd/" + std::to_string(ends[0]), 1'000);
  writer.join();
  close(ends[0]);
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(content->size(), 1'000U);
}

TEST(ReadFileTest, FileIsReadUpToItsLimit) {
  const std::string path = ::testing::TempDir() + "/read_file_test-" + std::to_string(getpid());
  std::ofstream(path) << std::string(10'000, 'x');
  EXPECT_EQ(ReadFile(path, 10'000)->size(), 10'000U);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile(path, 9'999).status()));
  unlink(path.c_str());
}

TEST(ReadFileTest, WhatIsNotThereIsDistinguishedFromWhatCannotBeRead) {
  EXPECT_TRUE(absl::IsNotFound(ReadFile("/no/such/file", 10).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile(::testing::TempDir(), 10).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadFile("/dev/zero", 10).status()));
}

}  // namespace
}  // namespace walpost::registry
