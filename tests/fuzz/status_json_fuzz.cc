// An input is what answers at the address of `walpost status`: the JSON of /status, or of somebody
// else.
#include <glog/logging.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "observe/http_server.h"
#include "operations/status/status.h"
#include "unit/observe/sample.h"

namespace walpost::fuzz {

std::vector<std::string> MoreInputs() {
  std::string nested = "{\"state\":";
  for (int i = 0; i < 100'000; ++i) {
    nested += "[";
  }
  return {nested, observe::RenderStatusJson(observe::Sample(), "1.2.3")};
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace operations = walpost::operations;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const walpost::fuzz::Bounds bounds;
  const nlohmann::json status =
      nlohmann::json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (status.is_object() && status.contains("state")) {
    (void)operations::StatusAsText(status, /*live=*/true);
    const operations::Judgement judgement =
        operations::JudgeStatus(status, /*live=*/true, operations::Thresholds());
    CHECK(!operations::PluginLine(judgement, status).empty());
  }
  bounds.Check();
  return 0;
}
