// An input is the file of a Debezium connector: JSON or properties. It is rejected with a reason,
// or becomes YAML that loads; and what stood only under names of secrets does not come out.
#include <glog/logging.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/text.h"
#include "config/connector_file.h"
#include "config/import_debezium.h"
#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"

namespace walpost::fuzz {
namespace {

constexpr std::string_view kSecret = "s3cret";  // in the passwords of the corpus

bool Holds(const std::string& text) { return text.find(kSecret) != std::string::npos; }

// Whether a setting that may be shown holds the secret, too.
bool MayBeShown(const std::string& text) {
  const auto file = config::ReadConnectorFile(text);
  if (!file.ok()) {
    return false;
  }
  // What is no setting is named; a mutation may have made a name of the secret.
  if (std::any_of(file->notes.begin(), file->notes.end(), Holds)) {
    return true;
  }
  for (const auto* settings : {&file->settings, &file->producer}) {
    for (const auto& [name, value] : *settings) {
      if (Holds(name) || (Holds(value) && !base::PropertyMayHoldSecret(name))) {
        return true;
      }
    }
  }
  return false;
}

void CheckImport(const std::string& text) {
  const auto imported = config::ImportDebezium(text);
  if (!imported.ok()) {
    CHECK(absl::IsInvalidArgument(imported.status())) << imported.status();
    CHECK(!imported.status().message().empty());
    return;
  }
  try {
    CHECK(YAML::Load(imported->yaml).IsMap()) << imported->yaml;
  } catch (const YAML::Exception& error) {
    LOG(FATAL) << error.what() << "\n" << imported->yaml;
  }
  if (MayBeShown(text)) {
    return;
  }
  CHECK(!Holds(imported->yaml)) << imported->yaml;
  for (const std::string& note : imported->notes) {
    CHECK(!Holds(note)) << note;
  }
}

}  // namespace

std::vector<std::string> MoreInputs() {
  std::string nested = R"({"name":"n","config":)";
  nested.append(100'000, '[');
  return {nested};
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const walpost::fuzz::Bounds bounds;
  walpost::fuzz::CheckImport(std::string(reinterpret_cast<const char*>(data), size));
  bounds.Check();
  return 0;
}
