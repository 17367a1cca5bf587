#include "config/reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "config/document.h"

namespace walpost::config {
namespace {

using Unit = std::pair<std::string_view, std::uint64_t>;

constexpr Unit kDurations[] = {
    {"ms", 1}, {"s", 1'000}, {"min", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};
constexpr Unit kSizes[] = {{"", 1},
                           {"B", 1},
                           {"KiB", 1ULL << 10},
                           {"MiB", 1ULL << 20},
                           {"GiB", 1ULL << 30},
                           {"kB", 1'000},
                           {"MB", 1'000'000},
                           {"GB", 1'000'000'000}};

// A whole number, then one of `units`.
template <std::size_t N>
bool Parse(std::string_view text, const Unit (&units)[N], std::uint64_t* value) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc()) {
    return false;
  }
  std::string_view unit(result.ptr, static_cast<std::size_t>(end - result.ptr));
  while (!unit.empty() && unit[0] == ' ') {
    unit.remove_prefix(1);
  }
  for (const auto& [name, factor] : units) {
    if (unit == name && number <= std::numeric_limits<std::int64_t>::max() / factor) {
      *value = number * factor;
      return true;
    }
  }
  return false;
}

template <std::size_t N>
std::string Format(std::uint64_t value, const Unit (&units)[N], std::string_view first) {
  std::string best = absl::StrFormat("%u%s", value, first);
  std::uint64_t best_factor = 1;
  for (const auto& [name, factor] : units) {
    if (value != 0 && value % factor == 0 && factor > best_factor) {
      best = absl::StrFormat("%u%s", value / factor, name);
      best_factor = factor;
    }
  }
  return best;
}

}  // namespace

absl::StatusOr<std::chrono::milliseconds> ParseDuration(std::string_view text) {
  std::uint64_t value = 0;
  if (!Parse(text, kDurations, &value)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is not a duration: write a whole number with ms, s, min, h or d, such as 25s", text));
  }
  return std::chrono::milliseconds(value);
}

absl::StatusOr<std::uint64_t> ParseSize(std::string_view text) {
  std::uint64_t value = 0;
  if (!Parse(text, kSizes, &value)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is not a size: write a whole number with KiB, MiB or GiB, such as 16MiB", text));
  }
  return value;
}

std::string FormatDuration(std::chrono::milliseconds duration) {
  return Format(static_cast<std::uint64_t>(duration.count()), kDurations, "ms");
}

std::string FormatSize(std::uint64_t bytes) { return Format(bytes, kSizes, ""); }

namespace {

using std::chrono::milliseconds;

// Longer ones do not fit into a clock of nanoseconds: a time far ahead would count as past.
constexpr std::chrono::hours kDurationMax{24 * 365};

// Levenshtein's distance.
std::size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

// yaml-cpp answers a missing key with a node that throws when it is asked anything but IsDefined.
YAML::Node Lookup(const YAML::Node& map, const std::string& key) {
  const YAML::Node child = map[key];
  return child.IsDefined() ? child : YAML::Node(YAML::NodeType::Undefined);
}

// What is wrong with it; empty = nothing.
template <typename T, typename Format>
std::string OutOfRange(T value, T min, T max, Format format) {
  const bool limited = max != T{};
  if (value >= min && (!limited || value <= max)) {
    return "";
  }
  return !limited     ? "must be at least " + format(min)
         : min == T{} ? absl::StrFormat("must be %s at most", format(max))
                      : absl::StrFormat("must be between %s and %s", format(min), format(max));
}

}  // namespace

std::string DidYouMean(std::string_view word, const std::vector<std::string>& choices) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& choice : choices) {
    const std::size_t distance = Distance(word, choice);
    if (distance < best_distance) {
      best = choice;
      best_distance = distance;
    }
  }
  return best.empty() ? "" : absl::StrFormat("; did you mean '%s'?", best);
}

void Problems::Add(const YAML::Node& node, std::string_view path, std::string_view what) {
  lines.push_back(absl::StrFormat("%s: %s: %s", Where(file, node), path, what));
}

void Problems::Warn(const YAML::Node& node, std::string_view path, std::string_view what) {
  warnings.push_back(absl::StrFormat("%s: %s: %s", Where(file, node), path, what));
}

MapReader::MapReader(YAML::Node node, std::string path, Problems* problems, std::vector<Key>* keys)
    : node_(std::move(node)), path_(std::move(path)), problems_(problems), keys_(keys) {
  if (node_.IsDefined() && !node_.IsNull() && !node_.IsMap()) {
    problems_->Add(node_, path_, "expected a map of keys");
    node_.reset(YAML::Node(YAML::NodeType::Map));
  }
}

YAML::Node MapReader::Child(const std::string& key) {
  known_.push_back(key);
  if (!node_.IsDefined() || node_.IsNull()) {
    return YAML::Node(YAML::NodeType::Undefined);
  }
  return Lookup(node_, key);
}

MapReader MapReader::Map(const std::string& key) {
  return MapReader(Child(key), PathOf(key), problems_, keys_);
}

bool MapReader::ReadText(const std::string& key, std::string* value) {
  const YAML::Node child = Child(key);
  if (!child.IsDefined()) {
    return false;
  }
  if (child.IsNull()) {
    value->clear();
    return true;
  }
  if (!child.IsScalar()) {
    problems_->Add(child, PathOf(key), "expected one value");
    return false;
  }
  *value = child.Scalar();
  return true;
}

bool MapReader::Text(const std::string& key, std::string* value, Form form) {
  const bool read = ReadText(key, value);
  Note(key, form, {*value});
  return read;
}

bool MapReader::Duration(const std::string& key, milliseconds* value, milliseconds min,
                         milliseconds max) {
  std::string text;
  bool read = ReadText(key, &text);
  if (read) {
    const auto parsed = ParseDuration(text);
    read = parsed.ok() && *parsed <= kDurationMax;
    *value = read ? *parsed : *value;
    Problem(key, !parsed.ok() ? std::string(parsed.status().message())
                 : !read      ? "must be 365d at most"
                              : OutOfRange(*value, min, max, FormatDuration));
  }
  Note(key, Form::kText, {FormatDuration(*value)});
  return read;
}

bool MapReader::Size(const std::string& key, std::size_t* value, std::size_t min, std::size_t max) {
  std::string text;
  bool read = ReadText(key, &text);
  if (read) {
    const auto parsed = ParseSize(text);
    read = parsed.ok();
    *value = read ? *parsed : *value;
    Problem(key, !read ? std::string(parsed.status().message())
                       : OutOfRange(*value, min, max, FormatSize));
  }
  Note(key, Form::kText, {FormatSize(*value)});
  return read;
}

bool MapReader::Count(const std::string& key, std::size_t* value) {
  std::string text;
  int number = 0;
  bool read = ReadText(key, &text);
  if (read) {
    read = text.size() <= 7 && std::all_of(text.begin(), text.end(), ::isdigit) &&
           absl::SimpleAtoi(text, &number) && number > 0;
    *value = read ? static_cast<std::size_t>(number) : *value;
    Problem(key, read ? "" : "must be a whole number from 1 to 9999999");
  }
  Note(key, Form::kText, {std::to_string(*value)});
  return read;
}

bool MapReader::ReadNames(const std::string& key, std::vector<std::string>* value) {
  const YAML::Node child = Child(key);
  if (!child.IsDefined()) {
    return false;
  }
  value->clear();
  if (child.IsScalar()) {
    value->push_back(child.Scalar());
    return true;
  }
  if (child.IsNull()) {
    return true;
  }
  if (!child.IsSequence()) {
    problems_->Add(child, PathOf(key), "expected a name or a list of names");
    return false;
  }
  for (const YAML::Node& name : child) {
    if (!name.IsScalar()) {
      problems_->Add(name, PathOf(key), "expected a list of names");
      return false;
    }
    value->push_back(name.Scalar());
  }
  return true;
}

bool MapReader::Names(const std::string& key, std::vector<std::string>* value, Form form) {
  const bool read = ReadNames(key, value);
  Note(key, form, *value);
  return read;
}

std::size_t MapReader::Choice(const std::string& key, const std::vector<std::string>& choices,
                              std::size_t fallback) {
  std::string text = choices[fallback];
  ReadText(key, &text);
  auto found = std::find(choices.begin(), choices.end(), text);
  if (found == choices.end()) {
    Problem(key, absl::StrFormat("'%s' is none of %s%s", text, absl::StrJoin(choices, ", "),
                                 DidYouMean(text, choices)));
    found = choices.begin() + static_cast<std::ptrdiff_t>(fallback);
  }
  Note(key, Form::kText, {*found});
  return static_cast<std::size_t>(found - choices.begin());
}

void MapReader::Note(const std::string& key, Form form, std::vector<std::string> words) {
  const bool left_out = ((form == Form::kGiven || form == Form::kSecret) && words[0].empty()) ||
                        ((form == Form::kNames || form == Form::kGivenList) && words.empty());
  if (keys_ != nullptr && !left_out) {
    keys_->push_back({PathOf(key), form, std::move(words)});
  }
}

void MapReader::Problem(const std::string& key, std::string_view what) {
  if (what.empty()) {
    return;
  }
  const YAML::Node child =
      node_.IsMap() ? Lookup(node_, key) : YAML::Node(YAML::NodeType::Undefined);
  if (child.IsDefined()) {
    problems_->Add(child, PathOf(key), what);
  } else {
    problems_->lines.push_back(absl::StrFormat("%s: %s: %s", problems_->file, PathOf(key), what));
  }
}

std::string MapReader::PathOf(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

void MapReader::Finish() {
  if (!node_.IsMap()) {
    return;
  }
  std::vector<std::string> seen;
  for (const auto& entry : node_) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "(not a name)";
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) {
      problems_->Add(entry.first, PathOf(key), "stands here a second time");
      continue;
    }
    seen.push_back(key);
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      problems_->Add(entry.first, PathOf(key), "unknown key" + DidYouMean(key, known_));
    }
  }
}

}  // namespace walpost::config
