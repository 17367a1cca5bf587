// FindEdit - has anything been changed since that decides which rows the server sends?
// Why: rows that are inserted while a table is out of the publication are in no stream, and nothing in the
//   stream says so. Put back, everything looks as before, but for the numbers of the catalog's rows.
// Thread: any.
// Source: docs/schema-changes.md; docs/runbook.md, publication_missing and table_replaced.
#pragma once

#include <optional>
#include <string_view>

#include "base/source_facts.h"
#include "pipeline/halt.h"

namespace walpost::pipeline {

// Names the first edit between the two looks, since when rows may be missing, and the way out.
std::optional<Halt> FindEdit(const base::Fingerprint& before, const base::Fingerprint& now);

// Was this an outbox then, or this a prefix of messages that are events? Rows of before were nobody's. A
// fingerprint without tables is not known.
bool HadTable(const base::Fingerprint& then, std::string_view schema, std::string_view name);
bool HadPrefix(const base::Fingerprint& then, std::string_view prefix);

}  // namespace walpost::pipeline
