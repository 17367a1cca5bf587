#include "pipeline/fingerprint.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace walpost::pipeline {
namespace {

using base::Fingerprint;
using base::HaltReason;
using base::PublishedTable;

// Everything that committed before the last look was complete.
std::string Since(const Fingerprint& before) {
  if (!before.looked_lsn.valid()) {
    return "of the time between";
  }
  return absl::StrFormat(
      "committed after %s (%s)", before.looked_lsn.ToString(),
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ",
                       absl::FromUnixMicros(before.looked_at.time_since_epoch().count()),
                       absl::UTCTimeZone()));
}

// `walpost replay --missing` compares with the topics, so it needs no exact span.
Halt MakeHalt(HaltReason reason, const std::string& what, const Fingerprint& before,
              const char* first_step) {
  return Halt{
      reason,
      absl::StrFormat("%s, so rows %s may be missing; %s`walpost slot advance --yes` goes on from "
                      "here, and then `walpost replay --missing --in-place` sends what is missing; "
                      "see docs/runbook.md, %s",
                      what, Since(before), first_step, base::HaltReasonName(reason))};
}

// One that stayed has published the table all the time, and whole.
bool StaysPublished(const PublishedTable& before, const PublishedTable& now) {
  return before.memberships.empty() ||
         std::any_of(before.memberships.begin(), before.memberships.end(), [&](std::uint32_t row) {
           return std::find(now.memberships.begin(), now.memberships.end(), row) !=
                  now.memberships.end();
         });
}

// It is of before they were remembered.
bool RemembersNone(const Fingerprint& before) {
  return before.publication_oid == 0 && before.tables.empty();
}

}  // namespace

std::optional<Halt> FindEdit(const Fingerprint& before, const Fingerprint& now) {
  if (before.publication_oid != 0 && now.publication_oid != before.publication_oid) {
    return MakeHalt(HaltReason::kPublicationMissing,
                    absl::StrFormat("the publication is OID %u but was OID %u: it was dropped and "
                                    "created again",
                                    now.publication_oid, before.publication_oid),
                    before,
                    "`walpost slot recreate --yes` makes the slot anew behind it and sends them; "
                    "where the server can still read the log, ");
  }
  for (const PublishedTable& old : before.tables) {
    for (const PublishedTable& table : now.tables) {
      const bool same_name = table.schema == old.schema && table.name == old.name;
      if (!same_name && table.oid != old.oid) {
        continue;
      }
      if (table.oid != old.oid) {
        return MakeHalt(HaltReason::kTableReplaced,
                        absl::StrFormat("table %s.%s is OID %u but was OID %u: it was dropped and "
                                        "created again",
                                        table.schema, table.name, table.oid, old.oid),
                        before, "");
      }
      if (!StaysPublished(old, table)) {
        return MakeHalt(HaltReason::kPublicationMissing,
                        absl::StrFormat("table %s.%s was taken out of the publication and added "
                                        "again",
                                        table.schema, table.name),
                        before, "");
      }
    }
  }
  if (before.publication_xmin != 0 && now.publication_xmin != before.publication_xmin) {
    return MakeHalt(HaltReason::kPublicationMissing,
                    "the publication was altered (ALTER PUBLICATION ... SET, RENAME or OWNER), and "
                    "walpost cannot know what it published meanwhile",
                    before, "");
  }
  return std::nullopt;
}

bool KeepSince(const Fingerprint& before, base::Since prefixes, const base::Adoption& tables,
               Fingerprint* now) {
  if (RemembersNone(before)) {
    return false;
  }
  bool any_adopted = false;
  for (PublishedTable& table : now->tables) {
    const PublishedTable* const old = before.Find(table);
    table.since = old != nullptr ? old->since : tables.since;
    table.first_xid = old != nullptr ? old->first_xid : tables.first_xid;
    any_adopted = any_adopted || old == nullptr;
  }
  now->prefixes_since.clear();
  for (const std::string& prefix : now->message_prefixes) {
    const bool known = std::find(before.message_prefixes.begin(), before.message_prefixes.end(),
                                 prefix) != before.message_prefixes.end();
    const auto since = before.prefixes_since.find(prefix);
    if (!known) {
      now->prefixes_since.emplace(prefix, prefixes);
      any_adopted = true;
    } else if (since != before.prefixes_since.end()) {
      now->prefixes_since.insert(*since);
    }
  }
  return any_adopted;
}

std::vector<std::string> AdoptedTables(const Fingerprint& before, const Fingerprint& now) {
  std::vector<std::string> adopted;
  for (const PublishedTable& table : now.tables) {
    if (!RemembersNone(before) && before.Find(table) == nullptr) {
      adopted.push_back(absl::StrFormat("%s.%s", table.schema, table.name));
    }
  }
  return adopted;
}

}  // namespace walpost::pipeline
