#include "envelope/schema_table.h"

#include <utility>

namespace walpost::envelope {

SchemaTable::Ref SchemaTable::RefOf(const SchemaNeed& need) {
  const std::string key = NeedAsText(need) + " " + std::to_string(need.source);
  const auto [found, added] = by_key_.try_emplace(key, size() + 1);
  if (added) {
    entries_.emplace_back();
    entries_.back().need = need;
    SetWanted(&entries_.back(), true);
  }
  return found->second;
}

const SchemaTable::Entry& SchemaTable::Use(Ref ref) {
  Entry& entry = entries_.at(ref - 1);
  entry.used = true;
  SetWanted(&entry, entry.state == State::kUnknown);
  return entry;
}

void SchemaTable::SetWanted(Entry* entry, bool wanted) {
  if (entry->wanted != wanted) {
    entry->wanted = wanted;
    wanted_ += wanted ? 1 : static_cast<std::size_t>(-1);
  }
}

void SchemaTable::Learn(Ref ref, std::string frame, bool fixed) {
  Entry& entry = entries_.at(ref - 1);
  entry.state = State::kKnown;
  entry.frame = std::move(frame);
  entry.refusal.clear();
  entry.fixed = fixed;
  entry.used = false;
  SetWanted(&entry, false);
}

void SchemaTable::Refuse(Ref ref, std::string refusal) {
  Entry& entry = entries_.at(ref - 1);
  entry.used = false;
  SetWanted(&entry, false);
  if (entry.state != State::kKnown) {
    entry.state = State::kRefused;
    entry.refusal = std::move(refusal);
  }
}

void SchemaTable::Forget(Ref ref) {
  Entry& entry = entries_.at(ref - 1);
  if (entry.state == State::kRefused) {
    entry.state = State::kUnknown;
  }
}

void SchemaTable::ForgetRefusals() {
  for (Ref ref = 1; ref <= size(); ++ref) {
    Forget(ref);
  }
}

}  // namespace walpost::envelope
