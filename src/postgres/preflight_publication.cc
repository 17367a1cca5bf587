// The publication and the tables it must hold.
#include <charconv>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "postgres/preflight.h"
#include "postgres/server_watch.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

using base::HaltReason;

// Of row filters, column lists and whole schemas.
constexpr int kPartsPublishedSince = 150000;
constexpr int kDetachedConcurrentlySince = 140000;

// What ReadTable gives.
enum Column {
  kOid,
  kKind,
  kPersistence,
  kPublishedAs,  // the table whose name its rows come under; NULL = not published
  kPublishedAsName,
  kPartPublished,  // it, or something below it, has a row in pg_publication_rel
  kMemberships,
  kRowFilter,
  kLeftOut,
  kGeneratedLeftOut,  // one of these is generated
  kChildren,          // tables that inherit from it and are no partitions
  kIsPartition,
};

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

// Of the columns `mapped` of table `c`, those that its column list leaves out.
std::string LeftOutSql(int version, std::uint32_t publication,
                       const std::vector<std::string>& mapped) {
  return absl::StrFormat(
      "SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) AS "
      "names, pg_catalog.bool_or(a.attgenerated <> '') AS generated FROM pg_catalog.pg_attribute a "
      "JOIN pg_catalog.pg_publication_rel m ON m.prpubid = %u AND m.prrelid = a.attrelid AND "
      "m.prattrs IS NOT NULL WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND "
      "%s AND NOT %s AND a.attname::text = ANY (%s)",
      publication, ListableColumnSql(version), SentColumnSql(version, absl::StrCat(publication)),
      ArrayLiteral(mapped));
}

std::string QualifiedName(const SourceTable& table) {
  return QuoteIdentifier(table.schema) + "." + QuoteIdentifier(table.table);
}

}  // namespace

std::string PreflightRun::PublicationText() const {
  return absl::StrFormat("publication \"%s\" on %s", options_.publication, endpoint().ToString());
}

std::optional<StreamEnd> PreflightRun::Looked() {
  // A standby has received more than its catalogs show. The position comes before the snapshots of
  // what is read next.
  const Result looked =
      Query(absl::StrCat("SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN "
                         "pg_catalog.pg_last_wal_replay_lsn() "
                         "ELSE pg_catalog.pg_current_wal_flush_lsn() END, ",
                         kServerClock));
  if (!looked.ok()) {
    return QueryFailure("reading the server's position", looked.error(), endpoint());
  }
  facts().looked_lsn = base::Lsn::Parse(looked.Text(0, 0)).value_or(base::Lsn());
  facts().looked_at =
      base::WallTime(std::chrono::microseconds(Number<std::int64_t>(looked.Text(0, 1))));
  return SameTimeline();
}

// A server that is still on its timeline had not left it when the position was read, nor when it
// said whether it is a standby.
std::optional<StreamEnd> PreflightRun::SameTimeline() {
  const Result identity = Query("IDENTIFY_SYSTEM");
  if (!identity.ok()) {
    return QueryFailure("IDENTIFY_SYSTEM", identity.error(), endpoint());
  }
  const auto timeline = Number<std::uint32_t>(identity.Text(0, 1));
  if (timeline != facts().timeline) {
    return LostEnd(absl::StrFormat("%s went from timeline %u to %u while it was looked at",
                                   endpoint().ToString(), facts().timeline, timeline));
  }
  return std::nullopt;
}

std::optional<StreamEnd> PreflightRun::Publication() {
  if (std::optional<StreamEnd> problem = Looked()) {
    return problem;
  }
  const Result publication = Query(absl::StrFormat(
      "SELECT oid, pubinsert, puballtables, pubupdate OR pubdelete OR pubtruncate, xmin, "
      "pubviaroot FROM pg_catalog.pg_publication WHERE pubname = %s",
      QuoteLiteral(options_.publication)));
  if (!publication.ok()) {
    return QueryFailure("reading pg_publication", publication.error(), endpoint());
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
  all_tables_ = publication.True(0, 2);
  via_root_ = publication.True(0, 5);
  if (!publication.True(0, 1)) {
    return OperatorEnd(HaltReason::kPublicationMissing,
                       absl::StrFormat("%s does not publish inserts: run ALTER PUBLICATION %s SET "
                                       "(publish = 'insert')",
                                       PublicationText(), name));
  }
  if (all_tables_) {
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

// Where the server looks for what publishes a table: in its own row and in those of the tables
// whose partition it is. From 15 on only a row with its own name counts for a partition and for a
// partitioned table. The server takes row filter and column list of a partition from there, and a
// parent's row may stay while that one comes and goes. And when a partitioned table goes from one
// schema to another, a server that has decoded rows of its partitions publishes them as before
// until the connection ends. From the catalogs alone, which one snapshot shows:
// pg_publication_tables has what holds a moment later, and it waits for locks on any table that is
// published.
Result PreflightRun::ReadTable(const SourceTable& wanted) {
  const bool parts = version() >= kPartsPublishedSince;
  // A partition that was detached and attached again has other rows in pg_inherits; such a chain
  // and the membership make one number.
  std::string sql = absl::StrFormat(
      "WITH RECURSIVE up AS (SELECT c.oid AS relid, 0 AS depth, ''::text AS chain "
      "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
      "WHERE n.nspname = %s AND c.relname = %s UNION ALL SELECT i.inhparent, up.depth + 1, "
      "up.chain || i.inhparent || '.' || i.xmin || ' ' FROM up JOIN pg_catalog.pg_inherits i "
      "ON i.inhrelid = up.relid JOIN pg_catalog.pg_class p ON p.oid = up.relid AND "
      "p.relispartition), "
      "down AS (SELECT relid FROM up WHERE depth = 0 UNION ALL SELECT i.inhrelid FROM down JOIN "
      "pg_catalog.pg_inherits i ON i.inhparent = down.relid), "
      "listed AS (SELECT oid, prrelid AS relid, %s AS whole FROM pg_catalog.pg_publication_rel "
      "WHERE prpubid = %u), "
      "schemas AS (SELECT m.oid, r.oid AS relid FROM %s JOIN up ON up.relid = r.oid), "
      "members AS (SELECT *, true AS by_name FROM listed UNION ALL SELECT oid, relid, true, false "
      "FROM schemas), ",
      QuoteLiteral(wanted.schema), QuoteLiteral(wanted.table), parts ? "prqual IS NULL" : "true",
      facts().publication_oid,
      parts ? absl::StrFormat("pg_catalog.pg_class r JOIN pg_catalog.pg_publication_namespace m ON "
                              "m.pnpubid = %u AND m.pnnspid = r.relnamespace",
                              facts().publication_oid)
            : "(SELECT NULL::oid AS oid) m JOIN pg_catalog.pg_class r ON false");
  // The topmost that is published gives its name to the rows.
  absl::StrAppendFormat(
      &sql,
      "top AS (SELECT relid FROM up WHERE %s OR relid IN (SELECT relid FROM members) "
      "ORDER BY depth DESC LIMIT 1), "
      "found AS (SELECT CASE up.chain WHEN '' THEN members.oid::bigint ELSE "
      "pg_catalog.hashtext(members.oid || ':' || up.chain)::bigint & 4294967295 END AS oid "
      "FROM up JOIN members USING (relid) WHERE members.whole%s) ",
      all_tables_ ? "true" : "false",
      parts
          ? " AND up.depth = 0 AND (by_name OR (SELECT relkind <> 'p' AND NOT relispartition FROM "
            "pg_catalog.pg_class WHERE oid = up.relid))"
          : "");
  absl::StrAppendFormat(
      &sql,
      "SELECT c.oid, c.relkind, c.relpersistence, (SELECT relid FROM top), "
      "(SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(r.relname) "
      "FROM top JOIN pg_catalog.pg_class r ON r.oid = top.relid JOIN pg_catalog.pg_namespace n ON "
      "n.oid = r.relnamespace), "
      "EXISTS (SELECT FROM down JOIN listed USING (relid)), "
      // A membership with a row filter publishes nothing for certain, whatever is beside it now.
      "(SELECT pg_catalog.string_agg(oid::text, ' ' ORDER BY oid) FROM found), "
      "%s, left_out.names, left_out.generated, "
      "(SELECT pg_catalog.string_agg(pg_catalog.quote_ident(n.nspname) || '.' || "
      "pg_catalog.quote_ident(k.relname), ', ' ORDER BY k.oid) FROM pg_catalog.pg_inherits i JOIN "
      "pg_catalog.pg_class k ON k.oid = i.inhrelid JOIN pg_catalog.pg_namespace n ON n.oid = "
      "k.relnamespace WHERE i.inhparent = c.oid AND NOT k.relispartition), c.relispartition "
      "FROM up JOIN pg_catalog.pg_class c ON c.oid = up.relid CROSS JOIN LATERAL (%s) left_out "
      "WHERE up.depth = 0",
      parts
          ? absl::StrFormat("(SELECT pg_catalog.pg_get_expr(prqual, prrelid) FROM "
                            "pg_catalog.pg_publication_rel WHERE prpubid = %u AND prrelid = c.oid "
                            "AND prrelid NOT IN (SELECT relid FROM schemas))",
                            facts().publication_oid)
          : "NULL",
      parts ? LeftOutSql(version(), facts().publication_oid, wanted.columns)
            : "SELECT NULL AS names, NULL AS generated");
  return Query(sql);
}

// One table: is it published under its own name, by which rows of the catalog, and whole?
std::optional<StreamEnd> PreflightRun::Table(const SourceTable& wanted) {
  const Result table = ReadTable(wanted);
  if (!table.ok()) {
    return QueryFailure("reading what publishes the outbox table", table.error(), endpoint());
  }
  if (std::optional<StreamEnd> problem = NotPublished(wanted, table)) {
    return problem;
  }
  const std::string name = QualifiedName(wanted);
  const std::string publication = QuoteIdentifier(options_.publication);
  const std::string whole = absl::StrFormat(
      "publish it whole: ALTER PUBLICATION %s DROP TABLE %s; ALTER PUBLICATION %s ADD TABLE %s",
      publication, name, publication, name);
  if (!table.IsNull(0, kRowFilter)) {
    return OperatorEnd(
        HaltReason::kPublicationMissing,
        absl::StrFormat("table %s.%s has a row filter, WHERE %s (%s): the server leaves out rows, "
                        "and walpost cannot know which; %s",
                        wanted.schema, wanted.table, OneLine(table.Text(0, kRowFilter)),
                        PublicationText(), whole));
  }
  if (!table.IsNull(0, kLeftOut)) {
    return OperatorEnd(
        HaltReason::kPublicationMissing,
        absl::StrFormat(
            "table %s.%s has a column list without %s, which is mapped (%s): %s%s", wanted.schema,
            wanted.table, table.Text(0, kLeftOut), PublicationText(), whole,
            table.True(0, kGeneratedLeftOut)
                ? absl::StrFormat("; and for generated columns: ALTER PUBLICATION %s SET "
                                  "(publish_generated_columns = stored)",
                                  publication)
                : ""));
  }
  if (table.IsNull(0, kMemberships) && !all_tables_) {
    return OperatorEnd(
        HaltReason::kPublicationMissing,
        absl::StrFormat("table %s.%s is %s, and %s publishes it by its schema or by another table "
                        "only, so the server may have left out rows of it, and nothing would show "
                        "it: publish it by its own name, too: ALTER PUBLICATION %s ADD TABLE %s",
                        wanted.schema, wanted.table,
                        table.True(0, kIsPartition) ? "a partition" : "partitioned",
                        PublicationText(), publication, name));
  }
  if (!table.IsNull(0, kChildren)) {
    return OperatorEnd(
        HaltReason::kPublicationMissing,
        absl::StrFormat("tables inherit from %s.%s (INHERITS): %s (%s). Their rows come under "
                        "their own names, so walpost would pass them over: partition the table "
                        "(PARTITION BY), or run ALTER TABLE ... NO INHERIT %s for each, and list "
                        "those that hold events under `outboxes`; then `walpost replay --missing "
                        "--in-place` sends what was passed over",
                        wanted.schema, wanted.table, table.Text(0, kChildren), PublicationText(),
                        name));
  }
  base::PublishedTable published{Number<std::uint32_t>(table.Text(0, kOid)), wanted.schema,
                                 wanted.table, Numbers(table.Text(0, kMemberships))};
  if (table.Text(0, kKind) == "p") {
    if (std::optional<StreamEnd> problem = Partitions(wanted, &published)) {
      return problem;
    }
  }
  if (table.True(0, kIsPartition)) {
    if (std::optional<StreamEnd> problem = Relatives(&published)) {
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
    return QueryFailure("reading the partitions", partitions.error(), endpoint());
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

std::optional<StreamEnd> PreflightRun::Relatives(base::PublishedTable* published) {
  const Result relatives = Query(absl::StrFormat(
      "WITH RECURSIVE up AS (SELECT %u::oid AS oid UNION SELECT i.inhparent FROM up JOIN "
      "pg_catalog.pg_inherits i ON i.inhrelid = up.oid), "
      "own AS (SELECT %u::oid AS oid UNION SELECT i.inhrelid FROM own JOIN pg_catalog.pg_inherits "
      "i "
      "ON i.inhparent = own.oid), "
      "tree AS (SELECT oid FROM up UNION SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i "
      "ON i.inhparent = tree.oid) "
      "SELECT oid FROM tree EXCEPT SELECT oid FROM own",
      published->oid, published->oid));
  if (!relatives.ok()) {
    return QueryFailure("reading the tables beside a partition", relatives.error(), endpoint());
  }
  for (int row = 0; row < relatives.rows(); ++row) {
    published->relatives.push_back(Number<std::uint32_t>(relatives.Text(row, 0)));
  }
  return std::nullopt;
}

// The stream names a type and not what its values look like; only for text both forms are the same.
std::optional<StreamEnd> PreflightRun::TextTypes() {
  const Result types = Query(
      "SELECT t.oid FROM pg_catalog.pg_type t JOIN pg_catalog.pg_proc p ON p.oid = t.typsend WHERE "
      "t.oid >= 16384 AND p.prosrc IN ('enum_send', 'textsend') ORDER BY t.oid");
  if (!types.ok()) {
    return QueryFailure("reading pg_type", types.error(), endpoint());
  }
  for (int row = 0; row < types.rows(); ++row) {
    facts().text_types.push_back(Number<std::uint32_t>(types.Text(row, 0)));
  }
  return std::nullopt;
}

// As pgoutput decides it: with publish_via_partition_root a row comes under the topmost published
// table that its own is a partition of, else under its leaf's name.
std::optional<StreamEnd> PreflightRun::NotPublished(const SourceTable& table, const Result& found) {
  const std::string name = QualifiedName(table);
  const std::string publication = QuoteIdentifier(options_.publication);
  std::string advice = absl::StrFormat("run ALTER PUBLICATION %s ADD TABLE %s", publication, name);
  std::string cause = "is not in it";
  if (found.rows() == 0) {
    cause = "does not exist";
    advice = "create it (`walpost init` does for the default table) or correct outboxes[].table";
  } else {
    const bool partitioned = found.Text(0, kKind) == "p";
    const bool published = !found.IsNull(0, kPublishedAs);
    if (found.Text(0, kPersistence) == "u") {
      cause = "is UNLOGGED, so its rows are in no log that could be read";
      advice = absl::StrFormat("run ALTER TABLE %s SET LOGGED", name);
    } else if (published && via_root_ && found.Text(0, kPublishedAs) != found.Text(0, kOid)) {
      const auto root = found.Text(0, kPublishedAsName);
      cause = absl::StrFormat("is a partition of %s and published under that name", root);
      advice = "name that table in outboxes[].table";
    } else if (partitioned && !via_root_ && (published || found.True(0, kPartPublished))) {
      cause = "is partitioned, and its partitions are published one by one under their own names";
      advice = absl::StrFormat("run ALTER PUBLICATION %s SET (publish_via_partition_root = true)",
                               publication);
    } else if (published) {
      return std::nullopt;
    }
  }
  return OperatorEnd(HaltReason::kPublicationMissing,
                     absl::StrFormat("table %s.%s %s (%s): %s; rows inserted meanwhile are not in "
                                     "the stream",
                                     table.schema, table.table, cause, PublicationText(), advice));
}

}  // namespace walpost::postgres
