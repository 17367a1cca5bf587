#include "envelope/encoder.h"

#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/text.h"
#include "envelope/cloud_event_writer.h"
#include "envelope/envelope_writer.h"
#include "outbox/event.h"

namespace walpost::envelope {
namespace {

// What a reader finds in the value; the payload's own media type is inside the envelope.
constexpr std::string_view kEnvelopeContentType = "application/protobuf; proto=walpost.v1.Envelope";

std::int64_t Millis(base::WallTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

// What is remembered of topics and message names together; who writes events chooses them.
constexpr std::size_t kSchemaRefsBytesMax = std::size_t{1024} * 1024;
constexpr std::size_t kSchemaRefBytes = 64;  // of each, beside the names

// The full name of a protobuf message, also out of a type URL. Whoever looks it up decides about
// the rest.
std::string_view RecordName(std::string_view schema_name, SchemaType type) {
  return type == SchemaType::kProtobuf ? schema_name.substr(schema_name.rfind('/') + 1)
                                       : schema_name;
}

bool IsRecordName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) > 0x20 && static_cast<unsigned char>(c) < 0x7f;
  });
}

constexpr std::string_view kOwnPrefix = "walpost-";

// What CloudEvents itself defines, what walpost adds, and what would say how to read that; any
// other ce_NAME is an extension of the event's own.
constexpr std::string_view kCloudEventAttributes[] = {
    "id",        "source",      "specversion",  "type",         "datacontenttype",
    "data",      "data_base64", "dataschema",   "partitionkey", "recordedtime",
    "time",      "sequence",    "sequencetype", "subject",      "traceparent",
    "tracestate"};

// Before an attribute. Those of HTTP and AMQP some readers take for Kafka's, too.
constexpr std::string_view kCloudEventPrefixes[] = {CloudEventAttribute::kPrefix, "ce-",
                                                    "cloudEvents:", "cloudEvents_"};

// Names of headers, here and below, without case, as many readers take them.
bool IsCloudEventHeader(std::string_view name) {
  for (const std::string_view prefix : kCloudEventPrefixes) {
    if (!base::StartsWithIgnoringCase(name, prefix)) {
      continue;
    }
    const std::string_view attribute = name.substr(prefix.size());
    return std::any_of(
        std::begin(kCloudEventAttributes), std::end(kCloudEventAttributes),
        [&](std::string_view known) { return base::EqualsIgnoringCase(attribute, known); });
  }
  return false;
}

// Some readers end a name at a zero byte, leave out what cannot be printed, or compare names
// without blanks and without case, as Unicode has it: the long s of `walpo\u017ft-position` is an s
// to them.
bool IsPlainName(std::string_view name) {
  const bool printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
  return printable && !name.starts_with(' ') && !name.ends_with(' ');
}

// Hands out the parts of one block, in order.
class Cursor {
 public:
  explicit Cursor(char* next) : next_(next) {}

  std::string_view Copy(std::string_view bytes) {
    char* start = next_;
    if (!bytes.empty()) {
      std::memcpy(start, bytes.data(), bytes.size());
    }
    next_ += bytes.size();
    return std::string_view(start, bytes.size());
  }

  char* Take(std::size_t size) { return std::exchange(next_, next_ + size); }

 private:
  char* next_;
};

}  // namespace

struct Encoder::Impl {
  Impl(EncoderOptions encoder_options, std::string database, SchemaTable* schema_table,
       std::uint32_t schema_source)
      : options(std::move(encoder_options)),
        envelope(database),
        cloud_events(options.cloud_events, std::move(database)),
        schemas(schema_table),
        source(schema_source) {
    CHECK(!framed() || schemas != nullptr);
  }

  bool framed() const { return options.framing.framing != Framing::kNone; }

  // nullopt = a null value.
  absl::StatusOr<std::optional<std::size_t>> MeasureValue(const outbox::Event& event,
                                                          const Position& position,
                                                          const TransactionInfo& transaction);
  // Into what was measured.
  void WriteValue(const outbox::Event& event, const Position& position,
                  const TransactionInfo& transaction, char* out);

  // Headers of this event as views into it; the position's text is written by Encode.
  void CollectHeaders(const outbox::Event& event);
  void CollectOwnHeaders(const outbox::Event& event);
  void AddHeader(std::string_view name, std::string_view value);  // unless empty
  absl::Status CheckHeaders(const outbox::Event& event) const;
  absl::Status CheckNames(const outbox::Event& event) const;
  absl::Status HeaderRejected(const outbox::Event& event, std::string_view name,
                              std::string_view why) const;
  absl::StatusOr<SchemaTable::Ref> FindSchema(const outbox::Event& event);

  const EncoderOptions options;
  EnvelopeWriter envelope;
  CloudEventWriter cloud_events;
  std::vector<outbox::Header> headers;  // scratch: walpost's, the configuration's, the event's
  std::size_t given_headers = 0;        // those of walpost and of the configuration
  char position_text[Position::kTextSize] = {};
  SchemaTable* const schemas;
  const std::uint32_t source;
  std::string schema_key;  // scratch
  absl::flat_hash_map<std::string, SchemaTable::Ref> schema_refs;
  std::size_t schema_refs_bytes = 0;
  std::uint64_t schema_epoch = 0;  // of the table, when schema_refs was begun
};

bool IsOwnHeader(const EncoderOptions& options, std::string_view name) {
  const auto is = [name](std::string_view own) { return base::EqualsIgnoringCase(name, own); };
  if (is("id") || base::StartsWithIgnoringCase(name, kOwnPrefix)) {
    return true;
  }
  const bool cloud_events = options.format == ValueFormat::kCloudEvents;
  if (options.header_set == HeaderSet::kWalpost && (is("type") || is("content-type"))) {
    return true;
  }
  if (cloud_events && (is("content-type") || IsCloudEventHeader(name))) {
    return true;
  }
  return options.framing.framing != Framing::kNone && is(kSchemaHeader);
}

Encoder::Encoder(EncoderOptions options, std::string database, SchemaTable* schemas,
                 std::uint32_t source)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(database), schemas, source)) {}

Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;
Encoder& Encoder::operator=(Encoder&&) noexcept = default;

absl::Status Encoder::Encode(const outbox::Event& event, const Position& position,
                             const TransactionInfo& transaction, base::ChunkArena* arena,
                             Record* record) {
  Impl& m = *impl_;
  ASSIGN_OR_RETURN(const std::optional<std::size_t> value_bytes,
                   m.MeasureValue(event, position, transaction));
  position.Format(m.position_text);
  m.CollectHeaders(event);
  RETURN_IF_ERROR(m.CheckHeaders(event));
  // A tombstone has no schema.
  SchemaTable::Ref schema = 0;
  if (m.framed() && value_bytes) {
    ASSIGN_OR_RETURN(schema, m.FindSchema(event));
  }

  const std::size_t header_slots = m.headers.size() + (schema != 0 ? 1 : 0);
  std::size_t size = header_slots * sizeof(RecordHeader) + event.topic.size() +
                     (event.key ? event.key->size() : 0) + value_bytes.value_or(0) +
                     (schema != 0 ? kSchemaRoom : 0);
  for (const outbox::Header& header : m.headers) {
    size += header.name.size() + header.value.size();
  }
  const base::ChunkArena::Block block = arena->Allocate(size);
  Cursor cursor(block.data);

  // Blocks are aligned for this array; text follows it.
  auto* headers =
      ::new (cursor.Take(header_slots * sizeof(RecordHeader))) RecordHeader[header_slots];
  for (std::size_t i = 0; i < m.headers.size(); ++i) {
    headers[i].name = cursor.Copy(m.headers[i].name);
    headers[i].value = m.headers[i].null ? std::string_view() : cursor.Copy(m.headers[i].value);
  }
  *record = Record();
  record->block = block;
  record->schema = schema;
  record->headers = std::span<const RecordHeader>(headers, m.headers.size());
  record->topic = cursor.Copy(event.topic);
  record->partition = event.partition;
  // Kafka has no time before 1970, and 0 means none.
  record->timestamp_ms = event.timestamp ? std::max(Millis(*event.timestamp), std::int64_t{1})
                                         : Millis(transaction.commit_time);
  if (event.key) {
    record->key = cursor.Copy(*event.key);
  }
  if (schema != 0) {
    cursor.Take(kSchemaRoom);
  }
  if (value_bytes) {
    char* value = cursor.Take(*value_bytes);
    m.WriteValue(event, position, transaction, value);
    record->value = std::string_view(value, *value_bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::size_t>> Encoder::Impl::MeasureValue(
    const outbox::Event& event, const Position& position, const TransactionInfo& transaction) {
  switch (options.format) {
    case ValueFormat::kEnvelope:
      return envelope.Measure(event, position, transaction);
    case ValueFormat::kCloudEvents:
      return cloud_events.Measure(event, position, transaction);
    case ValueFormat::kRaw:
      break;
  }
  return event.payload ? std::optional(event.payload->size()) : std::nullopt;
}

void Encoder::Impl::WriteValue(const outbox::Event& event, const Position& position,
                               const TransactionInfo& transaction, char* out) {
  switch (options.format) {
    case ValueFormat::kEnvelope:
      envelope.Write(event, position, transaction, out);
      return;
    case ValueFormat::kCloudEvents:
      cloud_events.Write(event, out);
      return;
    case ValueFormat::kRaw:
      break;
  }
  Cursor(out).Copy(*event.payload);
}

void Encoder::Impl::CollectHeaders(const outbox::Event& event) {
  headers.clear();
  CollectOwnHeaders(event);
  for (const auto& [name, value] : options.constant_headers) {
    headers.push_back({name, value});
  }
  given_headers = headers.size();
  headers.insert(headers.end(), event.record_headers.begin(), event.record_headers.end());
  // The envelope carries the row's own headers inside.
  if (options.format != ValueFormat::kEnvelope) {
    headers.insert(headers.end(), event.headers.begin(), event.headers.end());
  }
}

void Encoder::Impl::CollectOwnHeaders(const outbox::Event& event) {
  const bool all = options.header_set == HeaderSet::kWalpost;
  headers.push_back({"id", event.id});
  if (all) {
    AddHeader("type", event.type);
  }
  if (options.format == ValueFormat::kCloudEvents) {
    cloud_events.AddHeaders(&headers);
  } else if (all && options.format == ValueFormat::kEnvelope) {
    headers.push_back({"content-type", kEnvelopeContentType});
  } else if (all) {
    AddHeader("content-type", event.content_type);
  }
  AddHeader("traceparent", event.traceparent);
  AddHeader("tracestate", event.tracestate);
  AddHeader("baggage", event.baggage);
  AddHeader("tracingspancontext", event.tracingspancontext);
  if (all) {
    headers.push_back({"walpost-position", std::string_view(position_text, sizeof(position_text))});
  }
}

void Encoder::Impl::AddHeader(std::string_view name, std::string_view value) {
  if (!value.empty()) {
    headers.push_back({name, value});
  }
}

absl::Status Encoder::Impl::CheckHeaders(const outbox::Event& event) const {
  for (const outbox::Header& header : headers) {
    if (!base::IsUtf8(header.value) || !base::IsUtf8(header.name)) {
      return outbox::UndeliverableError(
          outbox::kHeaderInvalid,
          absl::StrFormat("table %s.%s: header %s of event '%s' is not UTF-8: correct what writes "
                          "it, or take it out of the configuration",
                          event.schema, event.table,
                          base::IsUtf8(header.name) ? base::Cut(header.name) : "",
                          base::IsUtf8(event.id) ? event.id : ""));
    }
  }
  return CheckNames(event);
}

absl::Status Encoder::Impl::CheckNames(const outbox::Event& event) const {
  if (headers.size() == given_headers && event.headers.empty()) {
    return absl::OkStatus();
  }
  // Those of the event do not name one twice; they are compared with what stands before them.
  const std::size_t own_of_event = given_headers + event.record_headers.size();
  for (std::size_t i = given_headers; i < headers.size(); ++i) {
    const std::string_view name = headers[i].name;
    const auto before = headers.begin() + static_cast<std::ptrdiff_t>(std::min(i, own_of_event));
    if (IsOwnHeader(options, name)) {
      return HeaderRejected(event, name, "which walpost writes itself");
    }
    if (i >= own_of_event && !IsPlainName(name)) {
      return HeaderRejected(event, name,
                            "whose name is not of printable ASCII, or begins or ends with a space");
    }
    if (std::any_of(headers.begin(), before, [name](const outbox::Header& header) {
          return base::EqualsIgnoringCase(header.name, name);
        })) {
      return HeaderRejected(event, name, "which the record has already");
    }
  }
  if (options.format == ValueFormat::kEnvelope) {
    for (const outbox::Header& header : event.headers) {
      if (base::StartsWithIgnoringCase(header.name, kOwnPrefix)) {
        return HeaderRejected(event, header.name, "a name that belongs to walpost");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Encoder::Impl::HeaderRejected(const outbox::Event& event, std::string_view name,
                                           std::string_view why) const {
  return outbox::UndeliverableError(
      outbox::kHeaderInvalid,
      absl::StrFormat("table %s.%s: event '%s' brings a header '%s', %s: correct what writes it",
                      event.schema, event.table, base::IsUtf8(event.id) ? event.id : "",
                      name.substr(0, 100), why));
}

absl::StatusOr<SchemaTable::Ref> Encoder::Impl::FindSchema(const outbox::Event& event) {
  std::string_view record;
  if (options.framing.needs_record()) {
    record = options.format == ValueFormat::kEnvelope
                 ? kEnvelopeRecord
                 : RecordName(event.schema_name, options.framing.type);
  }
  schema_key.assign(event.topic);
  schema_key.push_back('\0');
  schema_key.append(record);
  if (schema_epoch != schemas->epoch() || schema_refs_bytes > kSchemaRefsBytesMax) {
    schema_refs.clear();
    schema_refs_bytes = 0;
    schema_epoch = schemas->epoch();
  }
  if (const auto found = schema_refs.find(schema_key); found != schema_refs.end()) {
    return found->second;
  }
  SchemaNeed need{options.framing.framing, options.framing.type,
                  ExpandSubject(options.framing.subject, event.topic, record), std::string(record),
                  source};
  const bool named = !options.framing.needs_record() || IsRecordName(record);
  if (!named || need.subject.size() + record.size() > kSchemaNamesMax) {
    return outbox::UndeliverableError(
        outbox::kSchemaNameInvalid,
        absl::StrFormat("table %s.%s: event '%s' needs a schema name, such as shop.v1.OrderPlaced, "
                        "for the Schema Registry, and its schema_name is %s",
                        event.schema, event.table, base::IsUtf8(event.id) ? event.id : "",
                        record.empty() ? "empty"
                        : named        ? "too long"
                                       : "no such name"));
  }
  const SchemaTable::Ref ref = schemas->RefOf(need);
  schema_refs.emplace(schema_key, ref);
  schema_refs_bytes += schema_key.size() + kSchemaRefBytes;
  return ref;
}

}  // namespace walpost::envelope
