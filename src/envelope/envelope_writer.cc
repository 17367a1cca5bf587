#include "envelope/envelope_writer.h"

#include <google/protobuf/util/json_util.h>

#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/text.h"
#include "envelope/protobuf_wire.h"
#include "walpost/v1/envelope.pb.h"

namespace walpost::envelope {
namespace {

// A map entry always carries both fields.
std::size_t HeaderBodySize(const outbox::Header& header) {
  return BytesFieldSize(header.name.size()) + BytesFieldSize(header.value.size());
}

}  // namespace

absl::StatusOr<std::size_t> EnvelopeWriter::Measure(const outbox::Event& event,
                                                    const Position& position,
                                                    const TransactionInfo& transaction) {
  // Bounded first: all sizes below fit an int.
  if (event.payload &&
      event.payload->size() > std::size_t{std::numeric_limits<std::int32_t>::max()} / 2) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "table %s.%s: the payload of event '%s' has %u bytes; protobuf's limit is 2 GiB",
        event.schema, event.table, event.id, event.payload->size()));
  }
  if (absl::Status status = CheckText(event); !status.ok()) {
    return status;
  }
  PrepareSource(event, position);
  std::size_t size = TextSize(event.id) + TextSize(event.type) + TextSize(event.aggregate_type) +
                     TextSize(event.content_type) + TextSize(event.schema_name) +
                     TextSize(event.traceparent) + TextSize(event.tracestate);
  if (event.key) {
    size += BytesFieldSize(event.key->size());
  }
  if (event.payload) {
    size += BytesFieldSize(event.payload->size());
  }
  for (const outbox::Header& header : event.headers) {
    size += BytesFieldSize(HeaderBodySize(header));
  }
  if (event.occurred_at) {
    size += BytesFieldSize(TimeBodySize(Split(*event.occurred_at)));
  }
  size += BytesFieldSize(TimeBodySize(Split(transaction.commit_time)));
  size += BytesFieldSize(source_.size() + NumberSize(transaction.xid.value));
  size += BytesFieldSize(NumberSize(position.commit_lsn.value()) + NumberSize(position.ordinal));
  return size;
}

char* EnvelopeWriter::Write(const outbox::Event& event, const Position& position,
                            const TransactionInfo& transaction, char* out) const {
  out = WriteText(1, event.id, out);
  out = WriteText(2, event.type, out);
  out = WriteText(3, event.aggregate_type, out);
  if (event.key) {
    out = WriteBytesField(4, *event.key, out);
  }
  if (event.payload) {
    out = WriteBytesField(5, *event.payload, out);
  }
  out = WriteText(6, event.content_type, out);
  out = WriteText(7, event.schema_name, out);
  for (const outbox::Header& header : event.headers) {
    out = WriteTag(8, kLengthDelimited, out);
    out = WriteVarint(HeaderBodySize(header), out);
    out = WriteBytesField(1, header.name, out);
    out = WriteBytesField(2, header.value, out);
  }
  if (event.occurred_at) {
    out = WriteTime(9, Split(*event.occurred_at), out);
  }
  out = WriteTime(10, Split(transaction.commit_time), out);
  out = WriteText(11, event.traceparent, out);
  out = WriteText(12, event.tracestate, out);

  out = WriteTag(13, kLengthDelimited, out);
  out = WriteVarint(source_.size() + NumberSize(transaction.xid.value), out);
  std::memcpy(out, source_.data(), source_.size());
  out = WriteNumber(6, transaction.xid.value, out + source_.size());

  out = WriteTag(14, kLengthDelimited, out);
  out = WriteVarint(NumberSize(position.commit_lsn.value()) + NumberSize(position.ordinal), out);
  out = WriteNumber(1, position.commit_lsn.value(), out);
  return WriteNumber(2, position.ordinal, out);
}

absl::Status EnvelopeWriter::CheckText(const outbox::Event& event) const {
  const std::pair<std::string_view, std::string_view> texts[] = {
      {"id", event.id},
      {"type", event.type},
      {"aggregate type", event.aggregate_type},
      {"key", event.key.value_or("")},
      {"content type", event.content_type},
      {"schema name", event.schema_name},
      {"traceparent", event.traceparent},
      {"tracestate", event.tracestate}};
  for (const auto& [name, text] : texts) {
    if (!base::IsUtf8(text)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("table %s.%s: the %s of an event is not UTF-8, which the envelope needs: "
                          "use value.format raw, or "
                          "correct what writes it",
                          event.schema, event.table, name));
    }
  }
  for (const outbox::Header& header : event.headers) {
    if (!base::IsUtf8(header.name) || !base::IsUtf8(header.value)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "table %s.%s: a header of event '%s' is not UTF-8", event.schema, event.table, event.id));
    }
  }
  return absl::OkStatus();
}

void EnvelopeWriter::PrepareSource(const outbox::Event& event, const Position& position) {
  if (!source_.empty() && source_system_identifier_ == position.system_identifier &&
      source_timeline_ == position.timeline && source_table_ == event.table &&
      source_schema_ == event.schema) {
    return;
  }
  source_schema_ = std::string(event.schema);
  source_table_ = std::string(event.table);
  source_system_identifier_ = position.system_identifier;
  source_timeline_ = position.timeline;
  source_.resize(TextSize(database_) + TextSize(event.schema) + TextSize(event.table) +
                 NumberSize(position.system_identifier) + NumberSize(position.timeline));
  char* out = source_.data();
  out = WriteText(1, database_, out);
  out = WriteText(2, event.schema, out);
  out = WriteText(3, event.table, out);
  out = WriteNumber(4, position.system_identifier, out);
  WriteNumber(5, position.timeline, out);
}

std::optional<std::string> EnvelopeAsJson(std::string_view value) {
  v1::Envelope decoded;
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  if (value.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
      !decoded.ParseFromArray(value.data(), static_cast<int>(value.size())) ||
      !google::protobuf::util::MessageToJsonString(decoded, &json, options).ok()) {
    return std::nullopt;
  }
  return json;
}

}  // namespace walpost::envelope
