// What verbs say about one dead letter, in words and as JSON.
// Thread: free functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/printable.h"
#include "operations/deadletters/dlq.h"
#include "outbox/kept_row.h"

namespace walpost::operations {

using DeadLetterJson = nlohmann::ordered_json;

using base::Printable;

// "1 event", "2 events".
std::string Count(std::size_t count, std::string_view noun);

// Milliseconds since 1970 as RFC 3339 in UTC.
std::string TimeText(std::int64_t milliseconds);

// "dead_letter" or "parked", or how it was closed.
std::string StateName(const base::DeadLetter& row);

// All that is known, but for value and headers.
DeadLetterJson AsJson(const base::DeadLetter& row);

// Each column as the server shows it; what has no form that walpost knows, in hexadecimal.
DeadLetterJson AsJson(const outbox::KeptRow& row);

// Bytes that are not UTF-8 are replaced.
std::string Dump(const DeadLetterJson& json);

}  // namespace walpost::operations
