// An input is a configuration file. It is rejected with a reason, or read; what was read and is
// shown reads back as the same.
#include <glog/logging.h>

#include <fstream>
#include <iterator>
#include <string>

#include "config/config.h"
#include "fuzz/fuzz_target.h"

namespace walpost::fuzz {
namespace {

// What would leave memory: ${file:...} and a library that librdkafka would load.
bool ReachesOut(const std::string& yaml) {
  return yaml.find("file:") != std::string::npos || yaml.find("plugin") != std::string::npos;
}

void CheckConfig(const std::string& yaml) {
  if (ReachesOut(yaml)) {
    return;
  }
  const auto config = config::Parse(yaml, "fuzz.yaml", {});
  if (!config.ok()) {
    CHECK(absl::IsInvalidArgument(config.status())) << config.status();
    CHECK(!config.status().message().empty());
    return;
  }
  const std::string shown = config::Show(*config);
  // Bytes that are not UTF-8 (a password may hold them) have no form in YAML.
  const bool lost = shown.find("\xef\xbf\xbd") != std::string::npos;
  if (lost || ReachesOut(shown)) {
    return;
  }
  const auto again = config::Parse(shown, "shown.yaml", {});
  CHECK(again.ok()) << again.status() << "\n" << shown;
  CHECK_EQ(config::Show(*again), shown);
}

}  // namespace

std::vector<std::string> MoreInputs() {
  std::ifstream file(WALPOST_SHIPPED_FILE, std::ios::binary);
  CHECK(file.is_open()) << WALPOST_SHIPPED_FILE;
  return {std::string(std::istreambuf_iterator<char>(file), {})};
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  walpost::fuzz::CheckConfig(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
