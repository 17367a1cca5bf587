// ExpandJson - a JSON document in a text column as JSON of its own, as Debezium's Event Router and
// the schemaless JsonConverter write it.
// Why: numbers are printed as Java does, members without a type are left out, and what has no
//   common type is not expanded at all.
// Thread: a free function.
// Limits: nested no deeper than Java's parser goes; kJsonValuesMax values; four times as many steps
//   of merging; of the result JsonOutputMax. What has more goes out as it is: the elements of an
//   array share their members, so a small text could become a huge one, or take hours.
// Source: Debezium's JsonSchemaData; tests/debezium compares with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace walpost::outbox {

inline constexpr std::size_t kJsonValuesMax = 200'000;

// Numbers and characters may become up to four times as long as they were written.
constexpr std::size_t JsonOutputMax(std::size_t text_bytes) {
  constexpr std::size_t kUsual = std::size_t{16} * 1024 * 1024;
  return std::max(text_bytes * 4, std::min(text_bytes * 16, kUsual));
}

struct JsonExpansion {
  bool keep_nulls = false;         // members that are null
  bool keep_empty_arrays = false;  // members that are []
};

// Appends to `out`. False, and nothing appended, when the text is to go out as it is.
bool ExpandJson(std::string_view text, const JsonExpansion& rules, std::string* out);

}  // namespace walpost::outbox
