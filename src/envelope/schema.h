// Schema - what a value needs of a Schema Registry, and the few bytes by which its readers find it.
// Why: looking a schema up needs the network, and everything here must not: a record is encoded
//   with room for those bytes, and gets them right before it is submitted. Memory and dead letters
//   hold the value without them.
// Thread: values.
// Units/limits: kSchemaRoom bytes for all of them; kSchemaNamesMax for record and subject together.
// Errors: FrameOf: kInvalidArgument (the message is nested deeper than there is room for),
//   kFailedPrecondition (no GUID). ParseNeed: kDataLoss.
// Source: Confluent's wire format: payload `00`, id (4 bytes, big-endian); header
//   `__value_schema_id` `01`, GUID (16 bytes); both with the path to the message in a protobuf
//   schema behind it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "envelope/record.h"

namespace walpost::envelope {

enum class Framing { kNone, kPayload, kHeader };
enum class SchemaType { kProtobuf, kJson, kAvro };

inline constexpr std::string_view kSchemaHeader = "__value_schema_id";
inline constexpr std::string_view kEnvelopeRecord = "walpost.v1.Envelope";
inline constexpr std::size_t kSchemaRoom = 48;
inline constexpr std::size_t kSchemaNamesMax = 900;
// The registry answers, and not about a schema. That decides after this time, which the schemas of
// a source have together, and after so many answers about each of them.
inline constexpr std::chrono::milliseconds kSchemaUnclearFor{60'000};
inline constexpr int kSchemaUnclearAnswers = 3;
// The time begins again when there was no such answer for so long.
inline constexpr std::chrono::milliseconds kSchemaUnclearKept{600'000};
inline constexpr std::chrono::milliseconds kSchemaAskAgainAfter{1'000};
// Of the time between two answers, no more than this counts.
inline constexpr std::chrono::milliseconds kSchemaCountedMax{10'000};

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

// One line, for dead letters: `payload protobuf shop.v1.Order orders-shop.v1.Order`. Not the
// source.
std::string NeedAsText(const SchemaNeed& need);
absl::StatusOr<SchemaNeed> ParseNeed(std::string_view text);

std::string_view FramingName(Framing framing);
std::string_view SchemaTypeName(SchemaType type);

// SchemaTable - the schemas that records need, and what is known of each.
// Why: the encoder, the dead letters and their retries name what they need. The registry answers
//   later, and the last step before a sink only looks here.
// Thread: one owner.
// Units/limits: one entry for each combination of topic and message name, which those who write
//   events invent. Beyond kBytesMax it is crowded, and its owner has it forget what nothing in
//   flight needs: what was used longest ago, and of what is known only as much as makes room.
// Source: docs/schema-registry.md.
class SchemaTable {
 public:
  using Ref = std::uint32_t;  // 0 = no schema is needed

  enum class State { kUnknown, kKnown, kRejected };

  struct Entry {
    SchemaNeed need;
    State state = State::kUnknown;
    std::string frame;      // when known
    std::string rejection;  // when rejected: what the registry said
    bool unclear = false;   // that says nothing about the schema, but was all that it said for long
    bool fixed = false;     // known for good
    bool used = false;      // since it was learnt
    std::uint64_t made_in = 0;  // the epoch in which its ref came to mean this need
    std::uint64_t used_at = 0;
  };

  static constexpr std::size_t kBytesMax = std::size_t{16} * 1024 * 1024;

  // The same ref for the same need, until it is forgotten. It is wanted once it is used.
  Ref RefOf(const SchemaNeed& need);

  // CHECK-fails for 0 and for what RefOf never gave.
  const Entry& entry(Ref ref) const { return entries_.at(ref - 1); }

  // The highest ref; those that were forgotten are unknown and not wanted.
  Ref size() const { return static_cast<Ref>(entries_.size()); }

  std::size_t bytes() const { return bytes_; }

  bool crowded() const { return bytes_ > crowded_at_; }

  // Refs that are not `in_use` may mean another need from here on: whoever remembers some looks at
  // `epoch`.
  void ForgetUnused(const std::vector<Ref>& in_use);

  std::uint64_t epoch() const { return epoch_; }

  // Those that are unknown, and that somebody waits for.
  const std::set<Ref>& wanted() const { return wanted_; }

  // As `entry`, for a record that is to be sent now: what is unknown is wanted from here on.
  const Entry& Use(Ref ref);

  void Learn(Ref ref, std::string frame, bool fixed);
  // What is known stays known: a schema that was once given does not go away.
  void Reject(Ref ref, std::string rejection, bool unclear = false);
  // A rejection is asked about again when it is needed next.
  void Forget(Ref ref);
  void ForgetRejections();

 private:
  void Drop(Ref ref);

  std::deque<Entry> entries_;
  std::vector<Ref> free_;
  std::size_t bytes_ = 0;
  std::size_t crowded_at_ = kBytesMax;
  std::uint64_t epoch_ = 0;
  std::uint64_t uses_ = 0;
  std::set<Ref> wanted_;
  absl::flat_hash_map<std::string, Ref> by_key_;
};

}  // namespace walpost::envelope
