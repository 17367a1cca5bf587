#include "base/secret.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace walpost::base {

namespace {

std::string Lower(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

}  // namespace

bool MayHoldSecret(std::string_view name) {
  const std::string lower = Lower(name);
  constexpr std::string_view kWords[] = {"pass",
                                         "secret",
                                         "token",
                                         "key",
                                         "cred",
                                         "auth",
                                         "cookie",
                                         "cmd",
                                         "bearer",
                                         "jaas",
                                         "sasl.oauthbearer.config"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view word) { return lower.find(word) != std::string::npos; });
}

bool PropertyMayHoldSecret(std::string_view name) {
  const std::string lower = Lower(name);
  constexpr std::string_view kPaths[] = {".location", ".path", "_file", ".file"};
  const bool path = std::any_of(std::begin(kPaths), std::end(kPaths), [&](std::string_view end) {
    return lower.ends_with(end) && lower != end;
  });
  return !path && MayHoldSecret(name);
}

std::string HideRuns(std::string_view text, std::string_view secret) {
  constexpr std::size_t kRunMin = 8;
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t run = kRunMin;
    if (at + run > text.size() || secret.find(text.substr(at, run)) == secret.npos) {
      shown += text[at++];
      continue;
    }
    while (at + run < text.size() && secret.find(text.substr(at, run + 1)) != secret.npos) {
      ++run;
    }
    shown += "***";
    at += run;
  }
  return shown;
}

}  // namespace walpost::base
