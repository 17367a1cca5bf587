// io.cloudevents.v1.CloudEvent in protobuf's wire format, written from views straight into memory.
// Why: as EnvelopeWriter. A payload that is a protobuf message becomes an Any as it is.
// Thread: free functions. Use: measure, then write into exactly that many bytes.
// Source: CloudEvents, Protobuf Event Format 1.0.2; proto/io/cloudevents/v1/cloudevents.proto.
#pragma once

#include "envelope/cloud_event.h"
#include "outbox/event.h"

namespace walpost::envelope {

std::size_t CloudEventProtoSize(const CloudEvent& cloud_event, const outbox::Event& event);

// Returns the end.
char* WriteCloudEventProto(const CloudEvent& cloud_event, const outbox::Event& event, char* out);

}  // namespace walpost::envelope
