// The publication and the tables it must hold.
#include <charconv>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "postgres/preflight_steps.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

using base::HaltReason;

// Of row filters, column lists and whole schemas.
constexpr int kPartsPublishedSince = 150000;
constexpr int kDetachedConcurrentlySince = 140000;

template <typename Integer>
Integer Number(std::string_view text) {
  Integer number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::vector<std::uint32_t> Numbers(std::string_view text) {
  std::vector<std::uint32_t> numbers;
  for (const auto part :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ' ', absl::SkipEmpty())) {
    numbers.push_back(Number<std::uint32_t>(std::string_view(part.data(), part.size())));
  }
  return numbers;
}

std::string QualifiedName(const SourceTable& table) {
  return QuoteIdentifier(table.schema) + "." + QuoteIdentifier(table.table);
}

}  // namespace

std::string PreflightRun::PublicationText() const {
  return absl::StrFormat("publication \"%s\" on %s", options_.publication, place().ToString());
}

std::optional<StreamEnd> PreflightRun::Looked() {
  // A standby has received more than its catalogs show. The position comes before the snapshots of
  // what is read next.
  const Result looked = Query(
      "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() "
      "ELSE pg_catalog.pg_current_wal_flush_lsn() END, "
      "(extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint");
  if (!looked.ok()) {
    return QueryFailure("reading the server's position", looked.error(), place());
  }
  facts().looked_lsn = base::Lsn::Parse(looked.Text(0, 0)).value_or(base::Lsn());
  facts().looked_at =
      base::WallTime(std::chrono::microseconds(Number<std::int64_t>(looked.Text(0, 1))));
  return SameTimeline();
}

// A server that is still on its timeline had not left it when the position was read, nor when it said
// whether it is a standby.
std::optional<StreamEnd> PreflightRun::SameTimeline() {
  const Result identity = Query("IDENTIFY_SYSTEM");
  if (!identity.ok()) {
    return QueryFailure("IDENTIFY_SYSTEM", identity.error(), place());
  }
  const auto timeline = Number<std::uint32_t>(identity.Text(0, 1));
  if (timeline != facts().timeline) {
    return LostEnd(absl::StrFormat("%s went from timeline %u to %u while it was looked at",
                                   place().ToString(), facts().timeline, timeline));
  }
  return std::nullopt;
}

std::optional<StreamEnd> PreflightRun::Publication() {
  if (std::optional<StreamEnd> problem = Looked()) {
    return problem;
  }
  const Result publication = Query(absl::StrFormat(
      "SELECT oid, pubinsert, puballtables, pubupdate OR pubdelete OR pubtruncate, xmin "
      "FROM pg_catalog.pg_publication WHERE pubname = %s",
      QuoteLiteral(options_.publication)));
  if (!publication.ok()) {
    return QueryFailure("reading pg_publication", publication.error(), place());
  }
  const std::string name = QuoteIdentifier(options_.publication);
  if (publication.rows() == 0) {
    return OperatorEnd(
        HaltReason::kPublicationMissing,
        absl::StrFormat("%s does not exist: on a new set-up run `walpost init`, which creates it "
                        "before the slot; a slot older than its publication cannot be streamed",
                        PublicationText()));
  }
  facts().publication_oid = Number<std::uint32_t>(publication.Text(0, 0));
  facts().publication_xmin = Number<std::uint32_t>(publication.Text(0, 4));
  if (!publication.True(0, 1)) {
    return OperatorEnd(HaltReason::kPublicationMissing,
                       absl::StrFormat("%s does not publish inserts: run ALTER PUBLICATION %s SET "
                                       "(publish = 'insert')",
                                       PublicationText(), name));
  }
  if (publication.True(0, 2)) {
    report_.warnings.push_back(
        absl::StrFormat("%s is FOR ALL TABLES: every table of the database is sent to walpost, "
                        "which drops all but the outboxes",
                        PublicationText()));
  }
  if (publication.True(0, 3)) {
    report_.warnings.push_back(absl::StrFormat(
        "%s publishes more than inserts, which walpost ignores: ALTER PUBLICATION %s SET "
        "(publish = 'insert') saves the traffic",
        PublicationText(), name));
  }
  return std::nullopt;
}

std::optional<StreamEnd> PreflightRun::Tables() {
  if (facts().publication_oid == 0) {
    return std::nullopt;
  }
  for (const SourceTable& wanted : options_.tables) {
    if (std::optional<StreamEnd> problem = Table(wanted)) {
      return problem;
    }
  }
  return TextTypes();
}

// One table: is it published, by which rows of the catalog, and whole?
std::optional<StreamEnd> PreflightRun::Table(const SourceTable& wanted) {
  const bool parts = version() >= kPartsPublishedSince;
  // What publishes the table: itself, or an ancestor whose partition it is. One that was detached and
  // attached again has other rows in pg_inherits; such a chain and the membership make one number.
  // A membership with a row filter publishes nothing for certain, whatever is beside it now.
  std::string memberships = absl::StrFormat(
      "WITH RECURSIVE up AS (SELECT c.oid AS relid, ''::text AS chain UNION ALL SELECT "
      "i.inhparent, up.chain || i.inhparent || '.' || i.xmin || ' ' FROM up JOIN "
      "pg_catalog.pg_inherits i ON i.inhrelid = up.relid JOIN pg_catalog.pg_class p ON p.oid = "
      "up.relid AND p.relispartition), found AS (SELECT m.oid, up.chain FROM up JOIN "
      "pg_catalog.pg_publication_rel m ON m.prpubid = %u AND m.prrelid = up.relid%s",
      facts().publication_oid, parts ? " AND m.prqual IS NULL" : "");
  if (parts) {
    absl::StrAppendFormat(
        &memberships,
        " UNION ALL SELECT m.oid, up.chain FROM up JOIN pg_catalog.pg_class r ON r.oid = up.relid "
        "JOIN pg_catalog.pg_publication_namespace m ON m.pnpubid = %u AND m.pnnspid = "
        "r.relnamespace",
        facts().publication_oid);
  }
  memberships +=
      ") SELECT CASE chain WHEN '' THEN oid::bigint ELSE pg_catalog.hashtext(oid || ':' || "
      "chain)::bigint & 4294967295 END AS oid FROM found";
  // From catalogs alone, which one snapshot shows: pg_publication_tables has what holds a moment
  // later, so a column that is dropped just now would look left out.
  const std::string left_out = absl::StrFormat(
      "SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) "
      "FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_publication_rel m "
      "ON m.prpubid = %u AND m.prrelid = c.oid AND a.attnum <> ALL (m.prattrs) "
      "WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' "
      "AND a.attname::text = ANY (%s)",
      facts().publication_oid, ArrayLiteral(wanted.columns));
  const Result table = Query(absl::StrFormat(
      "SELECT c.oid, c.relkind, (SELECT pg_catalog.string_agg(m.oid::text, ' ' ORDER BY m.oid) "
      "FROM (%s) m), %s, %s FROM pg_catalog.pg_publication_tables t "
      "JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname "
      "JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename "
      "WHERE t.pubname = %s AND t.schemaname = %s AND t.tablename = %s",
      memberships, parts ? "t.rowfilter" : "NULL", parts ? "(" + left_out + ")" : "NULL",
      QuoteLiteral(options_.publication), QuoteLiteral(wanted.schema), QuoteLiteral(wanted.table)));
  if (!table.ok()) {
    return QueryFailure("reading pg_publication_tables", table.error(), place());
  }
  if (table.rows() == 0) {
    return WhyNotPublished(wanted);
  }
  const std::string name = QualifiedName(wanted);
  const std::string publication = QuoteIdentifier(options_.publication);
  const std::string whole = absl::StrFormat(
      "publish it whole: ALTER PUBLICATION %s DROP TABLE %s; ALTER PUBLICATION %s ADD TABLE %s",
      publication, name, publication, name);
  base::PublishedTable published{Number<std::uint32_t>(table.Text(0, 0)), wanted.schema,
                                 wanted.table, Numbers(table.Text(0, 2))};
  if (!table.IsNull(0, 3)) {
    return OperatorEnd(
        HaltReason::kPublicationMissing,
        absl::StrFormat("table %s.%s has a row filter, WHERE %s (%s): the server leaves out rows, "
                        "and walpost cannot tell which; %s",
                        wanted.schema, wanted.table, OneLine(table.Text(0, 3)), PublicationText(),
                        whole));
  }
  if (!table.IsNull(0, 4)) {
    return OperatorEnd(
        HaltReason::kPublicationMissing,
        absl::StrFormat("table %s.%s has a column list without %s, which is mapped (%s): %s",
                        wanted.schema, wanted.table, table.Text(0, 4), PublicationText(), whole));
  }
  if (table.Text(0, 1) == "p") {
    if (std::optional<StreamEnd> problem = Partitions(wanted, &published)) {
      return problem;
    }
  }
  facts().tables.push_back(std::move(published));
  return std::nullopt;
}

// Each leaf must be a table whose rows are in the log.
std::optional<StreamEnd> PreflightRun::Partitions(const SourceTable& table,
                                                  base::PublishedTable* published) {
  // pg_partition_tree would wait for locks.
  const Result partitions = Query(absl::StrFormat(
      "WITH RECURSIVE tree AS (SELECT inhrelid AS oid, %1$s AS leaves FROM "
      "pg_catalog.pg_inherits i WHERE inhparent = %2$u UNION ALL SELECT i.inhrelid, %1$s FROM "
      "pg_catalog.pg_inherits i JOIN tree ON i.inhparent = tree.oid) "
      "SELECT c.oid, c.relkind NOT IN ('p', 'r'), c.relkind <> 'p' AND c.relpersistence <> 'p', "
      "pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname), leaves "
      "FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid "
      "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY c.oid",
      version() >= kDetachedConcurrentlySince ? "i.inhdetachpending" : "false", published->oid));
  if (!partitions.ok()) {
    return QueryFailure("reading the partitions", partitions.error(), place());
  }
  for (int row = 0; row < partitions.rows(); ++row) {
    const std::string name(partitions.Text(row, 3));
    const std::string which = absl::StrFormat("partition %s of table %s.%s (%s)", name,
                                              table.schema, table.table, PublicationText());
    if (partitions.True(row, 4)) {
      return OperatorEnd(
          HaltReason::kPublicationMissing,
          which +
              " is being detached CONCURRENTLY, and the server leaves out rows of transactions "
              "that were open when that began: wait until it is detached, and compare its rows "
              "with the topic");
    }
    if (partitions.True(row, 1)) {
      return OperatorEnd(
          HaltReason::kPublicationMissing,
          which + " is a foreign table, so its rows are not in this server's log: detach it");
    }
    if (partitions.True(row, 2)) {
      return OperatorEnd(
          HaltReason::kPublicationMissing,
          absl::StrFormat(
              "%s writes no log (UNLOGGED): run ALTER TABLE %s SET LOGGED, and when "
              "walpost streams again `walpost replay --missing --in-place`: rows inserted "
              "meanwhile are not in the stream",
              which, name));
    }
    published->partitions.push_back(Number<std::uint32_t>(partitions.Text(row, 0)));
  }
  return std::nullopt;
}

// The stream names a type and not what its values look like; only for text both forms are the same.
std::optional<StreamEnd> PreflightRun::TextTypes() {
  const Result types = Query(
      "SELECT t.oid FROM pg_catalog.pg_type t JOIN pg_catalog.pg_proc p ON p.oid = t.typsend WHERE "
      "t.oid >= 16384 AND p.prosrc IN ('enum_send', 'textsend') ORDER BY t.oid");
  if (!types.ok()) {
    return QueryFailure("reading pg_type", types.error(), place());
  }
  for (int row = 0; row < types.rows(); ++row) {
    facts().text_types.push_back(Number<std::uint32_t>(types.Text(row, 0)));
  }
  return std::nullopt;
}

std::optional<StreamEnd> PreflightRun::WhyNotPublished(const SourceTable& table) {
  const Result found = Query(absl::StrFormat(
      "SELECT c.relkind, c.relpersistence, quote_ident(rn.nspname) || '.' || "
      "quote_ident(r.relname), "
      "EXISTS (SELECT 1 FROM pg_catalog.pg_partition_tree(pg_catalog.pg_partition_root(c.oid)) p "
      "  JOIN pg_catalog.pg_class pc ON pc.oid = p.relid "
      "  JOIN pg_catalog.pg_namespace pn ON pn.oid = pc.relnamespace "
      "  WHERE pc.oid IN (SELECT prrelid FROM pg_catalog.pg_publication_rel WHERE prpubid = %d) "
      "  OR (pn.nspname, pc.relname) IN (SELECT schemaname, tablename "
      "    FROM pg_catalog.pg_publication_tables WHERE pubname = %s)) "
      "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
      "LEFT JOIN pg_catalog.pg_class r ON r.oid = pg_catalog.pg_partition_root(c.oid) "
      "LEFT JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace "
      "WHERE n.nspname = %s AND c.relname = %s",
      facts().publication_oid, QuoteLiteral(options_.publication), QuoteLiteral(table.schema),
      QuoteLiteral(table.table)));
  if (!found.ok()) {
    return QueryFailure("looking for the outbox table", found.error(), place());
  }
  const std::string name = QualifiedName(table);
  const std::string publication = QuoteIdentifier(options_.publication);
  std::string advice = absl::StrFormat("run ALTER PUBLICATION %s ADD TABLE %s", publication, name);
  std::string cause = "is not in it";
  if (found.rows() == 0) {
    cause = "does not exist";
    advice = "create it (`walpost init` does for the default table) or correct outboxes[].table";
  } else if (found.Text(0, 1) == "u") {
    cause = "is UNLOGGED, so its rows are in no log that could be read";
    advice = absl::StrFormat("run ALTER TABLE %s SET LOGGED", name);
  } else if (found.Text(0, 0) == "p" && found.True(0, 3)) {
    cause = "is partitioned, and its partitions are published one by one under their own names";
    advice = absl::StrFormat("run ALTER PUBLICATION %s SET (publish_via_partition_root = true)",
                             publication);
  } else if (!found.IsNull(0, 2) && found.Text(0, 2) != name && found.Text(0, 0) != "p" &&
             found.True(0, 3)) {
    cause = absl::StrFormat("is a partition of %s and published under that name", found.Text(0, 2));
    advice = "name that table in outboxes[].table";
  }
  return OperatorEnd(HaltReason::kPublicationMissing,
                     absl::StrFormat("table %s.%s %s (%s): %s; rows inserted meanwhile are not in "
                                     "the stream",
                                     table.schema, table.table, cause, PublicationText(), advice));
}

}  // namespace walpost::postgres
