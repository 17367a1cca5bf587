// CloudEvent - the CloudEvents attributes of an event, and what its payload is to CloudEvents.
// Why: the same in all modes; each mode only writes them down in its own way.
// Thread: one owner.   Lifetime: views point into the event or into this, until the next Read.
// Errors: kInvalidArgument (an undeliverable event), reason cloudevent_invalid: no id or type, text
//   that is not UTF-8, a time before the year 1 or after 9999; in binary mode a content type of
//   CloudEvents itself.
// Source: CloudEvents 1.0.2, and its extensions partitioning, sequence, recorded time and
//   distributed tracing; docs/formats.md.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "envelope/control_records.h"
#include "envelope/protobuf_wire.h"
#include "outbox/event.h"

namespace walpost::envelope {

enum class CloudEventMode { kBinary, kStructuredProtobuf, kStructuredJson };

struct CloudEventOptions {
  CloudEventMode mode = CloudEventMode::kBinary;
  std::string source = {};  // empty = /<database>/<schema>/<table>
};

struct CloudEventAttribute {
  enum class Type { kString, kUri, kTimestamp };

  static constexpr std::string_view kPrefix = "ce_";

  std::string_view header;  // in binary mode
  Type type = Type::kString;
  std::string_view text;
  TimeParts time;  // of kTimestamp

  std::string_view name() const { return header.substr(kPrefix.size()); }
};

class CloudEvent {
 public:
  enum class Data { kNone, kJson, kText, kProtobuf, kBinary };

  static constexpr std::string_view kSpecVersion = "1.0";

  CloudEvent(std::string source, std::string database);
  // Views point into it.
  CloudEvent(const CloudEvent&) = delete;
  CloudEvent& operator=(const CloudEvent&) = delete;

  absl::Status Read(const outbox::Event& event, const Position& position,
                    const TransactionInfo& transaction);

  // Of an event that was read: whether binary mode may give its content type to readers.
  absl::Status CheckBinary(const outbox::Event& event) const;

  std::string_view id() const { return id_; }

  std::string_view source() const { return source_; }

  std::string_view type() const { return type_; }

  // Those that are given, sorted by name; without datacontenttype, which would come first.
  std::span<const CloudEventAttribute> attributes() const { return {attributes_.data(), count_}; }

  std::string_view content_type() const { return content_type_; }  // empty = not given

  Data data() const { return data_; }

 private:
  static constexpr std::size_t kTimeTextSize = 27;  // 2024-02-29T12:00:00.123456Z

  absl::Status CheckText(const outbox::Event& event) const;
  void ReadData(const outbox::Event& event);
  void PrepareSource(const outbox::Event& event);
  void Add(std::string_view header, std::string_view text,
           CloudEventAttribute::Type type = CloudEventAttribute::Type::kString);
  absl::Status AddTime(std::string_view header, base::WallTime time, const outbox::Event& event,
                       std::array<char, kTimeTextSize>* text);

  const bool source_given_;
  const std::string database_;
  std::string source_;
  std::string source_schema_;
  std::string source_table_;
  std::string_view id_;
  std::string_view type_;
  std::string_view content_type_;
  Data data_ = Data::kNone;
  std::array<CloudEventAttribute, 8> attributes_;
  std::size_t count_ = 0;
  std::array<char, kTimeTextSize> time_text_ = {};
  std::array<char, kTimeTextSize> recorded_text_ = {};
  std::array<char, Position::kTextSize> sequence_ = {};
};

// As far as characters go.
bool IsUriReference(std::string_view text);

}  // namespace walpost::envelope
