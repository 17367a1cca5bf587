#include "envelope/cloud_event_json.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/text.h"
#include "outbox/undeliverable.h"

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
  escaped_.push_back(nlohmann::json(text).dump());
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

}  // namespace walpost::envelope
