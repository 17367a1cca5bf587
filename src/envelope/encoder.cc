#include "envelope/encoder.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/status.h"
#include "envelope/envelope_writer.h"

namespace walpost::envelope {
namespace {

// What a reader finds in the value; the payload's own media type is inside the envelope.
constexpr std::string_view kEnvelopeContentType = "application/protobuf; proto=walpost.v1.Envelope";

struct TransparentHash {
  using is_transparent = void;

  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

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
  Impl(EncoderOptions encoder_options, std::string database)
      : options(encoder_options), writer(std::move(database)) {}

  // Headers of this event as views into it; the position's text is written by Encode.
  void CollectHeaders(const outbox::Event& event);
  std::string_view Intern(std::string_view topic);

  const EncoderOptions options;
  EnvelopeWriter writer;
  std::unordered_set<std::string, TransparentHash, std::equal_to<>> topics;
  std::string_view last_topic;
  std::vector<outbox::Header> headers;  // scratch
  char position_text[Position::kTextSize] = {};
};

Encoder::Encoder(EncoderOptions options, std::string database)
    : impl_(std::make_unique<Impl>(options, std::move(database))) {}

Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;
Encoder& Encoder::operator=(Encoder&&) noexcept = default;

absl::Status Encoder::Encode(const outbox::Event& event, const Position& position,
                             const TransactionInfo& transaction, base::ChunkArena* arena,
                             Record* record) {
  Impl& m = *impl_;
  std::size_t value_bytes = event.payload ? event.payload->size() : 0;
  if (m.options.format == ValueFormat::kEnvelope) {
    ASSIGN_OR_RETURN(value_bytes, m.writer.Measure(event, position, transaction));
  }
  position.Format(m.position_text);
  m.CollectHeaders(event);

  std::size_t size =
      m.headers.size() * sizeof(RecordHeader) + (event.key ? event.key->size() : 0) + value_bytes;
  for (const outbox::Header& header : m.headers) {
    size += header.name.size() + header.value.size();
  }
  const base::ChunkArena::Block block = arena->Allocate(size);
  Cursor cursor(block.data);

  // Blocks are aligned for this array; text follows it.
  auto* headers =
      ::new (cursor.Take(m.headers.size() * sizeof(RecordHeader))) RecordHeader[m.headers.size()];
  for (std::size_t i = 0; i < m.headers.size(); ++i) {
    headers[i].name = cursor.Copy(m.headers[i].name);
    headers[i].value = cursor.Copy(m.headers[i].value);
  }
  *record = Record();
  record->block = block;
  record->headers = std::span<const RecordHeader>(headers, m.headers.size());
  record->topic = m.Intern(event.topic);
  record->partition = event.partition;
  record->timestamp_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                             transaction.commit_time.time_since_epoch())
                             .count();
  if (event.key) {
    record->key = cursor.Copy(*event.key);
  }
  if (m.options.format == ValueFormat::kEnvelope) {
    char* value = cursor.Take(value_bytes);
    m.writer.Write(event, position, transaction, value);
    record->value = std::string_view(value, value_bytes);
  } else if (event.payload) {
    record->value = cursor.Copy(*event.payload);
  }
  return absl::OkStatus();
}

void Encoder::Impl::CollectHeaders(const outbox::Event& event) {
  headers.clear();
  headers.push_back({"id", event.id});
  if (options.header_set == HeaderSet::kWalpost) {
    if (!event.type.empty()) {
      headers.push_back({"type", event.type});
    }
    if (options.format == ValueFormat::kEnvelope) {
      headers.push_back({"content-type", kEnvelopeContentType});
    } else if (!event.content_type.empty()) {
      headers.push_back({"content-type", event.content_type});
    }
    if (!event.traceparent.empty()) {
      headers.push_back({"traceparent", event.traceparent});
    }
    if (!event.tracestate.empty()) {
      headers.push_back({"tracestate", event.tracestate});
    }
    headers.push_back({"walpost-position", std::string_view(position_text, sizeof(position_text))});
  }
  headers.insert(headers.end(), event.record_headers.begin(), event.record_headers.end());
  // The envelope carries the row's own headers inside.
  if (options.format == ValueFormat::kRaw) {
    headers.insert(headers.end(), event.headers.begin(), event.headers.end());
  }
}

std::string_view Encoder::Impl::Intern(std::string_view topic) {
  if (topic == last_topic) {
    return last_topic;
  }
  auto found = topics.find(topic);
  if (found == topics.end()) {
    found = topics.emplace(topic).first;
  }
  last_topic = *found;
  return last_topic;
}

}  // namespace walpost::envelope
