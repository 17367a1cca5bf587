#include "envelope/cloud_event.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/text.h"
#include "outbox/event.h"

namespace walpost::envelope {
namespace {

using outbox::Event;
using Attribute = CloudEventAttribute;
using Data = CloudEvent::Data;

bool IsUnreserved(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("-._~").find(c) != std::string_view::npos;
}

bool IsUriCharacter(char c) {
  return IsUnreserved(c) ||
         std::string_view(":/?#[]@!$&'()*+,;=%").find(c) != std::string_view::npos;
}

// With a scheme, which a mere name has not.
bool IsUri(std::string_view text) {
  const std::size_t colon = text.find(':');
  return colon != std::string_view::npos && colon > 0 && colon + 1 < text.size() &&
         absl::ascii_isalpha(static_cast<unsigned char>(text[0])) && IsUriReference(text) &&
         std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(colon), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '+' || c == '-' ||
                  c == '.';
         });
}

bool IsMessageName(std::string_view text) {
  return !text.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
         });
}

bool Is(std::string_view text, std::string_view lower_case) {
  return std::equal(
      text.begin(), text.end(), lower_case.begin(), lower_case.end(),
      [](char a, char b) { return absl::ascii_tolower(static_cast<unsigned char>(a)) == b; });
}

// "application/json" of "Application/JSON ; charset=utf-8", but for the case.
std::string_view MediaType(std::string_view content_type) {
  content_type = content_type.substr(0, content_type.find(';'));
  const std::size_t first = content_type.find_first_not_of(' ');
  if (first == std::string_view::npos) {
    return {};
  }
  return content_type.substr(first, content_type.find_last_not_of(' ') + 1 - first);
}

bool IsJson(std::string_view media_type) {
  constexpr std::string_view kSuffix = "+json";
  return Is(media_type, "application/json") || Is(media_type, "text/json") ||
         (media_type.size() > kSuffix.size() &&
          Is(media_type.substr(media_type.size() - kSuffix.size()), kSuffix));
}

// Of what is no printable ASCII a reader may make a blank, or another letter.
bool MayBeCloudEvents(std::string_view content_type) {
  constexpr std::string_view kPrefix = "application/cloudevents";
  const bool printable = std::all_of(content_type.begin(), content_type.end(),
                                     [](char c) { return c >= ' ' && c <= '~'; });
  content_type.remove_prefix(std::min(content_type.find_first_not_of(' '), content_type.size()));
  return !printable || Is(content_type.substr(0, kPrefix.size()), kPrefix);
}

bool IsText(std::string_view media_type) { return Is(media_type.substr(0, 5), "text/"); }

bool IsProtobuf(std::string_view media_type) {
  return Is(media_type, "application/protobuf") || Is(media_type, "application/x-protobuf");
}

absl::Status Invalid(const Event& event, std::string_view what) {
  return outbox::UndeliverableError(
      outbox::kCloudEventInvalid,
      absl::StrFormat("table %s.%s: event '%s': %s", event.schema, event.table,
                      base::IsUtf8(event.id) ? event.id : "", what));
}

char* WriteDigits(std::uint32_t number, int digits, char* out) {
  for (int i = digits - 1; i >= 0; --i) {
    out[i] = static_cast<char>('0' + number % 10);
    number /= 10;
  }
  return out + digits;
}

// RFC 3339, of the years 1 to 9999.
void WriteTimeText(const TimeParts& time, char* out) {
  constexpr std::int64_t kSecondsPerDay = 86'400;
  std::int64_t day = time.seconds / kSecondsPerDay;
  std::int64_t second = time.seconds % kSecondsPerDay;
  if (second < 0) {
    second += kSecondsPerDay;
    --day;
  }
  const std::chrono::year_month_day date{
      std::chrono::sys_days(std::chrono::days(static_cast<int>(day)))};
  const auto of_day = static_cast<std::uint32_t>(second);
  out = WriteDigits(static_cast<std::uint32_t>(static_cast<int>(date.year())), 4, out);
  *out++ = '-';
  out = WriteDigits(static_cast<unsigned>(date.month()), 2, out);
  *out++ = '-';
  out = WriteDigits(static_cast<unsigned>(date.day()), 2, out);
  *out++ = 'T';
  out = WriteDigits(of_day / 3'600, 2, out);
  *out++ = ':';
  out = WriteDigits(of_day / 60 % 60, 2, out);
  *out++ = ':';
  out = WriteDigits(of_day % 60, 2, out);
  *out++ = '.';
  out = WriteDigits(static_cast<std::uint32_t>(time.nanos) / 1'000, 6, out);
  *out = 'Z';
}

}  // namespace

bool IsUriReference(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsUriCharacter);
}

CloudEvent::CloudEvent(std::string source, std::string database)
    : source_given_(!source.empty()), database_(std::move(database)), source_(std::move(source)) {}

absl::Status CloudEvent::Read(const Event& event, const Position& position,
                              const TransactionInfo& transaction) {
  // Bounded first: all sizes fit an int.
  if (event.payload &&
      event.payload->size() > std::size_t{std::numeric_limits<std::int32_t>::max()} / 2) {
    return Invalid(event, absl::StrFormat("the payload has %u bytes, the limit is 1 GiB",
                                          event.payload->size()));
  }
  if (event.id.empty()) {
    return Invalid(event, "it has no id, which CloudEvents needs: correct what writes such rows");
  }
  if (event.type.empty()) {
    return Invalid(event,
                   "it has no type, which CloudEvents needs: map `columns.type`, or correct what "
                   "writes such rows");
  }
  RETURN_IF_ERROR(CheckText(event));
  PrepareSource(event);
  id_ = event.id;
  type_ = event.type;
  ReadData(event);
  position.Format(sequence_.data());

  count_ = 0;
  if (IsUri(event.schema_name)) {
    Add("ce_dataschema", event.schema_name, Attribute::Type::kUri);
  }
  const std::string_view key = event.key.value_or("");
  Add("ce_partitionkey", key);
  RETURN_IF_ERROR(AddTime("ce_recordedtime", transaction.commit_time, event, &recorded_text_));
  Add("ce_sequence", std::string_view(sequence_.data(), sequence_.size()));
  Add("ce_subject", key);
  if (event.occurred_at) {
    RETURN_IF_ERROR(AddTime("ce_time", *event.occurred_at, event, &time_text_));
  }
  Add("ce_traceparent", event.traceparent);
  // It means nothing without the other.
  Add("ce_tracestate", event.traceparent.empty() ? std::string_view() : event.tracestate);
  return absl::OkStatus();
}

// Readers distinguish the modes by this alone. They would take all attributes of such a record from
// the payload, which whoever wrote the row chose.
absl::Status CloudEvent::CheckBinary(const Event& event) const {
  return !MayBeCloudEvents(content_type_)
             ? absl::OkStatus()
             : Invalid(
                   event,
                   "its content type says that the payload is a whole CloudEvent, or may say so to "
                   "some readers of binary mode, as it is not of printable ASCII: correct what "
                   "writes it, or use value.format raw");
}

void CloudEvent::ReadData(const Event& event) {
  content_type_ = event.content_type;
  if (content_type_.empty() && event.payload) {
    if (event.payload_form == outbox::PayloadForm::kJson) {
      content_type_ = "application/json";
    } else if (event.payload_form == outbox::PayloadForm::kText) {
      content_type_ = "text/plain; charset=UTF-8";
    }
  }
  const std::string_view media_type = MediaType(content_type_);
  if (!event.payload) {
    data_ = Data::kNone;
  } else if (IsJson(media_type)) {
    data_ = Data::kJson;
  } else if (IsText(media_type)) {
    data_ = Data::kText;
  } else if (IsProtobuf(media_type) && IsMessageName(event.schema_name)) {
    data_ = Data::kProtobuf;
  } else {
    data_ = Data::kBinary;
  }
}

absl::Status CloudEvent::CheckText(const Event& event) const {
  const std::pair<std::string_view, std::string_view> texts[] = {
      {"id", event.id},
      {"type", event.type},
      {"key", event.key.value_or("")},
      {"content type", event.content_type},
      {"traceparent", event.traceparent},
      {"tracestate", event.tracestate}};
  for (const auto& [name, text] : texts) {
    if (!base::IsUtf8(text)) {
      return Invalid(event, absl::StrFormat("its %s is not UTF-8, which CloudEvents needs: use "
                                            "value.format raw, or correct what writes it",
                                            name));
    }
  }
  return absl::OkStatus();
}

void CloudEvent::PrepareSource(const Event& event) {
  if (source_given_ ||
      (!source_.empty() && source_table_ == event.table && source_schema_ == event.schema)) {
    return;
  }
  source_schema_ = std::string(event.schema);
  source_table_ = std::string(event.table);
  source_.clear();
  for (const std::string_view part : {std::string_view(database_), event.schema, event.table}) {
    if (part.empty()) {
      continue;
    }
    source_ += '/';
    for (const char c : part) {
      if (IsUnreserved(c)) {
        source_ += c;
      } else {
        source_ += absl::StrFormat("%%%02X", static_cast<unsigned char>(c));
      }
    }
  }
  if (source_.empty()) {
    source_ = "/";
  }
}

void CloudEvent::Add(std::string_view header, std::string_view text, Attribute::Type type) {
  if (!text.empty()) {
    attributes_[count_++] = Attribute{header, type, text, TimeParts()};
  }
}

absl::Status CloudEvent::AddTime(std::string_view header, base::WallTime time, const Event& event,
                                 std::array<char, kTimeTextSize>* text) {
  constexpr std::int64_t kFirst = -62'135'596'800;  // 0001-01-01
  constexpr std::int64_t kLast = 253'402'300'799;   // 9999-12-31
  const TimeParts parts = Split(time);
  if (parts.seconds < kFirst || parts.seconds > kLast) {
    return Invalid(event, absl::StrFormat("its %s is outside the years 1 to 9999, which "
                                          "CloudEvents cannot say: correct what writes it",
                                          header == "ce_time" ? "time" : "time of commit"));
  }
  WriteTimeText(parts, text->data());
  attributes_[count_++] = Attribute{header, Attribute::Type::kTimestamp,
                                    std::string_view(text->data(), text->size()), parts};
  return absl::OkStatus();
}

}  // namespace walpost::envelope
