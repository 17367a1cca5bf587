// MapReader - typed reads from one map of the document; what nobody asked for is an unknown key.
// Why: all problems of a file are reported at once, each with its place and, for a typo, the key that
//   was meant.
// Thread: one owner.   Lifetime: `problems` must outlive it.
#pragma once

#include <yaml-cpp/yaml.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace walpost::config {

struct Problems {
  std::string file;
  std::vector<std::string> lines;
  std::vector<std::string> warnings = {};  // of a file that can be used

  void Add(const YAML::Node& node, std::string_view path, std::string_view what);
  void Warn(const YAML::Node& node, std::string_view path, std::string_view what);
};

class MapReader {
 public:
  // An undefined or null node reads as an empty map; anything else that is no map is a problem.
  MapReader(YAML::Node node, std::string path, Problems* problems);

  // The child, undefined when absent. Marks `key` as known.
  YAML::Node Child(const std::string& key);

  MapReader Map(const std::string& key);

  // Leave `*value` alone when the key is absent; false then, or when the value is unusable.
  bool Text(const std::string& key, std::string* value);
  bool Duration(const std::string& key, std::chrono::milliseconds* value);
  bool Size(const std::string& key, std::size_t* value);
  // One name, or a list of names.
  bool Names(const std::string& key, std::vector<std::string>* value);
  // One of `choices`; returns its index, or `fallback` when absent.
  std::size_t Choice(const std::string& key, const std::vector<std::string>& choices,
                     std::size_t fallback);

  void Problem(const std::string& key, std::string_view what);
  std::string PathOf(const std::string& key) const;

  // Reports the keys nobody asked for, and those that stand there twice.
  void Finish();

 private:
  YAML::Node node_;
  std::string path_;
  Problems* problems_;
  std::vector<std::string> known_;
};

// "; did you mean 'slot'?" or nothing.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& choices);

}  // namespace walpost::config
