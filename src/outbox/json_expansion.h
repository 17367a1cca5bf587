// ExpandJson - a JSON document in a text column as JSON of its own, as Debezium's Event Router and
// the schemaless JsonConverter write it.
// Why: numbers are printed as Java does, members without a type are left out, and what has no
//   common type is not expanded at all.
// Thread: a free function.
// Limits: nested no deeper than Java's parser goes.
// Source: Debezium's JsonSchemaData; tests/debezium compares with it.
#pragma once

#include <string>
#include <string_view>

namespace walpost::outbox {

struct JsonExpansion {
  bool keep_nulls = false;         // members that are null
  bool keep_empty_arrays = false;  // members that are []
};

// Appends to `out`. False, and nothing appended, when the text is to go out as it is.
bool ExpandJson(std::string_view text, const JsonExpansion& rules, std::string* out);

}  // namespace walpost::outbox
