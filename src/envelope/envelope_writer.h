// EnvelopeWriter - walpost.v1.Envelope in protobuf's wire format, written from views straight into
// memory.
// Why: filling a generated Envelope would copy every field once more and allocate for some; the
//   record is on the path of every event. A test holds its bytes against the generated class for
//   random events.
// Thread: one owner. Use: Measure, then Write with the same arguments, into exactly that many
//   bytes.
// Limits: protobuf's 2 GiB; text fields must be UTF-8.
// Source: protobuf manual, "Encoding"; field numbers in proto/walpost/v1/envelope.proto.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "envelope/control_records.h"
#include "outbox/event.h"

namespace walpost::envelope {

class EnvelopeWriter {
 public:
  explicit EnvelopeWriter(std::string database) : database_(std::move(database)) {}

  // The size in bytes. kInvalidArgument when a text field is not UTF-8 or the size is beyond
  // protobuf's limit.
  absl::StatusOr<std::size_t> Measure(const outbox::Event& event, const Position& position,
                                      const TransactionInfo& transaction);

  // Returns the end.
  char* Write(const outbox::Event& event, const Position& position,
              const TransactionInfo& transaction, char* out) const;

 private:
  absl::Status CheckText(const outbox::Event& event) const;
  void PrepareSource(const outbox::Event& event, const Position& position);

  const std::string database_;
  // Fields 1-5 of Source: the same for all events of a table on one timeline.
  std::string source_;
  std::string source_schema_;
  std::string source_table_;
  std::uint64_t source_system_identifier_ = 0;
  std::uint32_t source_timeline_ = 0;
};

// EnvelopeJson - a record's value as JSON, for people.
// Thread: free function.

// As protobuf's JSON mapping says (bytes in base64); nothing for bytes that are no Envelope.
std::optional<std::string> EnvelopeAsJson(std::string_view value);

}  // namespace walpost::envelope
