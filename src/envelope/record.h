// Record - a Kafka message as it will be produced.
// Why: plain views into one block of memory that does not move until the delivery report, so a
//   record can be produced again by a later producer without being built again, and librdkafka
//   needs no copy of the value.
// Thread: a value.
// Lifetime: views point into the ChunkArena block it was encoded to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/bytes.h"

namespace walpost::envelope {

struct RecordHeader {
  std::string_view name;
  std::string_view value;  // without data: null
};

struct Record {
  std::string_view topic;
  std::optional<std::string_view> key;
  std::optional<std::string_view> value;  // nullopt = tombstone
  std::span<const RecordHeader> headers;
  std::int32_t partition = -1;    // -1 = the sink chooses by key, as Java does
  std::int64_t timestamp_ms = 0;  // 0 = when it is produced
  base::ChunkArena::Block block;
  // What it needs of a Schema Registry: a ref into SchemaTable, 0 = nothing. Then there is room for
  // it: kSchemaRoom bytes before the value, and one header behind the last.
  std::uint32_t schema = 0;

  // What a schema can add to a record at most, when it is submitted.
  static constexpr std::size_t kSchemaBytesMax = 80;

  // What counts against delivery.in_flight_bytes_max: key, value, headers and 768 bytes of
  // bookkeeping, the topic's name and that of the first headers among them. librdkafka takes some
  // 70 bytes for each header, however small.
  std::size_t AccountedBytes() const {
    constexpr std::size_t kFirstHeaders = 8;
    constexpr std::size_t kHeaderBytes = 96;
    std::size_t bytes = 768 + (schema != 0 ? kSchemaBytesMax : 0) + (key ? key->size() : 0) +
                        (value ? value->size() : 0);
    for (const RecordHeader& header : headers) {
      bytes += header.name.size() + header.value.size();
    }
    const std::size_t count = headers.size() + (schema != 0 ? 1 : 0);
    return bytes + (count > kFirstHeaders ? (count - kFirstHeaders) * kHeaderBytes : 0);
  }
};

// The first of that name; empty when there is none.
inline std::string_view HeaderOf(const Record& record, std::string_view name) {
  for (const RecordHeader& header : record.headers) {
    if (header.name == name) {
      return header.value;
    }
  }
  return {};
}

}  // namespace walpost::envelope
