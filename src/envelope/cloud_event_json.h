// CloudEventJsonWriter - an event in CloudEvents' JSON format. JSON payloads stand in it as they
// are, text as a string, all else in base64.
// Why: a payload that was parsed and written again would lose digits and the order of its members.
// Thread: one owner. Use: Measure, then Write with the same arguments, into exactly that many
//   bytes.
// Limits: nothing is allocated once warm, but by the check of JSON in a column whose type does not
//   promise it, and for text with characters that JSON escapes.
// Errors: kInvalidArgument (an undeliverable event), reason payload_invalid: JSON that is none.
// Source: CloudEvents, JSON Event Format 1.0.2; RFC 8259.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "envelope/cloud_event.h"
#include "outbox/event.h"

namespace walpost::envelope {

class CloudEventJsonWriter {
 public:
  absl::StatusOr<std::size_t> Measure(const CloudEvent& cloud_event, const outbox::Event& event);

  // Returns the end.
  char* Write(char* out) const;

 private:
  void Member(std::string_view name, std::string_view text);
  void String(std::string_view text);
  absl::Status Data(const CloudEvent& cloud_event, const outbox::Event& event);

  std::string head_;       // up to the payload
  std::string_view data_;  // the payload as it stands in the value
  std::string base64_;
};

}  // namespace walpost::envelope
