#include "outbox/headers_column.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <tuple>

#include "absl/strings/str_format.h"
#include "base/text.h"

namespace walpost::outbox {
namespace {

using Texts = std::vector<std::pair<std::string, std::optional<std::string>>>;

// Takes one flat object as the parser walks over it: a parsed document would round numbers.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(Texts* texts) : texts_(texts) {}

  // Empty when the text is not a JSON object at all.
  const std::string& error() const { return error_; }

  bool null() override { return Take(std::nullopt); }

  bool boolean(bool value) override { return Take(value ? "true" : "false"); }

  bool number_integer(number_integer_t value) override { return Take(std::to_string(value)); }

  bool number_unsigned(number_unsigned_t value) override { return Take(std::to_string(value)); }

  bool number_float(number_float_t, const string_t& digits) override { return Take(digits); }

  bool string(string_t& value) override { return Take(std::move(value)); }

  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override {
    if (in_object_) {
      return Nested();
    }
    in_object_ = true;
    return true;
  }

  bool key(string_t& name) override {
    name_ = std::move(name);
    if (name_.empty()) {
      error_ = "a header has an empty name";
    } else if (texts_->size() == kHeadersMax) {
      error_ = absl::StrFormat("there are more than %u headers", kHeadersMax);
    }
    return error_.empty();
  }

  bool end_object() override { return true; }

  bool start_array(std::size_t) override { return in_object_ && Nested(); }

  bool end_array() override { return true; }

  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception& error) override {
    constexpr int kNumberOverflow = 406;
    if (error.id == kNumberOverflow && in_object_) {
      error_ = absl::StrFormat("header '%s' is a number too large to be read; write it as text",
                               base::Cut(name_));
    }
    return false;
  }

 private:
  bool Take(std::optional<std::string> value) {
    if (in_object_) {
      texts_->emplace_back(std::move(name_), std::move(value));
    }
    return in_object_;
  }

  bool Nested() {
    error_ = absl::StrFormat(
        "header '%s' is an object or array; only text, numbers and booleans can be headers",
        base::Cut(name_));
    return false;
  }

  Texts* const texts_;
  bool in_object_ = false;
  std::string name_;
  std::string error_;
};

// The type json may hold a name twice; the last one counts, as in jsonb.
void DropAllButTheLast(Texts* texts) {
  std::vector<Texts::value_type*> by_name;
  for (auto& text : *texts) {
    by_name.push_back(&text);
  }
  std::sort(by_name.begin(), by_name.end(), [](const auto* a, const auto* b) {
    return std::tie(a->first, a) < std::tie(b->first, b);
  });
  for (std::size_t i = 0; i + 1 < by_name.size(); ++i) {
    if (by_name[i]->first == by_name[i + 1]->first) {
      by_name[i]->second.reset();
    }
  }
}

}  // namespace

absl::StatusOr<std::span<const Header>> HeadersColumn::Parse(std::string_view json) {
  headers_.clear();
  texts_.clear();
  if (json == "{}" || json == "null") {
    return std::span<const Header>();
  }
  HeaderReader reader(&texts_);
  if (!nlohmann::json::sax_parse(json, &reader)) {
    return absl::InvalidArgumentError(reader.error().empty() ? "headers are not a JSON object"
                                                             : reader.error());
  }
  DropAllButTheLast(&texts_);
  for (const auto& [name, value] : texts_) {
    if (value) {
      headers_.push_back(Header{name, *value});
    }
  }
  return std::span<const Header>(headers_);
}

namespace {

constexpr std::string_view kBlank = " \t\f";
constexpr std::string_view kName = "traceparent";

std::string_view TrimLeft(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kBlank), text.size()));
}

// An odd number of backslashes at its end: the next line belongs to this one.
bool GoesOn(std::string_view line) {
  const std::size_t last = line.find_last_not_of('\\');
  const std::size_t backslashes =
      last == std::string_view::npos ? line.size() : line.size() - last - 1;
  return backslashes % 2 == 1;
}

// Of one whole line; nothing when it is about something else.
std::string_view ValueIn(std::string_view line) {
  if (line.substr(0, kName.size()) != kName) {
    return {};
  }
  line.remove_prefix(kName.size());
  const std::size_t blank = line.size();
  line = TrimLeft(line);
  const bool separated = line.size() < blank;
  if (!line.empty() && (line[0] == '=' || line[0] == ':')) {
    line = TrimLeft(line.substr(1));
  } else if (!separated) {
    return {};  // a longer name
  }
  return line.find('\\') == std::string_view::npos ? line : std::string_view();
}

}  // namespace

std::string_view TraceparentOf(std::string_view properties) {
  std::string_view found;
  bool continued = false;
  while (!properties.empty()) {
    const std::size_t end = std::min(properties.find_first_of("\r\n"), properties.size());
    const std::string_view line = TrimLeft(properties.substr(0, end));
    properties.remove_prefix(std::min(end + 1, properties.size()));
    const bool comment = !continued && !line.empty() && (line[0] == '#' || line[0] == '!');
    if (!continued && !comment) {
      if (const std::string_view value = ValueIn(line); !value.empty()) {
        found = value;
      }
    }
    // A "\r\n" after a backslash is one end of line, and a comment never goes on.
    const bool half = line.empty() && continued;
    continued = half ? continued : !comment && GoesOn(line);
  }
  return found;
}

}  // namespace walpost::outbox
