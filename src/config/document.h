// Document - the YAML file as a tree of text, with variables replaced and --set applied.
// Why: yaml-cpp throws; this is the one place that catches. Scalars stay text until a typed read
//   asks, so "no", "on" and "010" mean what they say.
// Errors: kInvalidArgument with file, line and column.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/config.h"
#include "config/reader.h"

namespace walpost::config {

// KeysOf - what is shown of a configuration: all but version, name, outboxes and sink.
// Why: the functions that read the file say it, so a new key is one line of theirs.
std::vector<Key> KeysOf(Config config);

// ${NAME}, ${NAME:-default} and ${file:PATH} (without its last line break) in any scalar; $$ is a
// dollar sign. What came from files is added to `from_files`.
absl::StatusOr<std::string> Interpolate(const std::string& text,
                                        std::vector<std::string>* from_files = nullptr);

absl::StatusOr<YAML::Node> LoadDocument(const std::string& yaml, const std::string& file,
                                        const std::vector<std::string>& sets,
                                        std::vector<std::string>* from_files = nullptr);

// Adds those that are not there yet.
void AddSecrets(const std::vector<std::string>& more, std::vector<std::string>* from_files);

// What files brought is hidden anywhere in a text from this size on.
inline constexpr std::size_t kHiddenAnywhereMin = 8;

// *** in place of what files brought: also of pieces of it, since a value may be cut before it is
// shown. Of fewer than 8 bytes, which may stand there by chance, only as the whole text or between
// single quotes.
std::string Hidden(std::string text, const std::vector<std::string>& from_files);

// At most 1 MiB of it; as registry::ReadFile.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// "walpost.yaml:3:5", or "--set" for what the command line brought.
std::string Where(const std::string& file, const YAML::Node& node);

}  // namespace walpost::config
