// SchemaTable - the schemas that records need, and what is known of each.
// Why: the encoder, the letters and the retries of letters name what they need, the registry answers
//   later, and the last step before a sink only looks here.
// Thread: one owner.
// Units/limits: grows with the combinations of topic and message name that occur, as the encoder's
//   topics do; never shrinks.
// Source: docs/schema-registry.md.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "envelope/schema.h"

namespace walpost::envelope {

class SchemaTable {
 public:
  using Ref = std::uint32_t;  // 0 = no schema is needed

  enum class State { kUnknown, kKnown, kRefused };

  struct Entry {
    SchemaNeed need;
    State state = State::kUnknown;
    std::string frame;    // when known
    std::string refusal;  // when refused: what the registry said
    bool fixed = false;   // known for good
    bool wanted = false;  // unknown, and somebody waits for it
    bool used = false;    // since it was learnt
  };

  // The same ref for the same need.
  Ref RefOf(const SchemaNeed& need);

  // CHECK-fails for 0 and for what RefOf never gave.
  const Entry& entry(Ref ref) const { return entries_.at(ref - 1); }

  Ref size() const { return static_cast<Ref>(entries_.size()); }

  // How many are unknown and waited for.
  std::size_t wanted() const { return wanted_; }

  // As `entry`, for a record that is to be sent now: what is unknown is wanted from here on.
  const Entry& Use(Ref ref);

  void Learn(Ref ref, std::string frame, bool fixed);
  // What is known stays known: a schema that was once given does not go away.
  void Refuse(Ref ref, std::string refusal);
  // A refusal is asked about again when it is needed next.
  void Forget(Ref ref);
  void ForgetRefusals();

 private:
  void SetWanted(Entry* entry, bool wanted);

  std::deque<Entry> entries_;
  std::size_t wanted_ = 0;
  absl::flat_hash_map<std::string, Ref> by_key_;
};

}  // namespace walpost::envelope
