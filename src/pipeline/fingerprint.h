// FindEdit - has anything been changed since that decides which rows the server sends?
// Why: rows that are inserted while a table is out of the publication are in no stream, and nothing in the
//   stream says so. Put back, everything looks as before, but for the numbers of the catalog's rows.
// Thread: any.
// Source: docs/schema-changes.md; docs/runbook.md, publication_missing and table_replaced.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/lsn.h"
#include "base/source_facts.h"
#include "pipeline/halt.h"

namespace walpost::pipeline {

// Names the first edit between the two looks, since when rows may be missing, and the way out.
std::optional<Halt> FindEdit(const base::Fingerprint& before, const base::Fingerprint& now);

// Takes over from `before` since when each table and prefix of `now` holds events. What `before` lacks holds
// them from `prefixes` on, or as `tables` says; true when there is any such.
bool KeepSince(const base::Fingerprint& before, base::Since prefixes, const base::Adoption& tables,
               base::Fingerprint* now);

// The tables that `before` lacks, schema.table each.
std::vector<std::string> AdoptedTables(const base::Fingerprint& before,
                                       const base::Fingerprint& now);

}  // namespace walpost::pipeline
