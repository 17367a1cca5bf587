// SchemaTable - the schemas that records need, and what is known of each.
// Why: the encoder, the dead letters and their retries name what they need. The registry answers later,
//   and the last step before a sink only looks here.
// Thread: one owner.
// Units/limits: one entry for each combination of topic and message name, which those who write events
//   invent. Beyond kBytesMax it is crowded, and its owner has it forget what nothing in flight needs:
//   what was used longest ago, and of what is known only as much as makes room.
// Source: docs/schema-registry.md.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "envelope/schema.h"

namespace walpost::envelope {

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
    bool wanted = false;    // unknown, and somebody waits for it
    bool used = false;      // since it was learnt
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

  // How many are unknown and waited for.
  std::size_t wanted() const { return wanted_; }

  // As `entry`, for a record that is to be sent now: what is unknown is wanted from here on.
  const Entry& Use(Ref ref);

  void Learn(Ref ref, std::string frame, bool fixed);
  // What is known stays known: a schema that was once given does not go away.
  void Reject(Ref ref, std::string rejection, bool unclear = false);
  // A rejection is asked about again when it is needed next.
  void Forget(Ref ref);
  void ForgetRejections();

 private:
  void SetWanted(Entry* entry, bool wanted);
  void Drop(Ref ref);

  std::deque<Entry> entries_;
  std::vector<Ref> free_;
  std::size_t bytes_ = 0;
  std::size_t crowded_at_ = kBytesMax;
  std::uint64_t epoch_ = 0;
  std::uint64_t uses_ = 0;
  std::size_t wanted_ = 0;
  absl::flat_hash_map<std::string, Ref> by_key_;
};

}  // namespace walpost::envelope
