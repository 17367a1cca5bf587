#include "base/secret.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace walpost::base {

bool MayHoldSecret(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const std::string_view path : {".location", ".path", "_file", ".file"}) {
    if (lower.size() > path.size() &&
        lower.compare(lower.size() - path.size(), path.size(), path) == 0) {
      return false;
    }
  }
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
