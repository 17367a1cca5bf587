#include "envelope/cloud_event_proto.h"

#include <cstring>

#include "base/text.h"
#include "envelope/protobuf_wire.h"

namespace walpost::envelope {
namespace {

constexpr std::string_view kTypeUrlPrefix = "type.googleapis.com/";

constexpr std::uint32_t kStringValue = 3;  // fields of CloudEventAttributeValue
constexpr std::uint32_t kUriValue = 5;
constexpr std::uint32_t kTimestampValue = 7;

constexpr CloudEventAttribute ContentType(std::string_view text) {
  return CloudEventAttribute{"ce_datacontenttype", CloudEventAttribute::Type::kString, text,
                             TimeParts()};
}

std::size_t ValueSize(const CloudEventAttribute& attribute) {
  return attribute.type == CloudEventAttribute::Type::kTimestamp
             ? BytesFieldSize(TimeBodySize(attribute.time))
             : BytesFieldSize(attribute.text.size());
}

std::size_t EntrySize(const CloudEventAttribute& attribute) {
  return BytesFieldSize(attribute.name().size()) + BytesFieldSize(ValueSize(attribute));
}

char* WriteEntry(const CloudEventAttribute& attribute, char* out) {
  out = WriteTag(5, kLengthDelimited, out);
  out = WriteVarint(EntrySize(attribute), out);
  out = WriteBytesField(1, attribute.name(), out);
  out = WriteTag(2, kLengthDelimited, out);
  out = WriteVarint(ValueSize(attribute), out);
  switch (attribute.type) {
    case CloudEventAttribute::Type::kTimestamp:
      return WriteTime(kTimestampValue, attribute.time, out);
    case CloudEventAttribute::Type::kUri:
      return WriteBytesField(kUriValue, attribute.text, out);
    case CloudEventAttribute::Type::kString:
      break;
  }
  return WriteBytesField(kStringValue, attribute.text, out);
}

std::size_t AnySize(const outbox::Event& event) {
  return BytesFieldSize(kTypeUrlPrefix.size() + event.schema_name.size()) +
         TextSize(*event.payload);
}

char* WriteAny(const outbox::Event& event, char* out) {
  out = WriteTag(8, kLengthDelimited, out);
  out = WriteVarint(AnySize(event), out);
  out = WriteTag(1, kLengthDelimited, out);
  out = WriteVarint(kTypeUrlPrefix.size() + event.schema_name.size(), out);
  std::memcpy(out, kTypeUrlPrefix.data(), kTypeUrlPrefix.size());
  out += kTypeUrlPrefix.size();
  std::memcpy(out, event.schema_name.data(), event.schema_name.size());
  return WriteText(2, *event.payload, out + event.schema_name.size());
}

// Text in another encoding goes as bytes, and its content type names the encoding: protobuf takes UTF-8 only.
bool IsTextData(const CloudEvent& cloud_event, const outbox::Event& event) {
  return (cloud_event.data() == CloudEvent::Data::kJson ||
          cloud_event.data() == CloudEvent::Data::kText) &&
         base::IsUtf8(*event.payload);
}

}  // namespace

std::size_t CloudEventProtoSize(const CloudEvent& cloud_event, const outbox::Event& event) {
  std::size_t size =
      BytesFieldSize(cloud_event.id().size()) + BytesFieldSize(cloud_event.source().size()) +
      BytesFieldSize(CloudEvent::kSpecVersion.size()) + BytesFieldSize(cloud_event.type().size());
  if (!cloud_event.content_type().empty()) {
    size += BytesFieldSize(EntrySize(ContentType(cloud_event.content_type())));
  }
  for (const CloudEventAttribute& attribute : cloud_event.attributes()) {
    size += BytesFieldSize(EntrySize(attribute));
  }
  if (cloud_event.data() == CloudEvent::Data::kProtobuf) {
    size += BytesFieldSize(AnySize(event));
  } else if (cloud_event.data() != CloudEvent::Data::kNone) {
    size += BytesFieldSize(event.payload->size());
  }
  return size;
}

char* WriteCloudEventProto(const CloudEvent& cloud_event, const outbox::Event& event, char* out) {
  out = WriteBytesField(1, cloud_event.id(), out);
  out = WriteBytesField(2, cloud_event.source(), out);
  out = WriteBytesField(3, CloudEvent::kSpecVersion, out);
  out = WriteBytesField(4, cloud_event.type(), out);
  if (!cloud_event.content_type().empty()) {
    out = WriteEntry(ContentType(cloud_event.content_type()), out);
  }
  for (const CloudEventAttribute& attribute : cloud_event.attributes()) {
    out = WriteEntry(attribute, out);
  }
  if (cloud_event.data() == CloudEvent::Data::kNone) {
    return out;
  }
  if (cloud_event.data() == CloudEvent::Data::kProtobuf) {
    return WriteAny(event, out);
  }
  return WriteBytesField(IsTextData(cloud_event, event) ? 7 : 6, *event.payload, out);
}

}  // namespace walpost::envelope
