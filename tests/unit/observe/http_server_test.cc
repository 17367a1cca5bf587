#include "observe/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "unit/observe/prometheus_text.h"
#include "unit/observe/sample.h"

namespace walpost::observe {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

struct Answer {
  int code = 0;  // 0 = no connection, or no answer
  std::string head;
  std::string body;
};

base::WallTime WallNow() {
  return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
}

// A socket, or -1.
int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const generic = static_cast<sockaddr*>(static_cast<void*>(&address));
  if (connect(fd, generic, sizeof(address)) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

// One request as bytes, and all that comes back until the server closes.
std::string Exchange(int port, const std::string& request) {
  const int fd = Connect(port);
  std::string answer;
  if (fd >= 0 && send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
                     static_cast<ssize_t>(request.size())) {
    char buffer[4096];
    ssize_t size = 0;
    while ((size = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
      answer.append(buffer, static_cast<std::size_t>(size));
    }
  }
  close(fd);
  return answer;
}

Answer Ask(int port, const std::string& method, const std::string& path,
           const std::string& host = "localhost") {
  const std::string text =
      Exchange(port, method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  Answer answer;
  const std::size_t end = text.find("\r\n\r\n");
  if (end != std::string::npos && text.rfind("HTTP/1.1 ", 0) == 0) {
    answer.code = std::stoi(text.substr(9, 3));
    answer.head = text.substr(0, end + 2);
    answer.body = text.substr(end + 4);
  }
  return answer;
}

HttpOptions FreePort() {
  HttpOptions options;
  options.listen = "127.0.0.1:0";
  options.version = "1.2.3";
  return options;
}

// One server for all tests that do not stop it.
class HttpServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto started = HttpServer::Start(FreePort(), &board_);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override { board_.Publish(nullptr); }

  void Publish(Snapshot snapshot) {
    board_.Publish(std::make_shared<const Snapshot>(std::move(snapshot)));
  }

  void PublishState(base::State state) {
    Snapshot snapshot = Sample();
    snapshot.taken_at = WallNow();
    snapshot.state = state;
    Publish(std::move(snapshot));
  }

  Answer Get(const std::string& path) const { return Ask(server_->port(), "GET", path); }

  static inline SnapshotBoard board_;
  static inline std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, PortZeroIsAFreePortThatIsReported) {
  EXPECT_GT(server_->port(), 0);
  EXPECT_EQ(Get("/livez").code, 200);
}

TEST_F(HttpServerTest, MetricsAreServedInPrometheusFormat) {
  Publish(Sample());
  const Answer answer = Get("/metrics");
  EXPECT_EQ(answer.code, 200);
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  const PrometheusText metrics(answer.body);
  EXPECT_THAT(metrics.errors, IsEmpty());
  EXPECT_EQ(metrics.Value("walpost_transactions_total"), 11);
  EXPECT_EQ(metrics.Value("walpost_build_info",
                          {{"version", "1.2.3"}, {"librdkafka", "2.0.2"}, {"libpq", "15.18"}}),
            1);
}

TEST_F(HttpServerTest, StatusIsServedAsJson) {
  Publish(Sample());
  const Answer answer = Get("/status");
  EXPECT_EQ(answer.code, 200);
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_EQ(nlohmann::json::parse(answer.body).at("name"), "shop");
}

TEST_F(HttpServerTest, PageIsServedAtTheRoot) {
  const Answer answer = Get("/");
  EXPECT_EQ(answer.code, 200);
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(answer.body, HasSubstr("<title>walpost</title>"));
  EXPECT_THAT(answer.head, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(Get("/page.css").head, HasSubstr("Content-Type: text/css"));
  EXPECT_THAT(Get("/page.js").head, HasSubstr("Content-Type: text/javascript"));
}

TEST_F(HttpServerTest, LastHourIsServed) {
  Publish(Sample());
  EXPECT_GE(nlohmann::json::parse(Get("/history").body).at("at_ms").size(), 1U);
}

TEST_F(HttpServerTest, NewestSnapshotIsTheOneServed) {
  Publish(Sample());
  Snapshot later = Sample();
  later.name = "later";
  Publish(later);
  EXPECT_EQ(nlohmann::json::parse(Get("/status").body).at("name"), "later");
}

TEST_F(HttpServerTest, EverythingAnswersBeforeTheFirstSnapshot) {
  EXPECT_EQ(Get("/status").code, 200);
  EXPECT_EQ(Get("/metrics").code, 200);
  EXPECT_EQ(Get("/livez").code, 200);
  EXPECT_EQ(Get("/readyz").code, 503);
  EXPECT_EQ(Get("/readyz?verbose").body, "not ready: starting\n");
}

TEST_F(HttpServerTest, AnswersAreNotKeptByCaches) {
  Publish(Sample());
  for (const char* path : {"/", "/status", "/metrics", "/livez", "/readyz"}) {
    EXPECT_THAT(Get(path).head, HasSubstr("Cache-Control: no-store\r\n")) << path;
  }
}

// What PostgreSQL or Kafka do must not restart the process; a loop that hangs must.
TEST_F(HttpServerTest, LiveInEveryStateWhileTheLoopTurns) {
  for (const base::State state : base::kAllStates) {
    PublishState(state);
    EXPECT_EQ(Get("/livez").code, 200) << base::StateName(state);
    EXPECT_EQ(Get("/healthz").code, 200) << base::StateName(state);
  }
}

TEST_F(HttpServerTest, NotLiveOnceTheLoopHasNotTurned) {
  Snapshot snapshot = Sample();
  snapshot.taken_at = WallNow() - std::chrono::seconds(11);  // live_within is 10 s
  Publish(snapshot);
  EXPECT_EQ(Get("/livez").code, 503);
  EXPECT_EQ(Get("/healthz").code, 503);
  EXPECT_THAT(Get("/livez").head, StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  snapshot.taken_at = WallNow() - std::chrono::seconds(5);
  Publish(snapshot);
  EXPECT_EQ(Get("/livez").code, 200);
}

TEST_F(HttpServerTest, ReadyInEveryStateButStartingAndHalted) {
  for (const base::State state : base::kAllStates) {
    PublishState(state);
    const bool ready = state != base::State::kStarting && state != base::State::kHalted;
    const Answer answer = Get("/readyz");
    EXPECT_EQ(answer.code, ready ? 200 : 503) << base::StateName(state);
    EXPECT_THAT(answer.body,
                StartsWith((ready ? "ok: " : "not ready: ") + std::string(base::StateName(state))));
  }
}

TEST_F(HttpServerTest, HaltedNamesItsReasonAndOnRequestWhatToDo) {
  Snapshot snapshot = Sample();
  snapshot.state = base::State::kHalted;
  snapshot.halt_reason = base::HaltReason::kSlotMissing;
  snapshot.halt_detail = "slot gone: do this";
  snapshot.sink_connected = false;
  Publish(snapshot);
  EXPECT_EQ(Get("/readyz").body, "not ready: halted (slot_missing)\n");
  EXPECT_EQ(Get("/readyz?verbose").body,
            "not ready: halted (slot_missing)\n[-] state halted\n[+] source connected\n"
            "[-] sink connected\nslot gone: do this\n");
}

// Names of tables and ids of events stand in it, and curl writes it to a terminal.
TEST_F(HttpServerTest, WhatIsReadInATerminalIsNotObeyedByIt) {
  Snapshot snapshot = Sample();
  snapshot.state = base::State::kHalted;
  snapshot.halt_detail = "event \x1b[2J\n[+] state streaming\u009b1m";
  Publish(snapshot);
  EXPECT_THAT(Get("/readyz?verbose").body,
              EndsWith("\nevent \\x1b[2J\\x0a[+] state streaming\\xc2\\x9b1m\n"));
}

TEST_F(HttpServerTest, HeadIsTheHeadOfGetAlone) {
  PublishState(base::State::kStreaming);
  for (const char* path : {"/", "/status", "/livez", "/readyz"}) {
    const Answer head = Ask(server_->port(), "HEAD", path);
    EXPECT_EQ(head.code, 200) << path;
    EXPECT_EQ(head.body, "") << path;
    EXPECT_THAT(head.head, HasSubstr("Content-Length: ")) << path;
    EXPECT_THAT(head.head, Not(HasSubstr("Content-Length: 0\r\n"))) << path;
  }
}

TEST_F(HttpServerTest, LengthIsThatOfTheBody) {
  const Answer answer = Get("/");
  EXPECT_THAT(answer.head,
              HasSubstr("Content-Length: " + std::to_string(answer.body.size()) + "\r\n"));
}

TEST_F(HttpServerTest, UnknownPathIsNotFoundAndNamesTheKnown) {
  for (const char* path : {"/nothing", "/metrics/", "/status/x", "/../etc/passwd", "/livezz"}) {
    const Answer answer = Get(path);
    EXPECT_EQ(answer.code, 404) << path;
  }
  EXPECT_THAT(Get("/nothing").body, HasSubstr("/metrics"));
}

TEST_F(HttpServerTest, OtherMethodsAreNotAllowed) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    const Answer answer = Ask(server_->port(), method, "/status");
    EXPECT_EQ(answer.code, 405) << method;
    EXPECT_THAT(answer.head, HasSubstr("Allow: GET, HEAD\r\n")) << method;
  }
}

// Failure 87.
TEST_F(HttpServerTest, NonsenseDoesNotEndTheServer) {
  for (const std::string& bytes :
       {std::string("\r\n\r\n"), std::string("\x16\x03\x01\x02\x00\x01\r\n\r\n", 10),
        "GET " + std::string(40'000, 'a') + " HTTP/1.1\r\n\r\n",
        std::string("OPTIONS * HTTP/1.1\r\n\r\n"), std::string("GET * HTTP/1.1\r\n\r\n"),
        std::string("GET / HTTP/9.9\r\n\r\n"), std::string("GET /%00%ff HTTP/1.1\r\n\r\n")}) {
    Exchange(server_->port(), bytes);
  }
  EXPECT_EQ(Get("/livez").code, 200);
}

// Failure 87.
TEST_F(HttpServerTest, ConcurrentRequestsAreAllAnsweredWhileSnapshotsChange) {
  Publish(Sample());
  std::atomic<int> answered{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      for (int j = 0; j < 10; ++j) {
        const Answer answer = Get(j % 2 == 0 ? "/status" : "/metrics");
        answered += answer.code == 200 && answer.body.back() == '\n' ? 1 : 0;
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    Publish(Sample());
  }
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_EQ(answered.load(), 80);
}

// DNS rebinding: a page of a foreign site, whose name has just got this host's address.
TEST_F(HttpServerTest, ForeignHostIsRejectedButForProbes) {
  PublishState(base::State::kStreaming);
  for (const char* path : {"/", "/status", "/configuration", "/metrics", "/readyz?verbose"}) {
    EXPECT_EQ(Ask(server_->port(), "GET", path, "evil.example").code, 421) << path;
    EXPECT_EQ(Ask(server_->port(), "GET", path, "127.0.0.1:9464").code, 200) << path;
  }
  EXPECT_EQ(Ask(server_->port(), "GET", "/livez", "evil.example").code, 200);
  EXPECT_EQ(Ask(server_->port(), "GET", "/readyz", "evil.example").code, 200);
}

TEST(HttpServerHostTest, ConfiguredHostIsTaken) {
  const SnapshotBoard board;
  HttpOptions options = FreePort();
  options.hosts = {"walpost.example.com"};
  const auto server = HttpServer::Start(options, &board);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(Ask((*server)->port(), "GET", "/metrics", "walpost.example.com:9464").code, 200);
  EXPECT_EQ(Ask((*server)->port(), "GET", "/metrics", "example.com").code, 421);
}

TEST(HttpServerTokenTest, TokenAdmitsUnderAnyHost) {
  const SnapshotBoard board;
  HttpOptions options = FreePort();
  options.token = "0123456789abcdef";
  const auto server = HttpServer::Start(options, &board);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(Ask((*server)->port(), "GET", "/metrics").code, 401);
  const std::string answer =
      Exchange((*server)->port(),
               "GET /metrics HTTP/1.1\r\nHost: walpost.example.com\r\nAuthorization: Bearer "
               "0123456789abcdef\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
}

// More than are kept open, each with the beginning of a request that never ends.
TEST_F(HttpServerTest, ConnectionsThatNeverAskKeepNobodyWaiting) {
  constexpr int kSilent = 400;
  std::vector<int> silent;
  for (int i = 0; i < kSilent; ++i) {
    silent.push_back(Connect(server_->port()));
    ASSERT_GE(silent.back(), 0);
    ASSERT_EQ(send(silent.back(), "GET /st", 7, MSG_NOSIGNAL), 7);
  }
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(Get("/livez").code, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(1));
  for (const int fd : silent) {
    close(fd);
  }
}

std::size_t OpenDescriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(open), end(open)));
}

TEST_F(HttpServerTest, ManyConnectionsAtOnceThenNoMoreThanTheLimitStayOpen) {
  constexpr std::size_t kSilent = 500;  // with the server's end of each, fewer than 1,024
  const std::size_t before = OpenDescriptors();
  std::vector<int> silent;
  for (std::size_t i = 0; i < kSilent; ++i) {
    silent.push_back(Connect(server_->port()));
    ASSERT_GE(silent.back(), 0);
  }
  EXPECT_EQ(Get("/livez").code, 200);  // it comes after them all
  EXPECT_LE(OpenDescriptors(), before + kSilent + 256 + 16);
  for (const int fd : silent) {
    close(fd);
  }
}

// It would hold up every hand-over and every rolling restart.
TEST(HttpServerStopTest, StopsAtOnce) {
  const SnapshotBoard board;
  auto server = HttpServer::Start(FreePort(), &board);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto before = std::chrono::steady_clock::now();
  server->reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(1'000));
}

TEST(HttpServerStopTest, StoppedServerRejectsAndFreesItsPort) {
  const SnapshotBoard board;
  auto server = HttpServer::Start(FreePort(), &board);
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  ASSERT_EQ(Ask(port, "GET", "/livez").code, 200);
  server->reset();
  EXPECT_EQ(Ask(port, "GET", "/livez").code, 0);
  HttpOptions options;
  options.listen = "127.0.0.1:" + std::to_string(port);
  const auto again = HttpServer::Start(options, &board);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->port(), port);
}

// An idle client must not keep the process from ending.
// Failure 87.
TEST(HttpServerStopTest, StopsWhileAClientIsConnectedAndSilent) {
  const SnapshotBoard board;
  auto server = HttpServer::Start(FreePort(), &board);
  ASSERT_TRUE(server.ok()) << server.status();
  const int fd = Connect((*server)->port());
  ASSERT_GE(fd, 0);
  const auto before = std::chrono::steady_clock::now();
  server->reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(8));
  close(fd);
}

TEST_F(HttpServerTest, PortInUseIsUnavailableAndNamed) {
  HttpOptions options;
  options.listen = "127.0.0.1:" + std::to_string(server_->port());
  const auto second = HttpServer::Start(options, &board_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(options.listen));
}

TEST(HttpServerStartTest, AddressThatIsNoneOrNotOursIsNamed) {
  SnapshotBoard board;
  const std::pair<const char*, absl::StatusCode> wrong[] = {
      {"nonsense", absl::StatusCode::kInvalidArgument},
      {"127.0.0.1:99999", absl::StatusCode::kInvalidArgument},
      {"192.0.2.1:0", absl::StatusCode::kUnavailable}};
  for (const auto& [listen, code] : wrong) {
    HttpOptions options;
    options.listen = listen;
    const auto server = HttpServer::Start(options, &board);
    EXPECT_EQ(server.status().code(), code) << listen;
    EXPECT_THAT(std::string(server.status().message()), HasSubstr(listen));
  }
}

TEST(HttpServerTokenTest, ProbesAreOpenAndAllElseAsksForIt) {
  const SnapshotBoard board;
  HttpOptions options = FreePort();
  options.token = "0123456789abcdef";
  const auto server = HttpServer::Start(options, &board);
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  for (const char* path : {"/livez", "/healthz"}) {
    EXPECT_EQ(Ask(port, "GET", path).code, 200) << path;
  }
  EXPECT_EQ(Ask(port, "GET", "/readyz").code, 503);
  for (const char* method : {"GET", "HEAD", "POST"}) {
    const Answer answer = Ask(port, method, "/status");
    EXPECT_EQ(answer.code, 401) << method;
    EXPECT_THAT(answer.head, StartsWith("HTTP/1.1 401 Unauthorized\r\n"));
    EXPECT_THAT(answer.head, HasSubstr("WWW-Authenticate: Basic realm=\"walpost\""));
    EXPECT_THAT(answer.head, HasSubstr("WWW-Authenticate: Bearer"));
  }
  EXPECT_EQ(Ask(port, "GET", "/readyz?verbose").code, 401);
  const std::string asked =
      Exchange(port,
               "GET /status HTTP/1.1\r\nHost: localhost\r\nauthorization: Bearer "
               "0123456789abcdef\r\n\r\n");
  EXPECT_THAT(asked, StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST(HttpServerTokenTest, AnotherTokenAndConfigurationAreTakenWhileItRuns) {
  const SnapshotBoard board;
  HttpOptions options = FreePort();
  options.configuration = "first\n";
  const auto server = HttpServer::Start(options, &board);
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  EXPECT_EQ(Ask(port, "GET", "/configuration").body, "first\n");
  options.configuration = "second\n";
  (*server)->Reconfigure(options);
  EXPECT_EQ(Ask(port, "GET", "/configuration").body, "second\n");
  options.token = "0123456789abcdef";
  (*server)->Reconfigure(options);
  EXPECT_EQ(Ask(port, "GET", "/configuration").code, 401);
}

TEST(HttpServerStartTest, EmptyAddressIsNoServer) {
  SnapshotBoard board;
  HttpOptions options;
  options.listen = "";
  const auto server = HttpServer::Start(options, &board);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->port(), 0);
}

}  // namespace
}  // namespace walpost::observe
