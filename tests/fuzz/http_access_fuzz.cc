// An input is what a stranger may put into a request's headers, and an operator into http:
// Authorization, the token, Host, http.listen, a line each. Nobody is let in who does not know the
// token, and no foreign site's name is taken for ours.
#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "observe/http_client.h"

namespace walpost::fuzz {
namespace {

// A token has no other characters.
std::string TokenOf(const std::string& text) {
  std::string token;
  std::copy_if(text.begin(), text.end(), std::back_inserter(token),
               [](char c) { return c > 0x20 && c < 0x7f; });
  return token.empty() ? "t" : token;
}

void CheckAdmits(const std::string& authorization, const std::string& token) {
  CHECK(observe::Admits("Bearer " + token, token));
  CHECK(observe::Admits("basic " + absl::Base64Escape("any:" + token), token));
  CHECK(!observe::Admits("Bearer " + token + "x", token));
  CHECK(!observe::Admits("", token));
  if (!observe::Admits(authorization, token)) {
    return;
  }
  // Who is let in has said it, as it is or in Base64.
  std::string pair;
  const std::size_t space = authorization.find(' ');  // others are left out of Base64
  const bool decoded =
      space != std::string::npos && absl::Base64Unescape(authorization.substr(space + 1), &pair);
  CHECK(absl::EndsWith(authorization, token) || (decoded && absl::EndsWith(pair, ":" + token)))
      << authorization;
}

void CheckHost(const std::string& host) {
  for (const char* site : {".evil.example", ".evil.example:9464", ".evil.example."}) {
    CHECK(!observe::IsOwnHost(host + site, {})) << host << site;
  }
  if (host.find_first_of(":[]") == std::string::npos && !absl::EndsWith(host, ".")) {
    CHECK(observe::IsOwnHost(host, {host})) << host;
    CHECK(observe::IsOwnHost(host + ":9464", {host})) << host;
  }
}

void CheckListen(const std::string& listen) {
  if (const auto url = observe::UrlOf(listen); url.ok()) {
    CHECK(absl::StartsWith(*url, "http://")) << listen;
  }
  const auto addresses = observe::ParseListen(listen);
  if (!addresses.ok()) {
    CHECK(absl::IsInvalidArgument(addresses.status())) << addresses.status();
    return;
  }
  for (const observe::ListenAddress& address : *addresses) {
    CHECK(!address.port.empty() &&
          address.port.find_first_not_of("0123456789") == std::string::npos)
        << listen;
    CHECK_LE(std::stoul(address.port.substr(0, 9)), 65'535U) << listen;
  }
}

}  // namespace

std::vector<std::string> MoreInputs() { return {}; }

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const walpost::fuzz::Bounds bounds;
  std::vector<std::string> lines =
      absl::StrSplit(std::string(reinterpret_cast<const char*>(data), size), '\n');
  lines.resize(std::max<std::size_t>(lines.size(), 4));
  walpost::fuzz::CheckAdmits(lines[0], walpost::fuzz::TokenOf(lines[1]));
  walpost::fuzz::CheckHost(lines[2]);
  walpost::fuzz::CheckListen(lines[3]);
  bounds.Check();
  return 0;
}
