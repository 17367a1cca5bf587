#include "base/source_facts.h"

namespace walpost::base {

Since SourceFacts::SinceWithoutXid(const PublishedTable& remembered) const {
  const XidAt& given = remembered.first_xid;
  if (given.xid.value == 0) {
    return remembered.since;
  }
  return {std::min(given.lsn, EndOf(given.timeline)), remembered.since.at};
}

void SourceFacts::ForgetXids(Fingerprint* remembered) const {
  for (PublishedTable& table : remembered->tables) {
    if (MayGiveAgain(table.first_xid)) {
      table.since = SinceWithoutXid(table);
      table.first_xid = {};
    }
  }
}

Progress SourceFacts::DecisionAt(Lsn position, WallTime now,
                                 const std::optional<Progress>& newest) const {
  const Fingerprint nothing;
  const Fingerprint& before =
      newest && newest->system_identifier == system_identifier ? *newest : nothing;
  const auto later = [&](Since kept) { return kept.lsn > position ? kept : Since{position, now}; };
  Progress there = ProgressAt(position);
  for (PublishedTable& table : there.tables) {
    const PublishedTable* const old = before.Find(table);
    table.since = later(old == nullptr ? Since() : SinceWithoutXid(*old));
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
