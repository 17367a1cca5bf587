#include "observe/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "observe/http_server.h"

namespace walpost::observe {
namespace {

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
  EXPECT_EQ(*UrlOf(":9464"), "http://127.0.0.1:9464");
  EXPECT_EQ(*UrlOf("9464"), "http://127.0.0.1:9464");
  EXPECT_EQ(*UrlOf("+9464"), "http://127.0.0.1:9464");
  EXPECT_EQ(*UrlOf("[::]:9464"), "http://[::1]:9464");
  EXPECT_EQ(*UrlOf("[fd00::1]:80"), "http://[fd00::1]:80");
  EXPECT_FALSE(UrlOf("").ok());
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
