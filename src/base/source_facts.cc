#include "base/source_facts.h"

#include <utility>

namespace walpost::base {
namespace {

// By what position and time say.
void ReplaceXid(PublishedTable* table) {
  if (const XidAt given = std::exchange(table->first_xid, {}); given.xid.value != 0) {
    table->since = {given.lsn, table->since.at, given.timeline};
  }
}

}  // namespace

const std::string* FindOther(const std::vector<std::string>& prefixes,
                             const std::vector<std::string>& others) {
  const auto other = std::find_if(prefixes.begin(), prefixes.end(), [&](const std::string& prefix) {
    return std::find(others.begin(), others.end(), prefix) == others.end();
  });
  return other == prefixes.end() ? nullptr : &*other;
}

Lsn SourceFacts::EndOf(std::uint32_t of) const {
  for (const TimelineEnd& ancestor : timeline_history) {
    if (ancestor.timeline == of) {
      return ancestor.end;
    }
  }
  return of == timeline ? Lsn(UINT64_MAX) : Lsn();
}

Since SourceFacts::Here(Since since) const {
  if (since.timeline != 0) {
    const bool all = in_recovery || !server_wal_lsn.valid();
    since.lsn = std::min({since.lsn, EndOf(since.timeline), all ? since.lsn : server_wal_lsn});
  }
  return since;
}

bool SourceFacts::ForgetOtherLog(Fingerprint* remembered) const {
  bool changed = false;
  const auto limit = [&](Since* since) {
    const Since here = Here(*since);
    changed = changed || here != *since;
    *since = here;
  };
  for (PublishedTable& table : remembered->tables) {
    if (MayGiveAgain(table.first_xid)) {
      ReplaceXid(&table);
      changed = true;
    }
    limit(&table.since);
  }
  for (auto& [prefix, since] : remembered->prefixes_since) {
    limit(&since);
  }
  return changed;
}

std::uint64_t NextEpoch(std::uint64_t known, WallTime at) {
  const auto now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch());
  return std::max(known + 1, static_cast<std::uint64_t>(std::max<std::int64_t>(now_ms.count(), 0)));
}

Progress SourceFacts::DecisionAt(Lsn position, WallTime now,
                                 const std::optional<Progress>& newest) const {
  const Fingerprint nothing;
  const Fingerprint& before =
      newest && newest->system_identifier == system_identifier ? *newest : nothing;
  const auto later = [&](const Since& kept) {
    const bool adopted_later =
        kept.timeline != 0 && HasBegun(kept.timeline, kept.lsn) && Here(kept).lsn > position;
    return adopted_later ? Here(kept) : Since{position, now};
  };
  Progress there = ProgressAt(position);
  there.epoch = NextEpoch(newest ? newest->epoch : 0, now);
  for (PublishedTable& table : there.tables) {
    const PublishedTable* const found = before.Find(table);
    PublishedTable old = found == nullptr ? PublishedTable() : *found;
    ReplaceXid(&old);
    table.since = later(old.since);
    table.first_xid = {};
  }
  there.passed_at = now;
  there.prefixes_since.clear();
  for (const std::string& prefix : there.message_prefixes) {
    const auto old = before.prefixes_since.find(prefix);
    there.prefixes_since[prefix] =
        later(old == before.prefixes_since.end() ? Since() : old->second);
  }
  return there;
}

}  // namespace walpost::base
