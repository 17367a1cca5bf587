#include "envelope/envelope_json.h"

#include <google/protobuf/util/json_util.h>

#include <limits>

#include "walpost/v1/envelope.pb.h"

namespace walpost::envelope {

std::optional<std::string> EnvelopeAsJson(std::string_view value) {
  v1::Envelope decoded;
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  if (value.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
      !decoded.ParseFromArray(value.data(), static_cast<int>(value.size())) ||
      !google::protobuf::util::MessageToJsonString(decoded, &json, options).ok()) {
    return std::nullopt;
  }
  return json;
}

}  // namespace walpost::envelope
