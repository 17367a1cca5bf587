#include "postgres/encryption.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/loopback.h"

namespace walpost::postgres {
namespace {

// Of the other end; empty = this machine.
std::string RemoteAddress(int socket) {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the form of the system's call
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
    return "not known";
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (peer.ss_family == AF_INET) {
    sockaddr_in address{};
    std::memcpy(&address, &peer, sizeof(address));
    const bool loopback = (ntohl(address.sin_addr.s_addr) >> 24U) == 127;
    return loopback ? "" : inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  }
  if (peer.ss_family == AF_INET6) {
    sockaddr_in6 address{};
    std::memcpy(&address, &peer, sizeof(address));
    const bool mapped =
        IN6_IS_ADDR_V4MAPPED(&address.sin6_addr) && address.sin6_addr.s6_addr[12] == 127;
    const bool loopback = IN6_IS_ADDR_LOOPBACK(&address.sin6_addr) || mapped;
    return loopback ? "" : inet_ntop(AF_INET6, &address.sin6_addr, text.data(), text.size());
  }
  return "";
}

bool StaysHere(const std::string& host) {
  return host.empty() || host[0] == '/' || host[0] == '@' || base::IsLoopbackHost(host);
}

}  // namespace

bool IsEncrypted(PGconn* connection) {
  return PQsslInUse(connection) == 1 || PQgssEncInUse(connection) == 1;
}

std::string ClearTextPeer(PGconn* connection) {
  if (IsEncrypted(connection)) {
    return "";
  }
  const std::string address = RemoteAddress(PQsocket(connection));
  return address.empty()
             ? ""
             : absl::StrFormat("%s:%s (%s)", PQhost(connection), PQport(connection), address);
}

std::string ClearTextWarning(const std::string& peer) {
  return absl::StrFormat(
      "PostgreSQL at %s is spoken to in clear text: whoever is on the way can read and change "
      "events, "
      "and what logs in; switch TLS on there (ssl = on), and set sslmode=verify-full and "
      "sslrootcert in "
      "source.conninfo",
      peer);
}

std::string WhyMayBeClearText(const ConnectionSettings& settings) {
  const std::string mode = Setting(settings, "sslmode");
  if (mode == "require" || mode == "verify-ca" || mode == "verify-full" ||
      Setting(settings, "gssencmode") == "require") {
    return "";
  }
  // libpq connects to the address where it has one, whatever the host's name.
  const std::vector<std::string> hosts = absl::StrSplit(Setting(settings, "host"), ',');
  const std::vector<std::string> addresses = absl::StrSplit(Setting(settings, "hostaddr"), ',');
  for (std::size_t i = 0; i < std::max(hosts.size(), addresses.size()); ++i) {
    const bool has_address = i < addresses.size() && !addresses[i].empty();
    const std::string& to = has_address || i >= hosts.size() ? addresses[i] : hosts[i];
    if (!StaysHere(to)) {
      return absl::StrFormat("sslmode is %s, so the connection to %s may be in clear text",
                             mode.empty() ? "prefer" : mode, to);
    }
  }
  return "";
}

}  // namespace walpost::postgres
