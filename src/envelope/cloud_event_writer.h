// CloudEventWriter - headers and value of a record in one of CloudEvents' modes.
// Thread: one owner. Use: Measure, then the others with the same event.
// Errors: those of CloudEvent and CloudEventJsonWriter.
// Source: CloudEvents, Kafka Protocol Binding 1.0.2.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/cloud_event.h"
#include "envelope/cloud_event_json.h"
#include "outbox/event.h"

namespace walpost::envelope {

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
