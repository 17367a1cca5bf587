#include "config/encryption.h"

#include <utility>

#include "absl/strings/str_format.h"
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

void ReadSecurity(MapReader reader, MapReader* root, Config* config) {
  config->require_encryption = reader.Choice("require_encryption", {"false", "true"}, 0) == 1;
  reader.Finish();
  if (!config->require_encryption) {
    return;
  }
  const std::pair<const char*, const std::string&> databases[] = {
      {"source.conninfo", config->run.source.conninfo},
      {"delivery.dead_letter_conninfo", config->run.dead_letter_conninfo},
      {"monitor.conninfo", config->run.monitor.conninfo}};
  for (const auto& [name, conninfo] : databases) {
    const bool unused = conninfo.empty() && &conninfo != &config->run.source.conninfo;
    if (const std::string why = unused ? "" : ProblemOf(conninfo); !why.empty()) {
      root->Problem(name, why);
    }
  }
  if (const std::string why = kafka::WhyMayBeClearText(config->run.kafka); !why.empty()) {
    root->Problem(
        "sink.kafka.properties",
        absl::StrFormat("%s %s: set security.protocol to SSL or SASL_SSL", kRequired, why));
  }
  if (const std::string url = registry::ClearTextUrl(config->run.registry); !url.empty()) {
    root->Problem("schema_registry.url",
                  absl::StrFormat("%s %s is not: write https://", kRequired, url));
  }
}

}  // namespace walpost::config
