// entries - what Reconciliation keeps on disk, and what it gathers of one id from there.
// Why: rows, records and dead letters are sorted by id on disk, and compared one id after another.
// Units/limits: of one id memory holds kKindsMax at most of its rows, its dead letters, and kinds
//   of its records.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "envelope/control_records.h"
#include "operations/reconcile/reconciliation.h"
#include "operations/rows/row_sender.h"

namespace walpost::operations::entries {

enum class Kind : std::uint8_t { kRow, kRecord, kDeadLetter, kLate };

// What stands in Reconciliation::ids_, as bytes.
struct Entry {
  Kind kind = Kind::kRow;
  DeadLetterFate fate = DeadLetterFate::kNone;
  bool undeliverable = false;
  bool redelivered = false;
  bool has_key = false;
  bool shared_id = false;  // of a row
  bool in_topic = false;   // once judged, as what follows
  bool unproven = false;
  bool has_order = false;  // of a row
  std::array<std::uint64_t, 2> key{};
  std::uint32_t topic = 0;
  std::uint32_t source = 0;    // of a row or dead letter
  std::int32_t partition = 0;  // of a record; of a row the one that it asks for, or -1
  std::int32_t key_hash = 0;   // of a row that has a key: kafka::KeyHash
  std::uint64_t number = 0;    // of a record its offset
  std::uint64_t order = 0;     // as ReadRow has it
  std::int64_t at_ms = 0;
  std::int64_t bytes = 0;
  envelope::Position position;  // of a record that says where its event was committed, else 0
  WholeId whole_id{};
  // Of a row or dead letter: DestinationOf.
  std::array<std::uint64_t, 2> destination{};
};

// The topic and the key of an event, as its row and its dead letter have them.
std::array<std::uint64_t, 2> DestinationOf(std::string_view topic,
                                           const std::optional<std::string_view>& key);

template <typename T>
std::string_view BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

template <typename T>
T ReadBytes(std::string_view bytes) {
  T value;
  std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof(value));
  return value;
}

// Where the record of a row is, or goes now; -1 = to any.
std::int32_t PartitionOf(const Entry& row, const ReconciledTopic& topic);

// Of a row, as the topic's limit is now.
bool IsTooLarge(const Entry& row, const ReconciledTopic& topic);

// Records of one id, as far as they differ in what is asked of them. Whoever writes a topic chooses
// ids: the number of these is bounded, that of the records is not.
struct Records {
  static constexpr std::size_t kKindsMax = 1'000;

  Entry first;
  std::uint64_t count = 0;
};

// All that is known of one id.
struct OfOneId {
  using Key = std::tuple<std::uint32_t, std::int32_t, bool, bool, bool,
                         std::array<std::uint64_t, 2>, envelope::Position>;

  std::vector<Entry> rows;
  std::map<Key, Records> records;
  bool too_many = false;  // kinds of records: some are not here
  std::map<std::pair<std::uint32_t, std::int32_t>, std::uint64_t>
      late;  // lowest offset, by partition

  // False: it is not kept.
  bool Add(const Entry& record, bool of_history) {
    const Key key(record.topic, record.partition, record.redelivered, of_history, record.has_key,
                  record.key, record.position);
    const auto found = records.find(key);
    if (found != records.end()) {
      ++found->second.count;
      found->second.first.number = std::min(found->second.first.number, record.number);
    } else if (records.size() < Records::kKindsMax) {
      records.emplace(key, Records{record, 1});
    } else {
      too_many = true;
      return false;
    }
    return true;
  }

  void AddLate(const Entry& record) {
    const auto [found, added] = late.try_emplace({record.topic, record.partition}, record.number);
    found->second = std::min(found->second, record.number);
  }
};

// Of one table, topic and key.
struct DeadLettersAt {
  std::set<envelope::Position> positions;
  std::uint64_t newest = 0;  // its seq
  DeadLetterFate fate = DeadLetterFate::kNone;
};

// All that is known of one text of an id. A dead letter has no more of it.
struct OfOneText {
  std::map<WholeId, OfOneId> ids;
  std::map<std::pair<std::uint32_t, std::array<std::uint64_t, 2>>, DeadLettersAt> dead_letters;
  std::size_t positions = 0;   // of all dead letters
  bool too_many = false;       // dead letters: some are not here
  std::size_t rows = 0;        // that are here
  bool too_many_rows = false;  // some are not here

  // Its rows come first. False: it is not kept, and all rows are unknown.
  bool AddRow(const Entry& row);

  // Null: there are too many, none of them of a row.
  OfOneId* IdOf(const WholeId& whole);

  void AddDeadLetter(const Entry& dead_letter);

  // After what their records say. Gives each row its fate. A dead letter counts for one row only,
  // of its table, topic and key. Where one may be about another row than those, it is not known
  // what became of the rows that are nowhere.
  void FindFates();
};

}  // namespace walpost::operations::entries
