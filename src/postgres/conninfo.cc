#include "postgres/conninfo.h"

#include <arpa/inet.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/text.h"
#include "postgres/connection.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

struct ConnectionDeleter {
  void operator()(PGconn* connection) const { PQfinish(connection); }
};

// A password with a '/' ends the part of a URI that libpq takes it from, and what is no URI is the
// name of a database: either way the password would be shown as something else.
bool MayMisplacePassword(const std::string& conninfo, bool is_uri) {
  if (!is_uri) {
    return conninfo.find('=') == std::string::npos && conninfo.find('@') != std::string::npos;
  }
  const std::size_t path = conninfo.find('/', conninfo.find("://") + 3);
  const std::size_t at = path == std::string::npos ? path : conninfo.find('@', path);
  return at != std::string::npos && at < conninfo.find('?', path);
}

absl::StatusOr<ConninfoPtr> Parse(const std::string& conninfo) {
  // As libpq does for `dbname`: without '=' and without a URI prefix it is just a database name.
  const bool is_uri =
      conninfo.rfind("postgresql://", 0) == 0 || conninfo.rfind("postgres://", 0) == 0;
  if (MayMisplacePassword(conninfo, is_uri)) {
    return absl::InvalidArgumentError(
        "conninfo: an '@' stands where none can: begin a URI with postgresql://, and write %40 for "
        "each '@' and %2F for each '/' in its name and password");
  }
  if (!is_uri && conninfo.find('=') == std::string::npos) {
    return ConninfoPtr(PQconninfoParse("", nullptr));
  }
  char* message = nullptr;
  ConninfoPtr options(PQconninfoParse(conninfo.c_str(), &message));
  if (options == nullptr) {
    const std::string text = message == nullptr ? "out of memory" : MaskQuoted(OneLine(message));
    PQfreemem(message);
    return absl::InvalidArgumentError(absl::StrFormat("conninfo is malformed: %s", text));
  }
  return options;
}

bool IsSecret(const PQconninfoOption& option) {
  // libpq marks password-like options with dispchar "*", but not every newer one
  // (scram_client_key).
  const std::string_view keyword = option.keyword;
  return (option.dispchar != nullptr && option.dispchar[0] == '*') ||
         keyword.find("password") != std::string_view::npos ||
         keyword.find("secret") != std::string_view::npos ||
         keyword.find("scram") != std::string_view::npos;
}

// No host has these, but a password that was not escaped, or a conninfo whose settings stand behind
// ';' or ',' instead of a space.
bool IsOtherThanHost(std::string_view host) {
  // Else it is a folder, or an abstract socket.
  return !host.empty() && host[0] != '/' && host[0] != '@' &&
         host.find_first_of("=;@") != std::string_view::npos;
}

bool HasOtherThanHost(const std::string& hosts) {
  const std::vector<std::string> each = absl::StrSplit(hosts, ',');
  return std::any_of(each.begin(), each.end(), IsOtherThanHost);
}

// "-c app.password=***" of what `options` holds, and so of any value that has a setting in it.
std::string MaskSettings(const std::string& value) {
  std::string masked;
  std::size_t name = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    masked += value[i];
    if (std::string_view(" \t\n;,").find(value[i]) != std::string_view::npos) {
      name = i + 1;
    } else if (value[i] == '=' && base::MayHoldSecret(value.substr(name, i - name))) {
      masked += "***";
      // Up to a space that is not escaped.
      while (i + 1 < value.size() &&
             std::string_view(" \t\n").find(value[i + 1]) == std::string_view::npos) {
        i += value[i + 1] == '\\' ? 2 : 1;
      }
    }
  }
  return masked;
}

// A password, or a setting, that got into another value: messages about that value would show it.
bool HoldsSecret(const PQconninfoOption& option) {
  const std::string_view keyword = option.keyword;
  if (option.val == nullptr || IsSecret(option) || keyword == "options") {
    return false;
  }
  const std::string value = option.val;
  if ((keyword == "host" || keyword == "hostaddr") && HasOtherThanHost(value)) {
    return true;
  }
  // postgresql://user:password/db, without a host, is host and port.
  if (keyword == "port" && value.find_first_not_of("0123456789, ") != std::string::npos) {
    return true;
  }
  const std::size_t colon = value.find(':');
  const bool is_login = keyword == "user" && colon != std::string::npos &&
                        value.find('@', colon) != std::string::npos;
  return is_login || MaskSettings(value) != value;
}

absl::Status CheckNoSecretInside(const PQconninfoOption* options) {
  for (const PQconninfoOption* option = options; option->keyword != nullptr; ++option) {
    if (HoldsSecret(*option)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "conninfo: the %s has a part that is no %s, perhaps a password: in the password of a URI "
          "write %%40 for each '@'; elsewhere, separate settings by spaces",
          option->keyword, option->keyword));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string MaskQuoted(std::string_view message) {
  // To the last quote, because what is quoted may have quotes of its own.
  const std::size_t first = message.find('"');
  if (first == std::string_view::npos) {
    return std::string(message);
  }
  const std::size_t last = message.rfind('"');
  const std::string_view behind = last == first ? "" : message.substr(last);
  return absl::StrFormat("%s\"***%s", message.substr(0, first), behind);
}

std::string ConninfoValue(const std::string& value) {
  if (!value.empty() && value.find_first_of(" \t\n\r\f\v'\\") == std::string::npos) {
    return value;
  }
  std::string quoted = "'";
  for (const char c : value) {
    if (c == '\'' || c == '\\') {
      quoted.push_back('\\');
    }
    quoted.push_back(c);
  }
  return quoted + "'";
}

std::string Setting(const ConnectionSettings& settings, const std::string& keyword) {
  const auto found = settings.find(keyword);
  return found == settings.end() ? std::string() : found->second;
}

absl::StatusOr<ConnectionSettings> ResolveConninfo(const std::string& conninfo) {
  ASSIGN_OR_RETURN(const ConninfoPtr own, Parse(conninfo));
  RETURN_IF_ERROR(CheckNoSecretInside(own.get()));  // its port, which is not shown below
  // Port 0 is rejected by libpq for each host before it looks up a name or opens a socket, and
  // after it has merged string, service and environment. PQconninfo then returns the merged values.
  constexpr char kRejectedPort[] = "invalid port number: \"0\"";
  const char* keywords[] = {"dbname", "port", nullptr};
  const char* values[] = {conninfo.c_str(), "0", nullptr};
  const std::unique_ptr<PGconn, ConnectionDeleter> probe(PQconnectStartParams(keywords, values, 1));
  if (probe == nullptr) {
    return absl::ResourceExhaustedError("conninfo: out of memory");
  }
  const std::string message = OneLine(PQerrorMessage(probe.get()));
  if (message.find(kRejectedPort) == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrFormat("conninfo or its service file is not usable: %s", MaskQuoted(message)));
  }
  const ConninfoPtr options(PQconninfo(probe.get()));
  RETURN_IF_ERROR(CheckNoSecretInside(options.get()));
  ConnectionSettings settings;
  for (const PQconninfoOption* option = options.get(); option->keyword != nullptr; ++option) {
    if (option->val != nullptr && option->val[0] != '\0') {
      settings[option->keyword] = option->val;
    }
  }
  settings.erase("port");
  return settings;
}

std::string RedactConninfo(const std::string& conninfo,
                           const std::function<std::string(std::string)>& shown_value) {
  auto parsed = Parse(conninfo);
  if (!parsed.ok()) {
    return "(unreadable conninfo, not shown)";
  }
  if (conninfo.find('=') == std::string::npos && conninfo.find("://") == std::string::npos) {
    return conninfo;
  }
  std::string shown;
  for (const PQconninfoOption* option = parsed->get(); option->keyword != nullptr; ++option) {
    if (option->val == nullptr) {
      continue;
    }
    // Masked first: what is hidden may be a setting's name.
    const std::string masked = MaskSettings(option->val);
    const bool hidden = IsSecret(*option) || HoldsSecret(*option);
    shown +=
        absl::StrFormat("%s%s=%s", shown.empty() ? "" : " ", option->keyword,
                        hidden ? "***" : ConninfoValue(shown_value ? shown_value(masked) : masked));
  }
  return shown;
}

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
