// GoldenMessages - pgoutput payloads captured from real servers, see
// tests/unit/pgoutput/golden/README.md.
// Errors: CHECK-fails when a file is missing or is not hex.
#pragma once

#include <string>
#include <vector>

namespace walpost::testing {

// "v15-text", "v15-binary", ...: one payload per message, in the order they were sent.
std::vector<std::string> GoldenMessages(const std::string& name);

}  // namespace walpost::testing
