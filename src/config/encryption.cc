#include "config/encryption.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "config/keys.h"
#include "kafka/encryption.h"
#include "postgres/conninfo.h"
#include "postgres/encryption.h"
#include "registry/encryption.h"

namespace walpost::config {
namespace {

constexpr char kRequired[] = "security.require_encryption is true, but";

// Empty when it is right.
std::string ProblemOf(const std::string& conninfo) {
  const auto settings = postgres::ResolveConninfo(conninfo);
  const std::string why = settings.ok() ? postgres::WhyMayBeClearText(*settings)
                                        : std::string(settings.status().message());
  return why.empty()
             ? ""
             : absl::StrFormat("%s %s: write sslmode=verify-full and sslrootcert", kRequired, why);
}

}  // namespace

absl::Status CheckConninfo(const Config& config, const std::string& name,
                           const std::string& conninfo) {
  const std::string problem =
      config.require_encryption && !conninfo.empty() ? ProblemOf(conninfo) : "";
  return problem.empty() ? absl::OkStatus()
                         : absl::InvalidArgumentError(absl::StrFormat("%s: %s", name, problem));
}

void ReadSecurity(MapReader reader, Config* config) {
  reader.Choice("require_encryption", {"false", "true"}, &config->require_encryption);
  reader.Finish();
}

void CheckEncryption(MapReader* root, const Config& config) {
  if (!config.require_encryption) {
    return;
  }
  for (const Key& key : KeysOf(config)) {
    if (key.form == Key::Form::kConninfo &&
        (!key.words[0].empty() || key.path == "source.conninfo")) {  // else it is not used
      root->Problem(key.path, ProblemOf(key.words[0]));
    }
  }
  if (const std::string why = kafka::WhyMayBeClearText(config.run.kafka); !why.empty()) {
    root->Problem(
        "sink.kafka.properties",
        absl::StrFormat("%s %s: set security.protocol to SSL or SASL_SSL", kRequired, why));
  }
  if (const std::string url = registry::ClearTextUrl(config.run.registry); !url.empty()) {
    root->Problem("schema_registry.url",
                  absl::StrFormat("%s %s is not: write https://", kRequired, url));
  }
}

}  // namespace walpost::config
