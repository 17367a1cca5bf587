// Event - one outbox row, by meaning instead of by column.
// Thread: a value.
// Lifetime: every view points into the frame that was decoded or into the TableMapper's scratch,
//   and ends with the mapper's next Map call.
// Units: text fields are UTF-8 unless the database is SQL_ASCII; payload is raw bytes, exactly as
//   stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/time.h"

namespace walpost::outbox {

// A row or message with more headers is no event: each takes memory beside its bytes.
constexpr std::size_t kHeadersMax = 1'000;

struct Header {
  std::string_view name;
  std::string_view value;
  bool null = false;  // a header without a value, which is not the empty one
};

// What the payload's column says about it.
enum class PayloadForm { kBytes, kText, kJson };

struct Event {
  std::string_view id;
  std::optional<std::string_view> key;  // NULL stays null: no key is not the empty key
  std::string_view aggregate_type;
  std::string_view type;
  std::optional<std::string_view> payload;
  PayloadForm payload_form = PayloadForm::kBytes;
  std::string_view content_type;  // empty = not given
  std::string_view schema_name;
  std::string_view traceparent;
  std::string_view tracestate;
  std::string_view baggage;
  std::string_view tracingspancontext;  // as Debezium's outbox extensions write it
  std::optional<base::WallTime> occurred_at;
  std::optional<base::WallTime> timestamp;  // of the record, instead of the commit's
  std::string_view topic;                   // already expanded and checked
  std::int32_t partition = -1;              // -1 = by key
  std::span<const Header> headers;          // from the headers column, in its order
  std::span<const Header> record_headers;   // from TableOptions::record_headers
  std::string_view schema;
  std::string_view table;
};

}  // namespace walpost::outbox
