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

}  // namespace walpost::base
