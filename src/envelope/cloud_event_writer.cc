#include "envelope/cloud_event_writer.h"

#include <cstring>
#include <utility>

#include "base/status.h"
#include "envelope/cloud_event_proto.h"

namespace walpost::envelope {

CloudEventWriter::CloudEventWriter(const CloudEventOptions& options, std::string database)
    : mode_(options.mode), cloud_event_(options.source, std::move(database)) {}

absl::StatusOr<std::optional<std::size_t>> CloudEventWriter::Measure(
    const outbox::Event& event, const Position& position, const TransactionInfo& transaction) {
  RETURN_IF_ERROR(cloud_event_.Read(event, position, transaction));
  switch (mode_) {
    case CloudEventMode::kStructuredProtobuf:
      return CloudEventProtoSize(cloud_event_, event);
    case CloudEventMode::kStructuredJson:
      return json_.Measure(cloud_event_, event);
    case CloudEventMode::kBinary:
      RETURN_IF_ERROR(cloud_event_.CheckBinary(event));
      break;
  }
  return event.payload ? std::optional(event.payload->size()) : std::nullopt;
}

char* CloudEventWriter::Write(const outbox::Event& event, char* out) const {
  switch (mode_) {
    case CloudEventMode::kStructuredProtobuf:
      return WriteCloudEventProto(cloud_event_, event, out);
    case CloudEventMode::kStructuredJson:
      return json_.Write(out);
    case CloudEventMode::kBinary:
      break;
  }
  if (!event.payload->empty()) {
    std::memcpy(out, event.payload->data(), event.payload->size());
  }
  return out + event.payload->size();
}

void CloudEventWriter::AddHeaders(std::vector<outbox::Header>* headers) const {
  switch (mode_) {
    case CloudEventMode::kStructuredProtobuf:
      headers->push_back({"content-type", "application/cloudevents+protobuf"});
      return;
    case CloudEventMode::kStructuredJson:
      headers->push_back({"content-type", "application/cloudevents+json; charset=UTF-8"});
      return;
    case CloudEventMode::kBinary:
      break;
  }
  if (!cloud_event_.content_type().empty()) {
    headers->push_back({"content-type", cloud_event_.content_type()});
  }
  headers->push_back({"ce_specversion", CloudEvent::kSpecVersion});
  headers->push_back({"ce_id", cloud_event_.id()});
  headers->push_back({"ce_source", cloud_event_.source()});
  headers->push_back({"ce_type", cloud_event_.type()});
  for (const CloudEventAttribute& attribute : cloud_event_.attributes()) {
    headers->push_back({attribute.header, attribute.text});
  }
}

}  // namespace walpost::envelope
