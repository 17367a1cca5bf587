#include "envelope/cloud_event_json.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "envelope/protobuf_wire.h"
#include "outbox/unfit.h"

namespace walpost::envelope {
namespace {

bool IsPlain(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\';
  });
}

// The library takes a byte-order mark before JSON, and a zero byte for its end.
bool IsJsonText(std::string_view text) {
  return text.find('\0') == std::string_view::npos && text.substr(0, 3) != "\xef\xbb\xbf" &&
         nlohmann::json::accept(text);
}

}  // namespace

absl::StatusOr<std::size_t> CloudEventJsonWriter::Measure(const CloudEvent& cloud_event,
                                                          const outbox::Event& event) {
  head_.clear();
  Member("{\"specversion\":", CloudEvent::kSpecVersion);
  Member(",\"id\":", cloud_event.id());
  Member(",\"source\":", cloud_event.source());
  Member(",\"type\":", cloud_event.type());
  if (!cloud_event.content_type().empty()) {
    Member(",\"datacontenttype\":", cloud_event.content_type());
  }
  for (const CloudEventAttribute& attribute : cloud_event.attributes()) {
    head_ += ",\"";
    head_ += attribute.name();  // a word of ours
    Member("\":", attribute.text);
  }
  RETURN_IF_ERROR(Data(cloud_event, event));
  return head_.size() + data_.size() + 1;
}

char* CloudEventJsonWriter::Write(char* out) const {
  std::memcpy(out, head_.data(), head_.size());
  out += head_.size();
  if (!data_.empty()) {
    std::memcpy(out, data_.data(), data_.size());
    out += data_.size();
  }
  *out = '}';
  return out + 1;
}

// `name` with what stands around it.
void CloudEventJsonWriter::Member(std::string_view name, std::string_view text) {
  head_ += name;
  String(text);
}

void CloudEventJsonWriter::String(std::string_view text) {
  if (IsPlain(text)) {
    head_ += '"';
    head_ += text;
    head_ += '"';
  } else {
    head_ += nlohmann::json(text).dump();
  }
}

absl::Status CloudEventJsonWriter::Data(const CloudEvent& cloud_event, const outbox::Event& event) {
  data_ = {};
  if (cloud_event.data() == CloudEvent::Data::kNone) {
    return absl::OkStatus();
  }
  const std::string_view payload = *event.payload;
  if (cloud_event.data() == CloudEvent::Data::kJson) {
    // PostgreSQL has checked the syntax of its own types.
    const bool checked = event.payload_form == outbox::PayloadForm::kJson;
    if (!IsUtf8(payload) || !(checked || IsJsonText(payload))) {
      return outbox::UnfitError(
          outbox::kPayloadInvalid,
          absl::StrFormat("table %s.%s: the payload of event '%s' is not JSON, as its content type "
                          "says, or has a number too large to be read: correct what writes it, or "
                          "use another mode of value.cloudevents",
                          event.schema, event.table, event.id));
    }
    head_ += ",\"data\":";
    data_ = payload;
  } else if (cloud_event.data() == CloudEvent::Data::kText && IsUtf8(payload)) {
    head_ += ",\"data\":";
    String(payload);
  } else {
    absl::Base64Escape(absl::string_view(payload.data(), payload.size()), &base64_);
    head_ += ",\"data_base64\":\"";
    base64_ += '"';
    data_ = base64_;
  }
  return absl::OkStatus();
}

}  // namespace walpost::envelope
