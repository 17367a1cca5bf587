// Schema - what a value needs of a Schema Registry, and the few bytes by which its readers find it.
// Why: looking a schema up needs the network, and everything here must not: a record is encoded with
//   room for those bytes, and gets them right before it is submitted. What memory and dead letters hold
//   is the value without them.
// Thread: values.
// Units/limits: kSchemaRoom bytes for all of them; kSchemaNamesMax for record and subject together.
// Errors: FrameOf: kInvalidArgument (the message is nested deeper than there is room for),
//   kFailedPrecondition (no GUID). ParseNeed: kDataLoss.
// Source: Confluent's wire format: payload `00`, id (4 bytes, big-endian); header `__value_schema_id`
//   `01`, GUID (16 bytes); both with the path to the message in a protobuf schema behind it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/chunk_arena.h"
#include "envelope/record.h"

namespace walpost::envelope {

enum class Framing { kNone, kPayload, kHeader };
enum class SchemaType { kProtobuf, kJson, kAvro };

inline constexpr std::string_view kSchemaHeader = "__value_schema_id";
inline constexpr std::string_view kEnvelopeRecord = "walpost.v1.Envelope";
inline constexpr std::size_t kSchemaRoom = 48;
inline constexpr std::size_t kSchemaNamesMax = 900;

struct FramingOptions {
  Framing framing = Framing::kNone;
  SchemaType type = SchemaType::kProtobuf;
  std::string subject = "{topic}-{record}";  // template
  std::string descriptor_set = {};           // path of a FileDescriptorSet; empty = none
  bool auto_register = false;

  bool needs_record() const {
    return type == SchemaType::kProtobuf || subject.find("{record}") != std::string::npos;
  }
};

struct SchemaNeed {
  // Where events come from that nobody configures any more.
  static constexpr std::uint32_t kNoSource = 0xffffffff;

  Framing framing = Framing::kNone;
  SchemaType type = SchemaType::kProtobuf;
  std::string subject;
  std::string record;                // full name; empty = the subject alone decides
  std::uint32_t source = kNoSource;  // by the order of the outboxes, messages behind them

  friend bool operator==(const SchemaNeed&, const SchemaNeed&) = default;
};

using SchemaGuid = std::array<std::uint8_t, 16>;

// As a registry has it.
struct Schema {
  std::int32_t id = 0;
  std::optional<SchemaGuid> guid;
  std::vector<std::int32_t> indexes;  // the path to the message; of protobuf only
  // Exactly this one is meant, so there is nothing to look up again.
  bool fixed = false;
};

std::string ExpandSubject(std::string_view pattern, std::string_view topic,
                          std::string_view record);

// The bytes before the value, or in the header.
absl::StatusOr<std::string> FrameOf(const SchemaNeed& need, const Schema& schema);

// The same record with these bytes, which are written into its room: not while a sink holds it.
Record Framed(const Record& record, Framing framing, std::string_view frame);

// A copy with room, in a block of its own.
Record WithRoom(const Record& record, base::ChunkArena* arena);

// One line, for dead letters: `payload protobuf shop.v1.Order orders-shop.v1.Order`. Not the source.
std::string NeedAsText(const SchemaNeed& need);
absl::StatusOr<SchemaNeed> ParseNeed(std::string_view text);

std::string_view FramingName(Framing framing);
std::string_view SchemaTypeName(SchemaType type);

}  // namespace walpost::envelope
