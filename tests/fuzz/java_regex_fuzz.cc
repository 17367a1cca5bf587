// An input is a regular expression, a replacement and a text, each on a line of its own.
#include <glog/logging.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_split.h"
#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "outbox/java_regex.h"

namespace walpost::fuzz {
namespace {

void CheckRegex(const std::string& regex, const std::string& replacement, std::string_view text) {
  const auto made = outbox::JavaRegex::Make(regex, replacement);
  if (!made.ok()) {
    CHECK(absl::IsInvalidArgument(made.status())) << made.status();
    return;
  }
  CHECK_EQ(outbox::ForeignToJava(regex), "");
  (void)made->Pattern();
  std::string result;
  const absl::Status replaced = made->Replace(text, &result);
  CHECK(replaced.ok() || absl::IsInvalidArgument(replaced)) << replaced;
  std::string again;
  CHECK_EQ(replaced.ok(), made->Replace(text, &again).ok());
  CHECK(!replaced.ok() || again == result);
}

}  // namespace

std::vector<std::string> MoreInputs() {
  const std::string many(2'000, 'a');
  std::string groups;
  for (int i = 0; i < 2'000; ++i) {
    groups += "(";
  }
  return {"(a+)+b\n$1\n" + many, "(a|aa)+$\n$1\n" + many + "b", groups + "\n\n" + groups,
          "(.*)(.*)(.*)(.*)(.*)x\n$1$2$3$4$5\n" + many};
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::pair<std::string, std::string> first =
      absl::StrSplit(absl::string_view(all.data(), all.size()), absl::MaxSplits('\n', 1));
  const std::pair<std::string, std::string> rest =
      absl::StrSplit(first.second, absl::MaxSplits('\n', 1));
  const walpost::fuzz::Bounds bounds;
  walpost::fuzz::CheckRegex(first.first, rest.first, rest.second);
  bounds.Check();
  return 0;
}
