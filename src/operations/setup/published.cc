#include "operations/setup/published.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/trusted_owner.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {
namespace {

using postgres::QuoteIdentifier;
using postgres::Row;
using postgres::SourceTable;
using postgres::SqlConnection;

// Of row filters, column lists and whole schemas.
constexpr int kPartsPublishedSince = 150000;

std::string QuotedName(const SourceTable& table) {
  return absl::StrCat(QuoteIdentifier(table.schema), ".", QuoteIdentifier(table.table));
}

// As preflight demands it of a partition or a partitioned table.
absl::Status RequireOwnName(SqlConnection* connection, const std::string& publication,
                            const SourceTable& table) {
  const std::string name = QuotedName(table);
  ASSIGN_OR_RETURN(
      const std::vector<Row> own,
      connection->Query(
          "SELECT 1 FROM pg_publication p, pg_class c WHERE p.pubname = $1 AND c.oid = "
          "to_regclass($2) AND (p.puballtables OR EXISTS (SELECT FROM pg_publication_rel m WHERE "
          "m.prpubid = p.oid AND m.prrelid = c.oid) OR c.relkind <> 'p' AND NOT c.relispartition "
          "AND EXISTS (SELECT FROM pg_publication_namespace m WHERE m.pnpubid = p.oid AND "
          "m.pnnspid = "
          "c.relnamespace))",
          {publication, name}));
  if (own.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "publication '%s' holds %s.%s only by its schema or as a partition of another table, so "
        "the "
        "server could leave out rows unseen: ALTER PUBLICATION %s ADD TABLE %s",
        publication, table.schema, table.table, QuoteIdentifier(publication), name));
  }
  return absl::OkStatus();
}

absl::Status RequireTable(SqlConnection* connection, const std::string& publication,
                          const SourceTable& table, bool via_root) {
  const std::string name = QuotedName(table);
  ASSIGN_OR_RETURN(
      const std::vector<Row> partitioned,
      connection->Query("SELECT 1 FROM pg_class WHERE oid = to_regclass($1) AND relkind = 'p'",
                        {name}));
  if (!partitioned.empty() && !via_root) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s.%s is partitioned, and publication '%s' publishes partitions under their own "
        "names: ALTER PUBLICATION %s SET (publish_via_partition_root = true)",
        table.schema, table.table, publication, QuoteIdentifier(publication)));
  }
  ASSIGN_OR_RETURN(
      const std::vector<Row> member,
      connection->Query("SELECT 1 FROM pg_publication_tables WHERE pubname = $1 AND schemaname = "
                        "$2 AND tablename = $3",
                        {publication, table.schema, table.table}));
  if (member.empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "publication '%s' does not hold %s.%s: ALTER PUBLICATION %s ADD TABLE %s", publication,
        table.schema, table.table, QuoteIdentifier(publication), name));
  }
  return connection->server_version() < kPartsPublishedSince
             ? absl::OkStatus()
             : RequireOwnName(connection, publication, table);
}

// One way by which it is published, of which each link is older than what the slot decodes with. Each edit
// of a catalog's row gives it a new xmin.
std::string OlderSql(int version) {
  const bool parts = version >= kPartsPublishedSince;
  const std::string schemas =
      !parts
          ? ""
          : "UNION ALL SELECT 1 FROM pg_publication_namespace m JOIN pg_class c "
            "ON c.relnamespace = m.pnnspid AND c.relkind <> 'p' AND NOT c.relispartition "
            "WHERE m.pnpubid = p.oid AND c.oid = up.relid AND age(m.xmin) > age(s.catalog_xmin) ";
  const std::string parents =
      parts ? ""
            : "UNION ALL SELECT i.inhparent FROM up JOIN pg_inherits i ON i.inhrelid = up.relid "
              "CROSS JOIN s WHERE age(i.xmin) > age(s.catalog_xmin)";
  return absl::StrFormat(
      "WITH RECURSIVE s AS (SELECT catalog_xmin FROM pg_replication_slots WHERE slot_name = $1), "
      "up AS (SELECT to_regclass($3)::oid AS relid %s) "
      "SELECT 1 FROM s, pg_publication p WHERE p.pubname = $2 AND (s.catalog_xmin IS NULL OR "
      "age(p.xmin) > age(s.catalog_xmin) AND (p.puballtables OR EXISTS (SELECT FROM up WHERE "
      "EXISTS (SELECT 1 FROM pg_publication_rel m WHERE m.prpubid = p.oid AND m.prrelid = up.relid "
      "AND age(m.xmin) > age(s.catalog_xmin) %s))))",
      parents, schemas);
}

}  // namespace

absl::Status RequirePublished(SqlConnection* connection, const postgres::ConnectOptions& source) {
  const std::string& publication = source.publication;
  ASSIGN_OR_RETURN(
      const std::vector<Row> found,
      connection->Query("SELECT pubinsert, pubviaroot FROM pg_publication WHERE pubname = $1",
                        {publication}));
  if (found.empty()) {
    return absl::NotFoundError(absl::StrFormat("publication '%s' does not exist", publication));
  }
  if (found[0].at(0) != "t") {
    return absl::FailedPreconditionError(absl::StrFormat(
        "publication '%s' does not publish inserts: ALTER PUBLICATION %s SET (publish = 'insert')",
        publication, QuoteIdentifier(publication)));
  }
  for (const SourceTable& table : source.tables) {
    RETURN_IF_ERROR(RequireTable(connection, publication, table, found[0].at(1) == "t"));
  }
  return absl::OkStatus();
}

absl::Status RequireTrustedPublication(SqlConnection* connection,
                                       const postgres::ConnectOptions& source) {
  std::vector<std::string> tables;
  for (const SourceTable& table : source.tables) {
    tables.push_back(QuotedName(table));
  }
  ASSIGN_OR_RETURN(
      const auto foreign,
      FindForeign(connection,
                  absl::StrFormat(
                      "SELECT quote_ident(p.pubname), p.pubowner FROM pg_publication p WHERE "
                      "p.pubname = $1 AND EXISTS (SELECT FROM unnest(%s::text[]) AS t (name) JOIN "
                      "pg_class c ON c.oid = to_regclass(t.name) WHERE NOT "
                      "pg_has_role(p.pubowner, c.relowner, 'USAGE'))",
                      postgres::ArrayLiteral(tables)),
                  {source.publication}));
  return foreign
             ? absl::FailedPreconditionError(absl::StrFormat(
                   "publication '%s' belongs to role %s, which may take outboxes out of it, so "
                   "that events are in no stream: ALTER PUBLICATION %s OWNER TO a role that you "
                   "trust (docs/security.md)",
                   source.publication, foreign->owner, foreign->what))
             : absl::OkStatus();
}

absl::Status RequireOlderThanSlot(SqlConnection* connection,
                                  const postgres::ConnectOptions& source) {
  const std::string sql = OlderSql(connection->server_version());
  for (const SourceTable& table : source.tables) {
    ASSIGN_OR_RETURN(const std::vector<Row> older,
                     connection->Query(sql, {source.slot, source.publication, QuotedName(table)}));
    if (older.empty()) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "slot '%s' may be older than what publishes %s.%s: where publication '%s' was edited, or "
          "the table added, since, rows of the time between are in no stream. `walpost slot drop "
          "--yes`, then run this again: it makes a slot behind it, and `walpost init --backfill` "
          "also sends the rows that are there. A new slot beside one that lags looks the same: if "
          "you know that nothing was edited since, add --take-slot",
          source.slot, table.schema, table.table, source.publication));
    }
  }
  return absl::OkStatus();
}

}  // namespace walpost::operations
