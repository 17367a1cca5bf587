#include "outbox/message_mapper.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/text.h"
#include "outbox/event.h"

namespace walpost::outbox {
namespace {

constexpr std::size_t kVarintBytesMax = 10;
// Tags and lengths have 32 bits.
constexpr std::size_t kShortVarintBytesMax = 5;

}  // namespace

bool WireReader::Next() {
  if (!ok_ || rest_.empty()) {
    return false;
  }
  std::uint64_t tag = 0;
  if (!Varint(kShortVarintBytesMax, &tag) || tag > std::numeric_limits<std::uint32_t>::max() ||
      tag >> 3 == 0) {
    return Fail();
  }
  field_ = static_cast<std::uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0:
      kind_ = Kind::kVarint;
      return Varint(kVarintBytesMax, &number_) || Fail();
    case 1:
      kind_ = Kind::kFixed64;
      return Take(8);
    case 2: {
      kind_ = Kind::kBytes;
      std::uint64_t size = 0;
      return (Varint(kShortVarintBytesMax, &size) && size <= rest_.size() && Take(size)) || Fail();
    }
    case 5:
      kind_ = Kind::kFixed32;
      return Take(4);
    default:
      return Fail();
  }
}

bool WireReader::Fail() {
  ok_ = false;
  return false;
}

bool WireReader::Varint(std::size_t bytes_max, std::uint64_t* value) {
  *value = 0;
  for (std::size_t i = 0; i < rest_.size() && i < bytes_max; ++i) {
    const std::uint64_t byte = static_cast<unsigned char>(rest_[i]);
    *value |= (byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      rest_.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

bool WireReader::Take(std::size_t size) {
  if (size > rest_.size()) {
    return Fail();
  }
  bytes_ = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return true;
}

namespace {

// Field numbers of walpost.v1.OutboxMessage.
constexpr std::uint32_t kAggregateId = 4;
constexpr std::uint32_t kPayload = 5;
constexpr std::uint32_t kHeaders = 8;
constexpr std::uint32_t kOccurredAt = 9;
constexpr std::uint32_t kPartition = 16;

constexpr std::array<std::string_view, 6> kPlaceholders = {"id",   "key",         "aggregate_type",
                                                           "type", "schema_name", "prefix"};

// google.protobuf.Timestamp: 0001-01-01T00:00:00Z to 9999-12-31T23:59:59Z.
constexpr std::int64_t kSecondsMin = -62'135'596'800;
constexpr std::int64_t kSecondsMax = 253'402'300'799;

// Fields of type string without presence.
std::string_view* TextField(std::uint32_t field, Event* event) {
  switch (field) {
    case 1:
      return &event->id;
    case 2:
      return &event->type;
    case 3:
      return &event->aggregate_type;
    case 6:
      return &event->content_type;
    case 7:
      return &event->schema_name;
    case 11:
      return &event->traceparent;
    case 12:
      return &event->tracestate;
    case 15:
      return &event->topic;
    default:
      return nullptr;
  }
}

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrFormat("its content is no walpost.v1.OutboxMessage: %s", what));
}

absl::Status WrongKind(std::uint32_t field) {
  return Malformed(absl::StrFormat("field %u is of another type", field));
}

absl::Status TakeText(const WireReader& reader, std::string_view* text) {
  if (reader.kind() != WireReader::Kind::kBytes) {
    return WrongKind(reader.field());
  }
  if (!base::IsUtf8(reader.bytes())) {
    return Malformed(absl::StrFormat("field %u is not UTF-8", reader.field()));
  }
  *text = reader.bytes();
  return absl::OkStatus();
}

absl::Status TakeHeader(std::string_view entry, Header* header) {
  WireReader reader(entry);
  while (reader.Next()) {
    if (reader.field() == 1 || reader.field() == 2) {
      RETURN_IF_ERROR(TakeText(reader, reader.field() == 1 ? &header->name : &header->value));
    }
  }
  return reader.ok() ? absl::OkStatus() : Malformed("a header is cut");
}

// Of a field that stands there several times protobuf joins the parts.
struct Timestamp {
  std::int64_t seconds = 0;
  std::int32_t nanos = 0;
};

absl::Status TakeTime(std::string_view bytes, Timestamp* time) {
  WireReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() != 1 && reader.field() != 2) {
      continue;
    }
    if (reader.kind() != WireReader::Kind::kVarint) {
      return WrongKind(kOccurredAt);
    }
    if (reader.field() == 1) {
      time->seconds = static_cast<std::int64_t>(reader.number());
    } else {
      time->nanos = static_cast<std::int32_t>(reader.number());
    }
  }
  return reader.ok() ? absl::OkStatus() : Malformed("occurred_at is cut");
}

absl::StatusOr<base::WallTime> ToWallTime(const Timestamp& time) {
  if (time.seconds < kSecondsMin || time.seconds > kSecondsMax || time.nanos < 0 ||
      time.nanos > 999'999'999) {
    return absl::InvalidArgumentError("its occurred_at is no time between the years 1 and 9999");
  }
  return base::WallTime(std::chrono::seconds(time.seconds) +
                        std::chrono::microseconds(time.nanos / 1'000));
}

std::string_view FieldNamed(std::string_view placeholder, const Event& event) {
  if (placeholder == "id") {
    return event.id;
  }
  if (placeholder == "key") {
    return event.key.value_or("");
  }
  if (placeholder == "aggregate_type") {
    return event.aggregate_type;
  }
  if (placeholder == "type") {
    return event.type;
  }
  return placeholder == "schema_name" ? event.schema_name : event.table;
}

TopicTemplate Parsed(std::string_view topic) {
  absl::StatusOr<TopicTemplate> parsed = ParseMessageTopic(topic);
  CHECK(parsed.ok()) << parsed.status();
  return *std::move(parsed);
}

}  // namespace

std::string MessageLabel(std::string_view prefix) {
  return std::string(kMessageLabel) + std::string(prefix);
}

bool IsMessageLabel(std::string_view table) {
  return table.substr(0, kMessageLabel.size()) == kMessageLabel;
}

absl::StatusOr<TopicTemplate> ParseMessageTopic(std::string_view text) {
  ASSIGN_OR_RETURN(TopicTemplate parsed, TopicTemplate::Parse(text));
  for (const TopicTemplate::Part& part : parsed.parts()) {
    if (part.is_placeholder &&
        std::find(kPlaceholders.begin(), kPlaceholders.end(), part.text) == kPlaceholders.end()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("topic template '%s': a message has no {%s}; it has {id}, {key}, "
                          "{aggregate_type}, {type}, {schema_name} and {prefix}",
                          text, part.text));
    }
  }
  return parsed;
}

MessageMapper::MessageMapper(std::string_view topic, const TopicOptions& topics)
    : topic_template_(Parsed(topic)), topic_rules_(topics, topic_template_.Pattern()) {}

absl::Status MessageMapper::Map(std::string_view prefix, std::string_view content, Event* event) {
  *event = Event();
  event->table = prefix;
  headers_.clear();
  absl::Status status = Parse(content, event);
  if (!status.ok()) {
    // Nothing shows whether the key and the topic that were read are the right ones.
    event->key.reset();
    event->topic = std::string_view();
  } else if (status = MapTopic(event); status.ok()) {
    status = Check(*event);
  }
  if (!status.ok()) {
    return UndeliverableError(
        ReasonCodeOf(status),
        absl::StrFormat(
            "message with prefix '%s'%s: %s: correct what emits it (docs/messages.md)", prefix,
            event->id.empty() ? "" : absl::StrFormat(", event '%s'", base::Cut(event->id)),
            std::string(status.message())));
  }
  KeepLastHeaders();
  event->headers = headers_;
  return absl::OkStatus();
}

absl::Status MessageMapper::Parse(std::string_view content, Event* event) {
  std::optional<Timestamp> time;
  WireReader reader(content);
  while (reader.Next()) {
    const bool is_bytes = reader.kind() == WireReader::Kind::kBytes;
    if (std::string_view* const text = TextField(reader.field(), event); text != nullptr) {
      RETURN_IF_ERROR(TakeText(reader, text));
    } else if (reader.field() == kAggregateId) {
      RETURN_IF_ERROR(TakeText(reader, &event->key.emplace()));
    } else if (reader.field() == kPartition) {
      if (reader.kind() != WireReader::Kind::kVarint) {
        return WrongKind(reader.field());
      }
      event->partition = static_cast<std::int32_t>(reader.number());
      if (event->partition < 0) {
        return absl::InvalidArgumentError("its partition is negative");
      }
    } else if (reader.field() == kPayload || reader.field() == kHeaders ||
               reader.field() == kOccurredAt) {
      if (!is_bytes) {
        return WrongKind(reader.field());
      }
      if (reader.field() == kPayload) {
        event->payload = reader.bytes();
      } else if (reader.field() == kHeaders) {
        if (headers_.size() == kHeadersMax) {
          return absl::InvalidArgumentError(
              absl::StrFormat("it has more than %u headers", kHeadersMax));
        }
        RETURN_IF_ERROR(TakeHeader(reader.bytes(), &headers_.emplace_back()));
      } else {
        RETURN_IF_ERROR(TakeTime(reader.bytes(), &(time ? *time : time.emplace())));
      }
    }
  }
  if (!reader.ok()) {
    return Malformed("it is cut, or no protobuf at all");
  }
  if (time) {
    ASSIGN_OR_RETURN(event->occurred_at, ToWallTime(*time));
  }
  return absl::OkStatus();
}

absl::Status MessageMapper::Check(const Event& event) const {
  const std::pair<const char*, std::string_view> required[] = {
      {"id", event.id}, {"type", event.type}, {"aggregate_type", event.aggregate_type}};
  for (const auto& [name, text] : required) {
    if (text.empty()) {
      return absl::InvalidArgumentError(absl::StrFormat("it has no %s", name));
    }
  }
  const bool unnamed = std::any_of(headers_.begin(), headers_.end(),
                                   [](const Header& header) { return header.name.empty(); });
  return unnamed ? absl::InvalidArgumentError("a header has an empty name") : CheckId(event.id);
}

absl::Status MessageMapper::MapTopic(Event* event) {
  if (event->topic.empty()) {
    topic_text_.clear();
    for (const TopicTemplate::Part& part : topic_template_.parts()) {
      const std::string_view text =
          part.is_placeholder ? FieldNamed(part.text, *event) : std::string_view(part.text);
      if (text.empty()) {
        return absl::InvalidArgumentError(
            absl::StrFormat("it has no %s, which its topic needs", part.text));
      }
      topic_text_ += text;
    }
    event->topic = topic_text_;
  }
  if (event->topic != checked_topic_) {
    RETURN_IF_ERROR(topic_rules_.Check(event->topic));
    checked_topic_.assign(event->topic);
  }
  return absl::OkStatus();
}

// As protobuf reads a map.
void MessageMapper::KeepLastHeaders() {
  if (headers_.size() < 2) {
    return;
  }
  order_.resize(headers_.size());
  std::iota(order_.begin(), order_.end(), 0U);
  std::sort(order_.begin(), order_.end(), [this](std::uint32_t a, std::uint32_t b) {
    return std::tie(headers_[a].name, a) < std::tie(headers_[b].name, b);
  });
  for (std::size_t i = 0; i + 1 < order_.size(); ++i) {
    if (headers_[order_[i]].name == headers_[order_[i + 1]].name) {
      // Names compared below are those of later ones: an emptied one is never looked at again.
      headers_[order_[i]].name = std::string_view();
    }
  }
  std::erase_if(headers_, [](const Header& header) { return header.name.empty(); });
}

}  // namespace walpost::outbox
