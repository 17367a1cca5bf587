#include "outbox/headers_column.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace walpost::outbox {

absl::StatusOr<std::span<const Header>> HeadersColumn::Parse(std::string_view json) {
  headers_.clear();
  texts_.clear();
  if (json == "{}") {
    return std::span<const Header>();
  }
  const auto object = nlohmann::ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError("headers are not a JSON object");
  }
  for (const auto& [name, value] : object.items()) {
    if (name.empty()) {
      return absl::InvalidArgumentError("a header has an empty name");
    }
    if (value.is_object() || value.is_array()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "header '%s' is an object or array; only text, numbers and booleans can be headers",
          name));
    }
    if (!value.is_null()) {
      texts_.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  for (const auto& [name, value] : texts_) {
    headers_.push_back(Header{name, value});
  }
  return std::span<const Header>(headers_);
}

}  // namespace walpost::outbox
