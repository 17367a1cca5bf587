// Connections beside a stream, to a server that takes them and never answers.

#include "postgres/server_watch.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <variant>

namespace walpost::postgres {
namespace {

class SilentServer {
 public:
  SilentServer() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = static_cast<sockaddr*>(static_cast<void*>(&address));
    EXPECT_EQ(bind(listener_, generic, size), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, generic, &size), 0);
    port_ = ntohs(address.sin_port);
  }

  ~SilentServer() { close(listener_); }

  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;

  ServerAddress address() const { return {"127.0.0.1", "127.0.0.1", std::to_string(port_)}; }

 private:
  const int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int port_ = 0;
};

TEST(OpenBesideTest, SilentServerIsLeftAfterTheLimitWhateverConnectTimeoutSays) {
  const SilentServer server;
  ConnectOptions options;
  options.conninfo = "user=u dbname=d connect_timeout=60";
  const auto begin = std::chrono::steady_clock::now();
  const auto opened = OpenBeside(options, server.address(), std::chrono::seconds(2));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_TRUE(std::holds_alternative<StreamEnd>(opened));
}

}  // namespace
}  // namespace walpost::postgres
