#include "registry/encryption.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_format.h"
#include "base/loopback.h"

namespace walpost::registry {

std::string ClearTextUrl(const RegistryOptions& options) {
  constexpr std::string_view kClear = "http://";
  for (const std::string& url : options.urls) {
    if (url.rfind(kClear, 0) != 0) {
      continue;
    }
    const std::string_view rest = std::string_view(url).substr(kClear.size());
    const std::size_t bracket = rest.find(']');
    const std::size_t end = bracket != std::string_view::npos && rest[0] == '['
                                ? bracket + 1
                                : rest.find_first_of(":/");
    if (!base::IsLoopbackHost(rest.substr(0, end))) {
      return url;
    }
  }
  return "";
}

std::string ClearTextWarning(const RegistryOptions& options) {
  const std::string url = ClearTextUrl(options);
  return url.empty()
             ? ""
             : absl::StrFormat(
                   "the Schema Registry is asked in clear text at %s: whoever is on the way can "
                   "change schemas' ids, and take passwords; write https:// in "
                   "schema_registry.url",
                   url);
}

}  // namespace walpost::registry
