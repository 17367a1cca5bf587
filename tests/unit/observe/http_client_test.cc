#include "observe/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/escaping.h"
#include "observe/http_server.h"

namespace walpost::observe {
namespace {

constexpr char kToken[] = "0123456789abcdef:+/=";

std::string Basic(const std::string& pair) { return "Basic " + absl::Base64Escape(pair); }

TEST(AdmitsTest, TokenIsTakenAsBearerAndAsPasswordOfAnyName) {
  const std::string token = kToken;
  EXPECT_TRUE(Admits("Bearer " + token, kToken));
  EXPECT_TRUE(Admits("bearer   " + token, kToken));
  EXPECT_TRUE(Admits(Basic("prometheus:" + token), kToken));
  EXPECT_TRUE(Admits(Basic(":" + token), kToken));
  EXPECT_TRUE(Admits("BASIC" + Basic("me:" + token).substr(5), kToken));
}

TEST(AdmitsTest, EverythingElseIsRejected) {
  const std::string token = kToken;
  for (const std::string& header : {std::string(),
                                    token,
                                    std::string("Bearer"),
                                    std::string("Bearer "),
                                    "Bearer" + token,
                                    "Bearer " + token + "x",
                                    "Bearer " + token.substr(1),
                                    "Bearer " + token.substr(0, 19),
                                    "Bearer x" + token.substr(1),
                                    "Bearer " + token + token,
                                    "Digest " + token,
                                    Basic(token),
                                    Basic(token + ":"),
                                    Basic("me:"),
                                    Basic("me:" + token + "x"),
                                    Basic("me:" + std::string("\0", 1) + token),
                                    "Basic " + token,
                                    std::string("Basic"),
                                    std::string("Basic !!"),
                                    "Bearer " + Basic("me:" + token)}) {
    EXPECT_FALSE(Admits(header, kToken)) << header;
  }
}

TEST(IsLoopbackOnlyTest, EveryAddressMustBeOfThisHost) {
  for (const char* listen : {"", "127.0.0.1:9464", "localhost:9464", "127.8.0.1:0", "[::1]:9464",
                             "127.0.0.1:9464,[::1]:9464", "127.0.0.1:9464, 127.0.0.2:1"}) {
    EXPECT_TRUE(IsLoopbackOnly(listen)) << listen;
  }
  for (const char* listen :
       {"0.0.0.0:9464", "9464", ":9464", "+9464", "[::]:9464", "10.0.0.7:9464",
        "127.0.0.1:9464,10.0.0.7:9464", "[::1:2]:9464", "[fd00::1]:1", "127.evil.example:1"}) {
    EXPECT_FALSE(IsLoopbackOnly(listen)) << listen;
    EXPECT_NE(OpenToAll(listen).find(listen), std::string::npos);
  }
}

TEST(ParseListenTest, TakesAddressesPortsAndLists) {
  const auto one = ParseListen("127.0.0.1:9464");
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_EQ(one->size(), 1U);
  EXPECT_EQ(one->front().host, "127.0.0.1");
  EXPECT_EQ(one->front().port, "9464");
  const auto two = ParseListen("0.0.0.0:9464, [::1]:0");
  ASSERT_TRUE(two.ok()) << two.status();
  ASSERT_EQ(two->size(), 2U);
  EXPECT_EQ(two->back().host, "::1");
  EXPECT_EQ(two->back().port, "0");
  EXPECT_EQ(ParseListen("9464")->front().host, "");
  EXPECT_TRUE(ParseListen("")->empty());
}

TEST(ParseListenTest, RejectsWhatIsNoAddressAndPort) {
  for (const char* listen :
       {":9464", "localhost", "127.0.0.1:", "127.0.0.1:65536", "::1:9464", "127.0.0.1:9464,",
        "127.0.0.1:+80", "127.0.0.1:94 64", "[::1]x:9464", "[::1:9464", "[localhost]:9464",
        "127.0.0.1/x?:9464", "127.0.0.1#:9464", "user@127.0.0.1:9464", "127.0.0.1:09464"}) {
    EXPECT_EQ(ParseListen(listen).status().code(), absl::StatusCode::kInvalidArgument) << listen;
  }
}

TEST(IsOwnHostTest, TakesAddressesAndNamesThatNoForeignSiteCanHave) {
  const std::vector<std::string> names = {"walpost.example.com"};
  for (const char* host :
       {"", "localhost", "localhost:9464", "127.0.0.1", "10.0.0.7:9464", "[::1]:9464", "walpost",
        "walpost:9464", "walpost.shop.svc:9464", "walpost.shop.svc.cluster.local", "db.internal",
        "printer.local.", "WALPOST.example.COM:443"}) {
    EXPECT_TRUE(IsOwnHost(host, names)) << host;
  }
  for (const char* host : {"evil.example", "evil.example:9464", "127.0.0.1.evil.example",
                           "walpost.example.com.evil.example", "x.walpost.example.com",
                           "evilsvc.com", "1.2.3.4.5", "local.evil", "[::1].evil.example", "[evil]",
                           "walpost:9464.evil.example", "a:.evil.example"}) {
    EXPECT_FALSE(IsOwnHost(host, names)) << host;
  }
}

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// A port that takes connections, which nobody answers.
class SilentPort {
 public:
  SilentPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
  }

  ~SilentPort() { close(fd_); }

  void Listen() { EXPECT_EQ(listen(fd_, 1), 0); }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  int fd_;
  int port_ = 0;
};

TEST(HttpClientTest, AnswersOfEveryCodeAreAnswers) {
  SnapshotBoard board;
  HttpOptions options;
  options.listen = "127.0.0.1:0";
  const auto server = HttpServer::Start(options, &board);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string url = "http://127.0.0.1:" + std::to_string((*server)->port());
  const auto live = HttpGet(url + "/livez", milliseconds(20'000));
  ASSERT_TRUE(live.ok()) << live.status();
  EXPECT_EQ(live->code, 200);
  EXPECT_EQ(live->body, "ok\n");
  const auto ready = HttpGet(url + "/readyz", milliseconds(20'000));
  ASSERT_TRUE(ready.ok()) << ready.status();
  EXPECT_EQ(ready->code, 503);
  EXPECT_EQ(ready->body, "not ready: starting\n");
}

// As in a container where everything else goes through a proxy.
TEST(HttpClientTest, ProxyOfTheEnvironmentIsPassedBy) {
  SnapshotBoard board;
  HttpOptions options;
  options.listen = "127.0.0.1:0";
  const auto server = HttpServer::Start(options, &board);
  ASSERT_TRUE(server.ok()) << server.status();
  const SilentPort nowhere;
  ASSERT_EQ(setenv("http_proxy", nowhere.url().c_str(), 1), 0);
  const auto live = HttpGet("http://127.0.0.1:" + std::to_string((*server)->port()) + "/livez",
                            milliseconds(20'000));
  unsetenv("http_proxy");
  EXPECT_TRUE(live.ok()) << live.status();
}

TEST(HttpClientTest, TokenIsSent) {
  SnapshotBoard board;
  HttpOptions options;
  options.listen = "127.0.0.1:0";
  options.token = "0123456789abcdef";
  const auto server = HttpServer::Start(options, &board);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string url = "http://127.0.0.1:" + std::to_string((*server)->port()) + "/status";
  EXPECT_EQ(HttpGet(url, milliseconds(20'000))->code, 401);
  EXPECT_EQ(HttpGet(url, milliseconds(20'000), "0123456789abcdeF")->code, 401);
  EXPECT_EQ(HttpGet(url, milliseconds(20'000), options.token)->code, 200);
}

TEST(HttpClientTest, NobodyThereIsUnavailableAndNamesTheUrl) {
  const SilentPort closed;
  const auto answer = HttpGet(closed.url() + "/livez", milliseconds(20'000));
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr(closed.url() + "/livez"));
}

TEST(HttpClientTest, SilenceEndsWithTheTimeOut) {
  SilentPort silent;
  silent.Listen();
  const auto answer = HttpGet(silent.url(), milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status())) << answer.status();
}

TEST(HttpClientTest, UrlIsWhereTheSameHostReachesWhatListens) {
  EXPECT_EQ(*UrlOf("127.0.0.1:9464"), "http://127.0.0.1:9464");
  EXPECT_EQ(*UrlOf("0.0.0.0:9464"), "http://127.0.0.1:9464");
  EXPECT_EQ(*UrlOf("9464"), "http://127.0.0.1:9464");
  EXPECT_EQ(*UrlOf("127.0.0.1:9464, [::1]:9465"), "http://127.0.0.1:9464");
  EXPECT_EQ(*UrlOf("127.0.0.1:0,[::1]:9465"), "http://[::1]:9465");
  EXPECT_EQ(*UrlOf("[::]:9464"), "http://[::1]:9464");
  EXPECT_EQ(*UrlOf("[fd00::1]:80"), "http://[fd00::1]:80");
  EXPECT_FALSE(UrlOf("").ok());
  EXPECT_FALSE(UrlOf("+9464").ok());
  EXPECT_FALSE(UrlOf("127.0.0.1:0").ok());
}

TEST(WithoutUserTest, UrlIsShownWithoutUserAndPassword) {
  EXPECT_EQ(WithoutUser("http://127.0.0.1:9464/livez"), "http://127.0.0.1:9464/livez");
  EXPECT_EQ(WithoutUser("http://me:a%40b@host:1/livez"), "http://host:1/livez");
  EXPECT_EQ(WithoutUser("http://me:a@b@host/"), "a URL that cannot be read");
  EXPECT_EQ(WithoutUser("http://me:secret@host:port/"), "a URL that cannot be read");
  EXPECT_THAT(HttpGet("http://me:secret@127.0.0.1:1/livez", milliseconds(2'000)).status().message(),
              ::testing::Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace walpost::observe
