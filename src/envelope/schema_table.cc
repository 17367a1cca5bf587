#include "envelope/schema_table.h"

#include <algorithm>
#include <utility>

namespace walpost::envelope {
namespace {

// Of an entry and its place in the index, beside the names, which stand in both.
constexpr std::size_t kEntryBytes = 400;

std::string KeyOf(const SchemaNeed& need) {
  return NeedAsText(need) + " " + std::to_string(need.source);
}

std::size_t BytesOf(const SchemaNeed& need) {
  return kEntryBytes + 2 * (need.subject.size() + need.record.size());
}

}  // namespace

SchemaTable::Ref SchemaTable::RefOf(const SchemaNeed& need) {
  const auto [found, added] = by_key_.try_emplace(KeyOf(need), 0);
  if (!added) {
    return found->second;
  }
  if (free_.empty()) {
    entries_.emplace_back();
    free_.push_back(size());
  }
  found->second = free_.back();
  free_.pop_back();
  Entry& entry = entries_.at(found->second - 1);
  entry.need = need;
  bytes_ += BytesOf(need);
  return found->second;
}

void SchemaTable::ForgetUnused(const std::vector<Ref>& in_use) {
  std::vector<bool> needed(size() + std::size_t{1});
  for (const Ref ref : in_use) {
    needed.at(ref) = true;
  }
  std::vector<Ref> known;
  for (const auto& [key, ref] : std::exchange(by_key_, {})) {
    const Entry& entry = entries_.at(ref - 1);
    if (needed[ref] || entry.state == State::kKnown) {
      by_key_.emplace(key, ref);
    } else {
      Drop(ref);
    }
    if (!needed[ref] && entry.state == State::kKnown) {
      known.push_back(ref);
    }
  }
  std::sort(known.begin(), known.end(), [this](Ref a, Ref b) {
    return std::pair(entry(a).used_at, a) < std::pair(entry(b).used_at, b);
  });
  for (const Ref ref : known) {
    if (bytes_ <= kBytesMax / 2) {
      break;
    }
    by_key_.erase(KeyOf(entry(ref).need));
    Drop(ref);
  }
  // What is in use stays, and may be much.
  crowded_at_ = std::max(kBytesMax, 2 * bytes_);
  ++epoch_;
}

void SchemaTable::Drop(Ref ref) {
  Entry& entry = entries_.at(ref - 1);
  SetWanted(&entry, false);
  bytes_ -= BytesOf(entry.need);
  entry = Entry();
  free_.push_back(ref);
}

const SchemaTable::Entry& SchemaTable::Use(Ref ref) {
  Entry& entry = entries_.at(ref - 1);
  entry.used = true;
  entry.used_at = ++uses_;
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
  entry.rejection.clear();
  entry.fixed = fixed;
  entry.used = false;
  SetWanted(&entry, false);
}

void SchemaTable::Reject(Ref ref, std::string rejection, bool unclear) {
  Entry& entry = entries_.at(ref - 1);
  entry.used = false;
  SetWanted(&entry, false);
  if (entry.state != State::kKnown) {
    entry.state = State::kRejected;
    entry.rejection = std::move(rejection);
    entry.unclear = unclear;
  }
}

void SchemaTable::Forget(Ref ref) {
  Entry& entry = entries_.at(ref - 1);
  if (entry.state == State::kRejected) {
    entry.state = State::kUnknown;
  }
}

void SchemaTable::ForgetRejections() {
  for (Ref ref = 1; ref <= size(); ++ref) {
    Forget(ref);
  }
}

}  // namespace walpost::envelope
