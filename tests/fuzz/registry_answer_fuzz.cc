// An input is what a Schema Registry, or anybody in its place, answers: the first byte says to which question
// and with which code, the rest is the body; or it is a schema's text.
#include <glog/logging.h>

#include <array>
#include <string>

#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "registry/answers.h"
#include "registry/schema_text.h"
#include "walpost/v1/envelope.pb.h"

namespace walpost::fuzz {
namespace {

constexpr std::size_t kShownMax = 2'000;

void CheckStatus(const absl::Status& status) {
  CHECK(status.ok() || absl::IsUnavailable(status) || absl::IsNotFound(status) ||
        absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status))
      << status;
  CHECK_LE(status.message().size(), kShownMax);
}

void CheckSchema(const std::string& text) {
  const auto theirs = registry::ReadSchema(text);
  if (!theirs) {
    return;
  }
  const auto indexes = registry::FindIndexes(*theirs, "shop.v1.Order");
  CHECK(!indexes || (!indexes->empty() && indexes->size() <= registry::kSchemaDepthMax));
  (void)registry::SameDeclarations(*v1::Envelope::descriptor()->file(), *theirs);
}

void CheckAnswer(std::uint8_t choice, std::string body) {
  constexpr std::array kCodes = {200L, 200L, 404L, 409L, 422L, 401L, 500L, 0L};
  const absl::StatusOr<registry::HttpAnswer> answer =
      registry::HttpAnswer{kCodes[choice % kCodes.size()], std::move(body), "http://registry"};
  CheckStatus(registry::StatusFrom(answer));
  const auto registered = registry::RegisteredFrom(answer);
  CheckStatus(registered.status());
  if (registered.ok()) {
    CHECK_GT(registered->id, 0);
    CHECK_GE(registered->version, 0);
    CHECK(!registered->schema.type.empty());
    CheckSchema(registered->schema.text);
  }
  const auto compatibility = registry::CompatibilityFrom(answer);
  CheckStatus(compatibility.status());
  CHECK(!compatibility.ok() || compatibility->reasons.size() <= kShownMax);
  CheckStatus(registry::GuidFrom(answer).status());
}

}  // namespace

std::vector<std::string> MoreInputs() {
  constexpr int kDeep = 100'000;
  std::string nested(1, '\0');
  nested.append(kDeep, '[');
  std::string messages(1, '\x80');
  for (int i = 0; i < 5'000; ++i) {
    messages += "message M{";
  }
  return {nested, messages};
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const walpost::fuzz::Bounds bounds;
  if ((data[0] & 0x80) != 0) {
    walpost::fuzz::CheckSchema(rest);
  } else {
    walpost::fuzz::CheckAnswer(data[0], std::move(rest));
  }
  bounds.Check();
  return 0;
}
