// EnvelopeJson - a record's value as JSON, for people.
// Thread: free function.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace walpost::envelope {

// As protobuf's JSON mapping says (bytes in base64); nothing for bytes that are no Envelope.
std::optional<std::string> EnvelopeAsJson(std::string_view value);

}  // namespace walpost::envelope
