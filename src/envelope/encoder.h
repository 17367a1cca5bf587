// Encoder - Event to Record: topic, key, headers and the value in the configured format.
// Why: the record is written once, straight into the arena block it stays in until Kafka has it.
// Thread: one owner.
// Lifetime: what a record shows lives with its block.
// Units/limits: protobuf's 2 GiB limit is an error, not a crash. Nothing is kept of an event but
//   which schema it needs, 1 MiB of that.
// Errors: kInvalidArgument (an undeliverable event): text that must be UTF-8 is not, value too
//   large for protobuf, what a format needs is missing; outbox/event.h says which. On an error
//   nothing stays allocated.
// Source: proto/walpost/v1/envelope.proto; docs/formats.md.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "envelope/cloud_event.h"
#include "envelope/control_records.h"
#include "envelope/record.h"
#include "envelope/schema.h"
#include "outbox/event.h"
#include "outbox/options.h"

namespace walpost::envelope {

enum class ValueFormat { kEnvelope, kRaw, kCloudEvents };

// Which headers of ours a record carries. `walpost` = id, type, content-type, traceparent,
// tracestate, walpost-position; `debezium` = id, as its Event Router writes, and trace context
// where a column is mapped to it.
enum class HeaderSet { kWalpost, kDebezium };

struct EncoderOptions {
  ValueFormat format = ValueFormat::kEnvelope;
  HeaderSet header_set = HeaderSet::kWalpost;
  CloudEventOptions cloud_events = {};
  std::vector<std::pair<std::string, std::string>> constant_headers = {};  // name, value
  FramingOptions framing = {};
};

// Whether walpost itself writes a header of this name, in whatever case, with these options, or
// reads one: no event brings it, or a reader could take the event's for walpost's.
bool IsOwnHeader(const EncoderOptions& options, std::string_view name);

class Encoder {
 public:
  // `schemas`, which must outlive it, is needed for framing only; `source` is the events' own
  // there.
  Encoder(EncoderOptions options, std::string database, SchemaTable* schemas = nullptr,
          std::uint32_t source = SchemaNeed::kNoSource);
  ~Encoder();
  Encoder(Encoder&&) noexcept;
  Encoder& operator=(Encoder&&) noexcept;

  absl::Status Encode(const outbox::Event& event, const Position& position,
                      const TransactionInfo& transaction, base::ChunkArena* arena, Record* record);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// OutboxOptions - one outbox table of the configuration: how its rows are read, and what records
// they become.
// Thread: values.
struct OutboxOptions {
  outbox::TableOptions table;
  EncoderOptions encoder;
};

// By SchemaNeed::source.
inline std::vector<FramingOptions> FramingsOf(const std::vector<OutboxOptions>& outboxes) {
  std::vector<FramingOptions> framings;
  for (const OutboxOptions& outbox : outboxes) {
    framings.push_back(outbox.encoder.framing);
  }
  return framings;
}

}  // namespace walpost::envelope
