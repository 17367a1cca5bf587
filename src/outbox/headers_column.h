// HeadersColumn - a json or jsonb object as a list of headers, in its own order.
// Thread: one owner.   Lifetime: the span lives until the next Parse.
// Errors: kInvalidArgument when the text is not an object, a name is empty, a value is an object
//   or an array, or there are more than kHeadersMax. Strings are taken as they are; numbers, true
//   and false as JSON writes them; null members are left out.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "outbox/event.h"

namespace walpost::outbox {

class HeadersColumn {
 public:
  absl::StatusOr<std::span<const Header>> Parse(std::string_view json);

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> texts_;
  std::vector<Header> headers_;
};

// TraceparentOf - the W3C traceparent in the text of Debezium's tracingspancontext column.
// Why: applications that were instrumented for Debezium write their trace context there, as a
//   properties file of Java.
// Thread: a free function.   Lifetime: the view points into the text.
// Limits: nothing is unescaped: a traceparent has no character that Java would escape, and a value
//   with a backslash is none.
// Source: Java SE, java.util.Properties.load.

// Empty when there is none. The last one counts, as in Java.
std::string_view TraceparentOf(std::string_view properties);

}  // namespace walpost::outbox
