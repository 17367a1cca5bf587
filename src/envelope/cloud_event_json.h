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

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

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
  // The texts are views into the event or into this.
  void Add(std::string_view text) {
    pieces_.push_back(text);
    size_ += text.size();
  }

  void AddEscaped(std::string_view text);  // without the quotes around it
  absl::Status AddData(const CloudEvent& cloud_event, const outbox::Event& event);

  std::vector<std::string_view> pieces_;  // of the value
  std::size_t size_ = 0;
  std::deque<std::string> escaped_;
  std::string base64_;
};

}  // namespace walpost::envelope
