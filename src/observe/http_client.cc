#include "observe/http_client.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <glog/logging.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/text.h"

#define CURL_DISABLE_TYPECHECK  // its checks are C

namespace walpost::observe {
namespace {

// Takes as long for each text of the same length, so that nobody can find out letter by letter.
bool IsSecret(std::string_view given, std::string_view secret) {
  volatile unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    difference = difference | static_cast<unsigned>(given[i] ^ secret[i % secret.size()]);
  }
  return difference == 0;
}

// What follows `scheme` and its spaces; the scheme's case does not matter.
std::optional<std::string_view> CredentialsOf(std::string_view authorization,
                                              std::string_view scheme) {
  if (authorization.size() <= scheme.size() || authorization[scheme.size()] != ' ' ||
      !absl::EqualsIgnoreCase(absl::string_view(authorization.data(), scheme.size()),
                              absl::string_view(scheme.data(), scheme.size()))) {
    return std::nullopt;
  }
  const std::size_t begin = authorization.find_first_not_of(' ', scheme.size());
  return begin == std::string_view::npos ? std::string_view() : authorization.substr(begin);
}

absl::string_view Abseil(std::string_view text) { return {text.data(), text.size()}; }

bool IsPort(std::string_view text) {
  int port = 0;
  return absl::SimpleAtoi(Abseil(text), &port) && port >= 0 && port <= 65'535 &&
         text.find_first_not_of("0123456789") == std::string_view::npos &&
         (text == "0" || text.front() != '0');
}

// `status` and `healthcheck` make a URL of it, which must lead nowhere else.
bool IsHostText(std::string_view host) {
  return std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == ':' || c == '-' || c == '_' || c == '%';
  });
}

bool IsAddress(const std::string& text) {
  in6_addr address{};                             // large enough for both
  return text.find('\0') == std::string::npos &&  // C would not see what is behind it
         (inet_pton(AF_INET, text.c_str(), &address) == 1 ||
          inet_pton(AF_INET6, text.c_str(), &address) == 1);
}

// "a:1", "[::1]:1" and "a" without the port and the brackets. Nothing for what only looks like
// that.
std::optional<std::string> WithoutPort(std::string_view host) {
  const auto is_port = [](std::string_view text) { return text.empty() || IsPort(text); };
  if (host.empty() || host.front() != '[') {
    const std::size_t colon = host.rfind(':');
    if (colon != std::string_view::npos && !is_port(host.substr(colon + 1))) {
      return std::nullopt;
    }
    return std::string(host.substr(0, colon));
  }
  const std::size_t end = host.find(']');
  std::string address(host.substr(1, end == std::string_view::npos ? end : end - 1));
  in6_addr parsed{};
  const bool whole =
      end != std::string_view::npos &&
      (end + 1 == host.size() || (host[end + 1] == ':' && is_port(host.substr(end + 2))));
  if (!whole || inet_pton(AF_INET6, address.c_str(), &parsed) != 1) {
    return std::nullopt;
  }
  return address;
}

}  // namespace

bool Admits(std::string_view authorization, std::string_view token) {
  CHECK(!token.empty());
  if (const auto bearer = CredentialsOf(authorization, "Bearer")) {
    return IsSecret(*bearer, token);
  }
  const auto basic = CredentialsOf(authorization, "Basic");
  std::string pair;
  if (!basic || !absl::Base64Unescape(absl::string_view(basic->data(), basic->size()), &pair)) {
    return false;
  }
  const std::size_t colon = pair.find(':');
  return colon != std::string::npos && IsSecret(std::string_view(pair).substr(colon + 1), token);
}

absl::StatusOr<std::vector<ListenAddress>> ParseListen(std::string_view listen) {
  std::vector<ListenAddress> addresses;
  if (listen.empty()) {
    return addresses;
  }
  for (const absl::string_view each : absl::StrSplit(Abseil(listen), ',')) {
    const std::string text(absl::StripAsciiWhitespace(each));
    const std::size_t colon = text.rfind(':');
    ListenAddress address;
    address.port = colon == std::string::npos ? text : text.substr(colon + 1);
    if (colon != std::string::npos) {
      address.host = WithoutPort(text).value_or("");
    }
    const bool bare_ipv6 = address.host.find(':') != std::string::npos && text.front() != '[';
    if (!IsPort(address.port) || bare_ipv6 || !IsHostText(address.host) ||
        (colon != std::string::npos && address.host.empty())) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "http.listen: '%s' is no address and port: write 127.0.0.1:9464, 0.0.0.0:9464 or "
          "[::1]:9464",
          text));
    }
    addresses.push_back(std::move(address));
  }
  return addresses;
}

bool IsOwnHost(std::string_view host, const std::vector<std::string>& names) {
  constexpr std::string_view kLocalDomains[] = {".local", ".internal", ".localhost", ".svc",
                                                ".cluster.local"};
  const std::optional<std::string> without_port = WithoutPort(host);
  if (!without_port) {
    return false;
  }
  std::string name = absl::AsciiStrToLower(*without_port);
  if (!name.empty() && name.back() == '.') {
    name.pop_back();
  }
  if (name.find('.') == std::string::npos || IsAddress(name)) {
    return true;
  }
  const auto is_below = [&](std::string_view domain) {
    return absl::EndsWith(name, Abseil(domain));
  };
  const auto is_same = [&](const std::string& own) { return absl::EqualsIgnoreCase(own, name); };
  return std::any_of(std::begin(kLocalDomains), std::end(kLocalDomains), is_below) ||
         std::any_of(names.begin(), names.end(), is_same);
}

bool IsLoopbackOnly(std::string_view listen) {
  const auto addresses = ParseListen(listen);
  return addresses.ok() && std::all_of(addresses->begin(), addresses->end(), [](const auto& one) {
           return base::IsLoopbackHost(one.host);
         });
}

std::string OpenToAll(std::string_view listen) {
  return absl::StrFormat(
      "http.listen %s: whoever reaches this host may read status, metrics and configuration "
      "(without "
      "secrets); set http.token, or listen on 127.0.0.1",
      listen);
}

namespace {

struct CurlDeleter {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};

struct UrlDeleter {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

std::size_t OnData(char* data, std::size_t, std::size_t size, void* user) {
  auto* const body = static_cast<std::string*>(user);
  if (body->size() + size > kAnswerBytesMax) {
    return 0;  // curl gives up
  }
  body->append(data, size);
  return size;
}

}  // namespace

absl::StatusOr<HttpAnswer> HttpGet(const std::string& url, std::chrono::milliseconds timeout,
                                   const std::string& token) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, CurlDeleter> curl(started == CURLE_OK ? curl_easy_init() : nullptr);
  if (curl == nullptr) {
    return absl::UnavailableError("libcurl does not start");
  }
  HttpAnswer answer;
  CURL* const c = curl.get();
  curl_easy_setopt(c, CURLOPT_URL, url.c_str());
  curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(c, CURLOPT_PROXY, "");
  curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(c, CURLOPT_USERAGENT, "walpost");
  curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
  curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, OnData);
  curl_easy_setopt(c, CURLOPT_WRITEDATA, &answer.body);
  if (!token.empty()) {
    curl_easy_setopt(c, CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
    curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, token.c_str());
  }
  const CURLcode result = curl_easy_perform(c);
  if (result == CURLE_OPERATION_TIMEDOUT) {
    return absl::DeadlineExceededError(
        absl::StrFormat("no answer from %s within %d ms", WithoutUser(url), timeout.count()));
  }
  if (result != CURLE_OK) {
    return absl::UnavailableError(
        absl::StrFormat("nothing answers at %s: %s", WithoutUser(url), curl_easy_strerror(result)));
  }
  curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &answer.code);
  return answer;
}

std::string WithoutUser(const std::string& url) {
  if (url.find('@') == std::string::npos) {
    return url;
  }
  const std::unique_ptr<CURLU, UrlDeleter> parsed(curl_url());
  char* text = nullptr;
  if (parsed == nullptr ||
      curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), CURLU_GUESS_SCHEME) != CURLUE_OK ||
      curl_url_set(parsed.get(), CURLUPART_USER, nullptr, 0) != CURLUE_OK ||
      curl_url_set(parsed.get(), CURLUPART_PASSWORD, nullptr, 0) != CURLUE_OK ||
      curl_url_get(parsed.get(), CURLUPART_URL, &text, 0) != CURLUE_OK) {
    return "a URL that cannot be read";
  }
  std::string shown(text);
  curl_free(text);
  return shown;
}

absl::StatusOr<std::string> UrlOf(const std::string& listen) {
  ASSIGN_OR_RETURN(const std::vector<ListenAddress> addresses, ParseListen(listen));
  if (addresses.empty()) {
    return absl::InvalidArgumentError("http.listen is empty, so there is nothing to ask");
  }
  const auto known = std::find_if(addresses.begin(), addresses.end(),
                                  [](const auto& address) { return address.port != "0"; });
  if (known == addresses.end()) {
    return absl::InvalidArgumentError(
        "http.listen has port 0, so where walpost listens is not known: give --url");
  }
  std::string host = known->host;
  if (host.empty() || host == "0.0.0.0") {
    host = "127.0.0.1";
  } else if (host == "::") {
    host = "::1";
  }
  if (host.find(':') != std::string::npos) {
    host = "[" + host + "]";
  }
  return absl::StrFormat("http://%s:%s", host, known->port);
}

}  // namespace walpost::observe
