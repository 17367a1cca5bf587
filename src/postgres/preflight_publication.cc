// The publication and the tables it must hold.
#include <charconv>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "postgres/preflight_steps.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

using base::HaltReason;

std::uint32_t ParseOid(std::string_view text) {
  std::uint32_t oid = 0;
  std::from_chars(text.data(), text.data() + text.size(), oid);
  return oid;
}

std::string QualifiedName(const SourceTable& table) {
  return QuoteIdentifier(table.schema) + "." + QuoteIdentifier(table.table);
}

}  // namespace

std::string PreflightRun::PublicationText() const {
  return absl::StrFormat("publication \"%s\" on %s", options_.publication, place().ToString());
}

std::optional<StreamEnd> PreflightRun::Publication() {
  const Result publication = Query(
      absl::StrFormat("SELECT oid, pubinsert, puballtables, pubupdate OR pubdelete OR pubtruncate "
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
  facts().publication_oid = ParseOid(publication.Text(0, 0));
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
  const Result tables = Query(absl::StrFormat(
      "SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_publication_tables t "
      "JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname "
      "JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename "
      "WHERE t.pubname = %s ORDER BY c.oid",
      QuoteLiteral(options_.publication)));
  if (!tables.ok()) {
    return QueryFailure("reading pg_publication_tables", tables.error(), place());
  }
  for (int row = 0; row < tables.rows(); ++row) {
    facts().tables.push_back(base::PublishedTable{ParseOid(tables.Text(row, 0)),
                                                  std::string(tables.Text(row, 1)),
                                                  std::string(tables.Text(row, 2))});
  }
  for (const SourceTable& wanted : options_.tables) {
    bool found = false;
    for (const base::PublishedTable& table : facts().tables) {
      found = found || (table.schema == wanted.schema && table.name == wanted.table);
    }
    if (!found) {
      return WhyNotPublished(wanted);
    }
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
