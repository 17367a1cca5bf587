// CloudEventWriter - headers and value of a record in one of CloudEvents' modes.
// Thread: one owner. Use: Measure, then the others with the same event.
// Errors: those of CloudEvent and CloudEventJsonWriter.
// Source: CloudEvents, Kafka Protocol Binding 1.0.2.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/cloud_event.h"
#include "outbox/event.h"

namespace walpost::envelope {

// CloudEventJsonWriter - an event in CloudEvents' JSON format. JSON payloads stand in it as they
// are, text as a string, all else in base64.
// Why: a payload that was parsed and written again would lose digits and the order of its members.
// Thread: one owner. Use: Measure, then Write with the same arguments, into exactly that many
//   bytes.
// Limits: nothing is allocated once warm, but by the check of JSON in a column whose type does not
//   promise it, and for text with characters that JSON escapes.
// Errors: kInvalidArgument (an undeliverable event), reason payload_invalid: JSON that is none.
// Source: CloudEvents, JSON Event Format 1.0.2; RFC 8259.
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

// io.cloudevents.v1.CloudEvent in protobuf's wire format, written from views straight into memory.
// Why: as EnvelopeWriter. A payload that is a protobuf message becomes an Any as it is.
// Thread: free functions. Use: measure, then write into exactly that many bytes.
// Source: CloudEvents, Protobuf Event Format 1.0.2; proto/io/cloudevents/v1/cloudevents.proto.
std::size_t CloudEventProtoSize(const CloudEvent& cloud_event, const outbox::Event& event);

// Returns the end.
char* WriteCloudEventProto(const CloudEvent& cloud_event, const outbox::Event& event, char* out);

class CloudEventWriter {
 public:
  CloudEventWriter(const CloudEventOptions& options, std::string database);

  // The size of the value in bytes; nullopt = a null value.
  absl::StatusOr<std::optional<std::size_t>> Measure(const outbox::Event& event,
                                                     const Position& position,
                                                     const TransactionInfo& transaction);

  // Returns the end.
  char* Write(const outbox::Event& event, char* out) const;

  // content-type and, in binary mode, the attributes.
  void AddHeaders(std::vector<outbox::Header>* headers) const;

 private:
  const CloudEventMode mode_;
  CloudEvent cloud_event_;
  CloudEventJsonWriter json_;
};

}  // namespace walpost::envelope
