#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace walpost::config {
namespace {

// A list is one value; what is on one side only is a node that is not defined.
void Compare(const YAML::Node& before, const YAML::Node& now, const std::string& path,
             std::vector<std::string>* changed) {
  if (before && now && before.IsMap() && now.IsMap()) {
    std::set<std::string> keys;
    for (const YAML::Node& node : {before, now}) {
      for (const auto& member : node) {
        keys.insert(member.first.Scalar());
      }
    }
    for (const std::string& key : keys) {
      Compare(before[key], now[key], path.empty() ? key : path + "." + key, changed);
    }
    return;
  }
  const auto text = [](const YAML::Node& node) { return node ? YAML::Dump(node) : std::string(); };
  if (text(before) != text(now)) {
    changed->push_back(path);
  }
}

}  // namespace

std::vector<std::string> KeysThatNeedRestart(const Config& before, const Config& now) {
  std::vector<std::string> changed;
  Compare(YAML::Load(ShowToCompare(InForce(before, now))), YAML::Load(ShowToCompare(now)), "",
          &changed);
  std::erase_if(changed, [&](const std::string& path) {
    // What is left of them follows from other keys. A registry that was not there is taken.
    return path.rfind("sink.kafka.properties", 0) == 0 ||
           (path == "schema_registry.refresh" && before.run.registry.urls.empty());
  });
  // What is shown as *** looks the same before and after.
  const auto headers = [](const Config& config) {
    std::vector<std::vector<std::pair<std::string, std::string>>> all;
    for (const envelope::OutboxOptions& outbox : config.run.pipeline.outboxes) {
      all.push_back(outbox.encoder.constant_headers);
    }
    return all;
  };
  if (headers(before) != headers(now) &&
      std::find(changed.begin(), changed.end(), "outboxes") == changed.end()) {
    changed.push_back("outboxes");
  }
  return changed;
}

// How the world is reached, and how much is logged.
Config InForce(const Config& before, const Config& now) {
  Config config = before;
  config.log_level = now.log_level;
  config.require_encryption = now.require_encryption;
  config.run.source.conninfo = now.run.source.conninfo;
  config.run.dead_letter_conninfo = now.run.dead_letter_conninfo;
  config.run.kafka.properties = now.run.kafka.properties;
  config.run.registry = now.run.registry;
  config.run.registry.refresh = before.run.registry.refresh;
  config.run.http.token = now.run.http.token;
  config.from_files.insert(config.from_files.end(), now.from_files.begin(), now.from_files.end());
  config.run.kafka.secrets = config.from_files;
  return config;
}

}  // namespace walpost::config
