// MapReader - typed reads from one map of the document; what nobody asked for is an unknown key.
// Why: all problems of a file are reported at once, each with its place and, for a typo, the key
//   that was meant. It also notes what was asked for: `config show` lets the same functions read an
//   empty map into a configuration, so what a key is called, and what it may be, stands once.
// Thread: one owner.   Lifetime: `problems` and `keys` must outlive it.
#pragma once

#include <yaml-cpp/yaml.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace walpost::config {

// Units - "16MiB", "10min": sizes and durations as people write them.
// Errors: kInvalidArgument says what is accepted.

// A whole number with ms, s, min, h or d.
absl::StatusOr<std::chrono::milliseconds> ParseDuration(std::string_view text);

// A whole number of bytes, or with B, KiB, MiB, GiB, kB, MB, GB.
absl::StatusOr<std::uint64_t> ParseSize(std::string_view text);

// The shortest exact form of each.
std::string FormatDuration(std::chrono::milliseconds duration);
std::string FormatSize(std::uint64_t bytes);

struct Problems {
  std::string file;
  std::vector<std::string> lines;
  std::vector<std::string> warnings = {};  // of a file that can be used

  void Add(const YAML::Node& node, std::string_view path, std::string_view what);
  void Warn(const YAML::Node& node, std::string_view path, std::string_view what);
};

// A key to be shown, with its value, and how.
struct Key {
  // kConninfo: without passwords. kSecret: as ***. kNames: one alone is no list. kGiven, kSecret,
  // kNames and kGivenList: not at all where the value is empty.
  enum class Form { kText, kGiven, kConninfo, kSecret, kNames, kList, kGivenList };

  std::string path;
  Form form;
  std::vector<std::string> words;  // what reads back as the same; a text is one
};

class MapReader {
 public:
  using Form = Key::Form;

  // An undefined or null node reads as an empty map; anything else that is no map is a problem.
  // `keys` gets what is to be shown, in the order in which it is asked for; null = nobody wants it.
  MapReader(YAML::Node node, std::string path, Problems* problems,
            std::vector<Key>* keys = nullptr);

  // The child, undefined when absent. Marks `key` as known.
  YAML::Node Child(const std::string& key);

  MapReader Map(const std::string& key);

  // Leave `*value` alone when the key is absent; false then, or when the value is unusable.
  bool Text(const std::string& key, std::string* value, Form form = Form::kText);
  // A maximum of 0 is none.
  bool Duration(const std::string& key, std::chrono::milliseconds* value,
                std::chrono::milliseconds min = {}, std::chrono::milliseconds max = {});
  bool Size(const std::string& key, std::size_t* value, std::size_t min = 0, std::size_t max = 0);
  // From 1 to 9999999.
  bool Count(const std::string& key, std::size_t* value);
  // One name, or a list of names.
  bool Names(const std::string& key, std::vector<std::string>* value, Form form = Form::kNames);
  // One of `choices`; returns its index, or `fallback` when absent.
  std::size_t Choice(const std::string& key, const std::vector<std::string>& choices,
                     std::size_t fallback);

  // Each choice stands for the enumerator, or the bool, at its place.
  template <typename T>
  void Choice(const std::string& key, const std::vector<std::string>& choices, T* value) {
    *value = static_cast<T>(Choice(key, choices, static_cast<std::size_t>(*value)));
  }

  // Else what is asked for from now on is not shown.
  void ShowOnlyIf(bool shown) { keys_ = shown ? keys_ : nullptr; }

  // Nothing where `what` is empty.
  void Problem(const std::string& key, std::string_view what);
  std::string PathOf(const std::string& key) const;

  // Reports the keys nobody asked for, and those that stand there twice.
  void Finish();

 private:
  void Note(const std::string& key, Form form, std::vector<std::string> words);
  bool ReadText(const std::string& key, std::string* value);
  bool ReadNames(const std::string& key, std::vector<std::string>* value);

  YAML::Node node_;
  std::string path_;
  Problems* problems_;
  std::vector<Key>* keys_;
  std::vector<std::string> known_;
};

// "; did you mean 'slot'?" or nothing.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& choices);

}  // namespace walpost::config
