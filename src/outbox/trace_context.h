// TraceparentOf - the W3C traceparent in the text of Debezium's tracingspancontext column.
// Why: applications that were instrumented for Debezium write their trace context there, as a
//   properties file of Java.
// Thread: a free function.   Lifetime: the view points into the text.
// Limits: nothing is unescaped: a traceparent has no character that Java would escape, and a value
//   with a backslash is none.
// Source: Java SE, java.util.Properties.load.
#pragma once

#include <string_view>

namespace walpost::outbox {

// Empty when there is none. The last one counts, as in Java.
std::string_view TraceparentOf(std::string_view properties);

}  // namespace walpost::outbox
