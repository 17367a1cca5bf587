#include "base/loopback.h"

#include <algorithm>

namespace walpost::base {

bool IsLoopbackHost(std::string_view host) {
  // "127.evil.example" is a name.
  const bool number = std::all_of(host.begin(), host.end(),
                                  [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
  return host == "localhost" || host == "::1" || host == "[::1]" ||
         (number && host.rfind("127.", 0) == 0);
}

}  // namespace walpost::base
