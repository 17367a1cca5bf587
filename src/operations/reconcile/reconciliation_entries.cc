#include "operations/reconcile/reconciliation_entries.h"

#include "base/dead_letter.h"

namespace walpost::operations::entries {

std::array<std::uint64_t, 2> DestinationOf(std::string_view topic,
                                           const std::optional<std::string_view>& key) {
  const base::WideHash destination =
      base::ParkedKeyIdOf(postgres::Text(topic, base::DeadLetter::kTextBytesMax, /*ascii=*/false),
                          key.value_or(std::string_view()));
  // No key is another one than an empty one.
  return {destination.first + (key ? 1 : 0), destination.second};
}

bool OfOneText::AddRow(const Entry& row) {
  if (rows == Records::kKindsMax) {
    too_many_rows = true;
    return false;
  }
  ++rows;
  ids[row.whole_id].rows.push_back(row);
  return true;
}

OfOneId* OfOneText::IdOf(const WholeId& whole) {
  const auto found = ids.find(whole);
  if (found != ids.end()) {
    return &found->second;
  }
  return ids.size() < Records::kKindsMax ? &ids[whole] : nullptr;
}

// The same one may come twice, as it was at two times.
void OfOneText::AddDeadLetter(const Entry& dead_letter) {
  const auto destination = std::pair(dead_letter.source, dead_letter.destination);
  const auto known = dead_letters.find(destination);
  const bool seen =
      known != dead_letters.end() && known->second.positions.contains(dead_letter.position);
  if (!seen && positions == Records::kKindsMax) {
    too_many = true;
    return;
  }
  DeadLettersAt& there = dead_letters[destination];
  positions += there.positions.insert(dead_letter.position).second ? 1 : 0;
  if (dead_letter.number >= there.newest) {
    there.newest = dead_letter.number;
    there.fate = dead_letter.fate;
  }
}

void OfOneText::FindFates() {
  if (too_many_rows) {
    for (auto& [whole, id] : ids) {
      for (Entry& row : id.rows) {
        row.in_topic = false;
        row.unproven = true;
      }
    }
    return;
  }
  if (dead_letters.empty()) {
    return;
  }
  std::map<std::pair<std::uint32_t, std::array<std::uint64_t, 2>>, std::size_t> rows_at;
  for (const auto& [whole, id] : ids) {
    for (const Entry& row : id.rows) {
      ++rows_at[{row.source, row.destination}];
    }
  }
  std::set<std::uint32_t> of_no_row;  // tables
  for (const auto& [destination, there] : dead_letters) {
    const auto there_are = rows_at.find(destination);
    if (there_are == rows_at.end() || there.positions.size() > there_are->second) {
      of_no_row.insert(destination.first);
    }
  }
  for (auto& [whole, id] : ids) {
    for (Entry& row : id.rows) {
      const auto there = dead_letters.find({row.source, row.destination});
      const bool any = there != dead_letters.end();
      if (any && !too_many && there->second.positions.size() >= rows_at[there->first]) {
        row.fate = there->second.fate;
      } else if (any || too_many || of_no_row.contains(row.source)) {
        row.unproven = !row.in_topic;
      }
    }
  }
}

}  // namespace walpost::operations::entries
