#include "config/document.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/text.h"
#include "config/debezium.h"
#include "registry/http.h"

namespace walpost::config {
namespace {

// Far more than any configuration needs.
constexpr int kDepthMax = 100;
constexpr std::size_t kValuesMax = 100'000;
constexpr std::size_t kFileBytesMax = std::size_t{1} << 20U;

}  // namespace

void AddSecrets(const std::vector<std::string>& more, std::vector<std::string>* from_files) {
  for (const std::string& secret : more) {
    if (std::find(from_files->begin(), from_files->end(), secret) == from_files->end()) {
      from_files->push_back(secret);
    }
  }
}

namespace {

absl::StatusOr<std::string> Resolve(const std::string& reference,
                                    std::vector<std::string>* from_files) {
  constexpr std::string_view kFile = "file:";
  if (reference.compare(0, kFile.size(), kFile) == 0) {
    absl::StatusOr<std::string> content = ReadFile(reference.substr(kFile.size()));
    if (!content.ok()) {
      return absl::InvalidArgumentError(absl::StrFormat("${%s}: the file %s", reference,
                                                        std::string(content.status().message())));
    }
    std::string text = *std::move(content);
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) {
      text.pop_back();
    }
    if (text.empty()) {  // a secret that is not there yet must not become none
      return absl::InvalidArgumentError(absl::StrFormat("${%s}: the file is empty", reference));
    }
    if (from_files != nullptr) {
      AddSecrets({text}, from_files);
    }
    return text;
  }
  const std::size_t colon = reference.find(":-");
  const std::string name = reference.substr(0, colon);
  const char* value = std::getenv(name.c_str());
  if (value != nullptr && *value != '\0') {
    return std::string(value);
  }
  if (colon != std::string::npos) {
    return reference.substr(colon + 2);
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "${%s}: the environment variable is not set; set it, or give a default with ${%s:-...}", name,
      name));
}

// An alias is the same node once more, so a node may stand inside itself, and a few lines may stand
// for more values than there is memory. Both would keep whoever walks over the tree busy forever.
absl::Status CheckExtent(const YAML::Node& node, const std::string& file, int depth,
                         std::size_t* values) {
  if (depth > kDepthMax) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: nested more than %d deep: does an alias stand inside what it stands for?",
        Where(file, node), kDepthMax));
  }
  if (++*values > kValuesMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: more than %u values, those of aliases counted each time",
                        Where(file, node), kValuesMax));
  }
  for (const auto& child : node) {
    if (node.IsMap()) {
      RETURN_IF_ERROR(CheckExtent(child.first, file, depth + 1, values));
      RETURN_IF_ERROR(CheckExtent(child.second, file, depth + 1, values));
    } else {
      RETURN_IF_ERROR(CheckExtent(child, file, depth + 1, values));
    }
  }
  return absl::OkStatus();
}

// Replaces variables in every scalar below `node`; collects problems. `seen` are the places already
// replaced: what an alias repeats must not be replaced again. `key` is of the map that `node` is
// in.
void InterpolateTree(YAML::Node node, const std::string& file, const std::string& key,
                     std::set<int>* seen, std::vector<std::string>* from_files,
                     std::string* problems) {
  if (node.IsScalar()) {
    if (!node.Mark().is_null() && !seen->insert(node.Mark().pos).second) {
      return;
    }
    const absl::StatusOr<std::string> replaced = Interpolate(node.Scalar(), from_files);
    if (!replaced.ok()) {
      *problems +=
          absl::StrFormat("%s: %s\n", Where(file, node), std::string(replaced.status().message()));
    } else if (*replaced != node.Scalar()) {
      node = *replaced;
    }
    return;
  }
  for (auto child : node) {
    if (!node.IsMap()) {
      InterpolateTree(YAML::Node(child), file, "", seen, from_files, problems);
      continue;
    }
    const std::string name = child.first.IsScalar() ? child.first.Scalar() : "";
    // Pasted as they are: their dollar signs are those of Java's expressions.
    if (key != "debezium" || !IsDebeziumPattern(name)) {
      InterpolateTree(child.second, file, name, seen, from_files, problems);
    }
  }
}

// A copy without places: what --set brings stands in no file.
YAML::Node WithoutPlaces(const YAML::Node& node) {
  YAML::Node copy(node.Type());
  if (node.IsScalar()) {
    copy = node.Scalar();
  } else if (node.IsMap()) {
    for (const auto& entry : node) {
      copy[WithoutPlaces(entry.first)] = WithoutPlaces(entry.second);
    }
  } else if (node.IsSequence()) {
    for (const YAML::Node& item : node) {
      copy.push_back(WithoutPlaces(item));
    }
  }
  return copy;
}

absl::StatusOr<YAML::Node> ParseSetValue(const std::string& set, const std::string& value) {
  try {
    const YAML::Node node = YAML::Load(value);
    std::size_t values = 0;
    if (const absl::Status status = CheckExtent(node, "value", 0, &values); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--set '%s': %s", set, std::string(status.message())));
    }
    return WithoutPlaces(node);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--set '%s': the value is no YAML: %s", set, error.msg));
  }
}

absl::Status ApplySet(const std::string& assignment, YAML::Node* root) {
  const std::size_t equals = assignment.find('=');
  // For messages: the value may be a secret.
  const std::string set = assignment.substr(0, equals);
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--set '%s': expected path.to.key=VALUE", set));
  }
  ASSIGN_OR_RETURN(const YAML::Node value, ParseSetValue(set, assignment.substr(equals + 1)));
  YAML::Node node = *root;
  const std::vector<std::string> path = absl::StrSplit(set, '.');
  for (std::size_t i = 0; i < path.size(); ++i) {
    std::size_t index = 0;
    const bool is_index = node.IsSequence() && absl::SimpleAtoi(path[i], &index);
    if (node.IsDefined() && !node.IsMap() && !node.IsNull() && !is_index) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--set '%s': '%s' is not a map here", set, path[i]));
    }
    // yaml-cpp would turn the list into a map.
    if (is_index && index > node.size()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "--set '%s': '%s' is beyond the list, which has %u", set, path[i], node.size()));
    }
    YAML::Node next = is_index ? node[index] : node[path[i]];
    if (i + 1 == path.size()) {
      next = value;
    }
    node.reset(next);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  return registry::ReadFile(path, kFileBytesMax);
}

std::string Where(const std::string& file, const YAML::Node& node) {
  const YAML::Mark mark = node.Mark();
  if (mark.is_null()) {
    return "--set";
  }
  return absl::StrFormat("%s:%d:%d", file, mark.line + 1, mark.column + 1);
}

absl::StatusOr<std::string> Interpolate(const std::string& text,
                                        std::vector<std::string>* from_files) {
  std::string result;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t dollar = text.find('$', at);
    result += text.substr(at, dollar - at);
    if (dollar == std::string::npos) {
      break;
    }
    if (text.compare(dollar, 2, "$$") == 0) {
      result += '$';
      at = dollar + 2;
    } else if (text.compare(dollar, 2, "${") == 0) {
      const std::size_t close = text.find('}', dollar);
      if (close == std::string::npos) {
        return absl::InvalidArgumentError("a '${' without its '}'");
      }
      ASSIGN_OR_RETURN(const std::string value,
                       Resolve(text.substr(dollar + 2, close - dollar - 2), from_files));
      result += value;
      at = close + 1;
    } else {
      result += '$';
      at = dollar + 1;
    }
  }
  return result;
}

std::string Hidden(std::string text, const std::vector<std::string>& from_files) {
  if (std::find(from_files.begin(), from_files.end(), text) != from_files.end()) {
    return "***";
  }
  text = base::HideRuns(text, from_files);
  for (const std::string& secret : from_files) {
    if (secret.size() < kHiddenAnywhereMin) {
      absl::StrReplaceAll({{"'" + secret + "'", "'***'"}}, &text);
    }
  }
  return text;
}

absl::StatusOr<YAML::Node> LoadDocument(const std::string& yaml, const std::string& file,
                                        const std::vector<std::string>& sets,
                                        std::vector<std::string>* from_files) {
  try {
    YAML::Node root = YAML::Load(yaml);
    if (root.IsNull()) {
      root = YAML::Node(YAML::NodeType::Map);
    }
    if (!root.IsMap()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: expected `key: value` pairs", Where(file, root)));
    }
    std::size_t values = 0;
    RETURN_IF_ERROR(CheckExtent(root, file, 0, &values));
    for (const std::string& set : sets) {
      RETURN_IF_ERROR(ApplySet(set, &root));
    }
    std::set<int> seen;
    std::string problems;
    InterpolateTree(root, file, "", &seen, from_files, &problems);
    if (!problems.empty()) {
      problems.pop_back();
      return absl::InvalidArgumentError(problems);
    }
    return root;
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrFormat("%s:%d:%d: %s", file, error.mark.line + 1,
                                                      error.mark.column + 1, error.msg));
  }
}

}  // namespace walpost::config
