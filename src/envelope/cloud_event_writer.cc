#include "envelope/cloud_event_writer.h"

#include <nlohmann/json.hpp>

#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/text.h"
#include "envelope/protobuf_wire.h"
#include "outbox/event.h"

namespace walpost::envelope {
namespace {

// The library takes a byte-order mark before JSON, and a zero byte for its end.
bool IsJsonText(std::string_view text) {
  return text.find('\0') == std::string_view::npos && text.substr(0, 3) != "\xef\xbb\xbf" &&
         nlohmann::json::accept(text);
}

}  // namespace

// Each string is closed by what comes next.
absl::StatusOr<std::size_t> CloudEventJsonWriter::Measure(const CloudEvent& cloud_event,
                                                          const outbox::Event& event) {
  pieces_.clear();
  escaped_.clear();
  size_ = 0;
  Add("{\"specversion\":\"");
  Add(CloudEvent::kSpecVersion);
  Add("\",\"id\":\"");
  AddEscaped(cloud_event.id());
  Add("\",\"source\":\"");
  AddEscaped(cloud_event.source());
  Add("\",\"type\":\"");
  AddEscaped(cloud_event.type());
  if (!cloud_event.content_type().empty()) {
    Add("\",\"datacontenttype\":\"");
    AddEscaped(cloud_event.content_type());
  }
  for (const CloudEventAttribute& attribute : cloud_event.attributes()) {
    Add("\",\"");
    Add(attribute.name());  // a word of ours
    Add("\":\"");
    AddEscaped(attribute.text);
  }
  RETURN_IF_ERROR(AddData(cloud_event, event));
  return size_;
}

char* CloudEventJsonWriter::Write(char* out) const {
  for (const std::string_view piece : pieces_) {
    if (!piece.empty()) {  // an empty view may point nowhere, which memcpy does not allow
      std::memcpy(out, piece.data(), piece.size());
      out += piece.size();
    }
  }
  return out;
}

void CloudEventJsonWriter::AddEscaped(std::string_view text) {
  if (base::IsPlainInJson(text)) {
    Add(text);
    return;
  }
  escaped_.push_back(base::JsonText(nlohmann::json(text)));
  const std::string_view quoted = escaped_.back();
  Add(quoted.substr(1, quoted.size() - 2));
}

absl::Status CloudEventJsonWriter::AddData(const CloudEvent& cloud_event,
                                           const outbox::Event& event) {
  if (cloud_event.data() == CloudEvent::Data::kNone) {
    Add("\"}");
    return absl::OkStatus();
  }
  const std::string_view payload = *event.payload;
  if (cloud_event.data() == CloudEvent::Data::kJson) {
    // PostgreSQL has checked the syntax of its own types.
    const bool checked = event.payload_form == outbox::PayloadForm::kJson;
    if (!base::IsUtf8(payload) || !(checked || IsJsonText(payload))) {
      return outbox::UndeliverableError(
          outbox::kPayloadInvalid,
          absl::StrFormat("table %s.%s: the payload of event '%s' is not JSON, as its content type "
                          "says, or has a number too large to be read: correct what writes it, or "
                          "use another mode of value.cloudevents",
                          event.schema, event.table, event.id));
    }
    Add("\",\"data\":");
    Add(payload);
    Add("}");
  } else if (cloud_event.data() == CloudEvent::Data::kText && base::IsUtf8(payload)) {
    Add("\",\"data\":\"");
    AddEscaped(payload);
    Add("\"}");
  } else {
    absl::Base64Escape(absl::string_view(payload.data(), payload.size()), &base64_);
    Add("\",\"data_base64\":\"");
    Add(base64_);
    Add("\"}");
  }
  return absl::OkStatus();
}

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

// Text in another encoding goes as bytes, and its content type names the encoding: protobuf takes
// UTF-8 only.
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
