#include "support/golden_messages.h"

#include <glog/logging.h>

#include <fstream>
#include <string_view>

namespace walpost::testing {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

std::string FromHex(const std::string& line) {
  std::string bytes;
  for (std::size_t i = 0; i < line.size(); i += 2) {
    bytes.push_back(
        static_cast<char>(kHexDigits.find(line[i]) * 16 + kHexDigits.find(line[i + 1])));
  }
  return bytes;
}

}  // namespace

std::vector<std::string> GoldenMessages(const std::string& name) {
  const std::string path = std::string(WALPOST_GOLDEN_FOLDER) + "/" + name + ".hex";
  std::ifstream file(path);
  CHECK(file.is_open()) << path;
  std::vector<std::string> messages;
  for (std::string line; std::getline(file, line);) {
    CHECK(!line.empty() && line.size() % 2 == 0 &&
          line.find_first_not_of(kHexDigits) == std::string::npos)
        << path << ", line " << messages.size() + 1;
    messages.push_back(FromHex(line));
  }
  CHECK(!messages.empty()) << path;
  return messages;
}

}  // namespace walpost::testing
