#include "observe/http_access.h"

#include <glog/logging.h>

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

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

bool IsLoopbackOnly(std::string_view listen) {
  if (listen.empty()) {
    return true;
  }
  for (const absl::string_view each :
       absl::StrSplit(absl::string_view(listen.data(), listen.size()), ',')) {
    const absl::string_view address = absl::StripAsciiWhitespace(each);
    if (!absl::StartsWith(address, "127.") && !absl::StartsWith(address, "[::1]:") &&
        !absl::StartsWith(address, "localhost:")) {
      return false;
    }
  }
  return true;
}

std::string OpenToAll(std::string_view listen) {
  return absl::StrFormat(
      "http.listen %s: whoever reaches this host may read status, metrics and configuration "
      "(without "
      "secrets); set http.token, or listen on 127.0.0.1",
      listen);
}

}  // namespace walpost::observe
