#include "operations/setup/pipeline_record.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/trusted_owner.h"
#include "postgres/dead_letter_cells.h"
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

// One way by which it is published, of which each link is older than what the slot decodes with.
// Each edit of a catalog's row gives it a new xmin.
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

namespace {

// Of schema walpost. What somebody made a view of this name of would run with our rights; it is
// none.
absl::StatusOr<bool> HasTable(postgres::SqlConnection* connection, const std::string& name) {
  ASSIGN_OR_RETURN(const std::vector<Row> found,
                   connection->Query("SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = "
                                     "c.relnamespace WHERE n.nspname = 'walpost' AND c.relname = "
                                     "$1 AND c.relkind = 'r'",
                                     {name}));
  return !found.empty();
}

}  // namespace

absl::StatusOr<std::optional<PipelineRecord>> FindRecord(postgres::SqlConnection* connection,
                                                         const std::string& name,
                                                         const std::string& slot) {
  ASSIGN_OR_RETURN(const bool exists, HasTable(connection, "pipeline"));
  if (!exists) {
    return std::nullopt;
  }
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection->Query(
          "SELECT name, slot, publication, system_identifier::text, consistent_point::text, "
          "snapshot, backfilled, backfill ->> 'gap', delivered_lsn::text "
          "FROM walpost.pipeline WHERE name = $1 OR slot = $2 ORDER BY name <> $1 LIMIT 1",
          {name, slot}));
  if (rows.empty()) {
    return std::nullopt;
  }
  const Row& row = rows[0];
  return PipelineRecord{row[0].value_or(""),
                        row[1].value_or(""),
                        row[2].value_or(""),
                        row[3].value_or(""),
                        row[4].value_or(""),
                        row[5],
                        row[6] == "t",
                        row[7],
                        base::Lsn::Parse(row[8].value_or("")).value_or(base::Lsn())};
}

absl::Status CheckFits(const PipelineRecord& record, const std::string& name,
                       const std::string& slot) {
  return record.name == name && record.slot == slot
             ? absl::OkStatus()
             : absl::FailedPreconditionError(absl::StrFormat(
                   "walpost.pipeline records pipeline '%s' on slot '%s', which does not fit name "
                   "'%s' and source.slot '%s'",
                   record.name, record.slot, name, slot));
}

absl::Status CheckRecordFits(postgres::SqlConnection* connection, const std::string& name,
                             const std::string& slot) {
  const auto record = FindRecord(connection, name, slot);
  if (absl::IsPermissionDenied(record.status())) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(record.status());
  return *record ? CheckFits(**record, name, slot) : absl::OkStatus();
}

absl::Status WriteRecord(postgres::SqlConnection* connection, const PipelineRecord& record) {
  return connection
      ->Query(
          "INSERT INTO walpost.pipeline (name, slot, publication, system_identifier, "
          "consistent_point, snapshot, backfilled, backfill, delivered_lsn) "
          "VALUES ($1, $2, $3, $4::numeric, $5::pg_lsn, $6, $7, CASE WHEN $8::text IS NOT NULL "
          "THEN "
          "jsonb_build_object('gap', $8::text) END, $5::pg_lsn) "
          "ON CONFLICT (name) DO UPDATE SET slot = excluded.slot, publication = "
          "excluded.publication, system_identifier = excluded.system_identifier, consistent_point "
          "= "
          "excluded.consistent_point, snapshot = excluded.snapshot, backfilled = "
          "excluded.backfilled, "
          "backfill = excluded.backfill, delivered_lsn = excluded.delivered_lsn",
          {record.name, record.slot, record.publication, record.system_identifier,
           record.consistent_point, record.snapshot, record.backfilled ? "true" : "false",
           record.gap})
      .status();
}

absl::Status RecordDelivered(postgres::SqlConnection* connection, const std::string& name,
                             base::Lsn position) {
  ASSIGN_OR_RETURN(
      const std::vector<Row> writable,
      connection->Query("SELECT WHERE NOT pg_is_in_recovery() AND "
                        "has_column_privilege(to_regclass('walpost.pipeline'), 'delivered_lsn', "
                        "'UPDATE')"));
  return writable.empty()
             ? absl::OkStatus()
             : connection
                   ->Query("UPDATE walpost.pipeline SET delivered_lsn = $2::pg_lsn WHERE name = $1",
                           {name, position.ToString()})
                   .status();
}

absl::StatusOr<std::uint64_t> TakeOverDeadLetters(postgres::SqlConnection* connection,
                                                  const PipelineRecord& record) {
  ASSIGN_OR_RETURN(const bool exists, HasTable(connection, "dead_letters"));
  if (!exists) {
    return 0;
  }
  // The rows of its stream stand behind those that it took over itself. Each gets its number in
  // that order as its place: an identifier of a cluster says nothing about which came first.
  ASSIGN_OR_RETURN(
      const std::vector<Row> taken,
      connection->Query(
          absl::StrFormat(
              "WITH here AS (SELECT system_identifier FROM pg_control_system()), theirs AS (SELECT "
              "seq, row_number() OVER (ORDER BY %s, seq) AS place FROM walpost.dead_letters WHERE "
              "pipeline = $1 AND system_identifier = $2::numeric), taken AS (UPDATE "
              "walpost.dead_letters AS d SET system_identifier = here.system_identifier, behind = "
              "repeat('0', 16) || '-' || lpad(theirs.place::text, 16, '0') FROM here, theirs WHERE "
              "d.seq = theirs.seq AND $2::numeric <> here.system_identifier RETURNING "
              "d.closed_at) SELECT count(*) FILTER (WHERE closed_at IS NULL) FROM taken",
              postgres::kStoredPlace),
          {record.name, record.system_identifier}));
  std::uint64_t open = 0;
  (void)absl::SimpleAtoi(taken.at(0).at(0).value_or("0"), &open);
  return open;
}

absl::Status CheckDeadLettersFrom(postgres::SqlConnection* connection, const std::string& name,
                                  base::Lsn from) {
  ASSIGN_OR_RETURN(const bool exists, HasTable(connection, "dead_letters"));
  if (!exists) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<Row> counted,
                   connection->Query(
                       absl::StrFormat("SELECT count(*) FROM walpost.dead_letters WHERE "
                                       "%s AND %s AND %s >= $2",
                                       postgres::kOurs, postgres::kOfThisLog, postgres::kCommitLsn),
                       {name, postgres::CommitLsnText(from)}));
  const std::string rows = counted.at(0).at(0).value_or("0");
  return rows == "0" ? absl::OkStatus()
                     : absl::FailedPreconditionError(absl::StrFormat(
                           "walpost.dead_letters has %s rows whose events come again, because "
                           "something older is not delivered; with other tables or prefixes these "
                           "events would have other positions. Start walpost with the earlier "
                           "configuration, wait until `walpost slot list` shows that the slot has "
                           "caught up, stop walpost, and try again. If it cannot start with that "
                           "any more, because a table was dropped: `walpost slot recreate --yes`",
                           rows));
}

absl::StatusOr<std::uint64_t> RecordCluster(postgres::SqlConnection* connection,
                                            const PipelineRecord& record,
                                            const std::string& system_identifier,
                                            base::Lsn position) {
  // Before the cluster is, or outbox.maintain could believe a position of another one.
  RETURN_IF_ERROR(RecordDelivered(connection, record.name, position));
  RETURN_IF_ERROR(connection->Execute("BEGIN"));
  absl::StatusOr<std::uint64_t> taken = TakeOverDeadLetters(connection, record);
  if (taken.ok()) {
    const absl::Status recorded =
        connection
            ->Query(
                "UPDATE walpost.pipeline SET system_identifier = $2::numeric, consistent_point = "
                "$3::pg_lsn, snapshot = NULL WHERE name = $1",
                {record.name, system_identifier, position.ToString()})
            .status();
    taken = recorded.ok() ? taken : recorded;
  }
  RETURN_IF_ERROR(connection->EndTransaction(taken.status()));
  return taken;
}

std::string TakenOver(const PipelineRecord& record, std::uint64_t open) {
  return open == 0 ? ""
                   : absl::StrFormat(
                         "dead letters %d open ones of cluster %s taken over: `walpost "
                         "dlq list` shows them\n",
                         open, record.system_identifier);
}

absl::Status RecordGap(postgres::SqlConnection* connection, const std::string& name,
                       const std::string& gap) {
  return connection
      ->Query(
          // The snapshot is that of the slot before, and says nothing about the next one.
          "UPDATE walpost.pipeline SET backfilled = false, snapshot = NULL, backfill = "
          "jsonb_build_object('gap', $2::text) WHERE name = $1",
          {name, gap})
      .status();
}

absl::StatusOr<std::vector<std::string>> ReadPrefixes(postgres::SqlConnection* connection,
                                                      const std::string& name) {
  std::vector<std::string> prefixes;
  ASSIGN_OR_RETURN(const bool exists, HasTable(connection, "pipeline"));
  if (!exists) {
    return prefixes;
  }
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      connection->Query("SELECT prefix FROM walpost.pipeline, unnest(prefixes) WITH ORDINALITY AS "
                        "p (prefix, place) WHERE name = $1 ORDER BY place",
                        {name}));
  for (const Row& row : rows) {
    prefixes.push_back(row.at(0).value_or(""));
  }
  return prefixes;
}

absl::StatusOr<std::string> ReadSystemIdentifier(postgres::SqlConnection* connection) {
  ASSIGN_OR_RETURN(const std::vector<Row> rows,
                   connection->Query("SELECT system_identifier::text FROM pg_control_system()"));
  return rows.at(0).at(0).value_or("");
}

absl::StatusOr<std::vector<int>> AppliedVersions(postgres::SqlConnection* connection) {
  std::vector<int> versions;
  ASSIGN_OR_RETURN(const bool exists, HasTable(connection, "schema_version"));
  if (!exists) {
    return versions;
  }
  ASSIGN_OR_RETURN(
      const std::vector<Row> rows,
      // The first one is applied again when somebody dropped what it makes.
      connection->Query("SELECT version::text FROM walpost.schema_version WHERE version > 1 OR "
                        "to_regclass('walpost.dead_letters') IS NOT NULL ORDER BY version"));
  for (const Row& row : rows) {
    int version = 0;
    if (absl::SimpleAtoi(row.at(0).value_or(""), &version)) {
      versions.push_back(version);
    }
  }
  return versions;
}

absl::StatusOr<std::vector<int>> AppliedIn(const std::string& schema,
                                           postgres::SqlConnection* connection) {
  constexpr int kInNoSchema = 1;
  constexpr int kMessages = 3;
  ASSIGN_OR_RETURN(std::vector<int> versions, AppliedVersions(connection));
  ASSIGN_OR_RETURN(
      const std::vector<Row> has,
      connection->Query("SELECT to_regclass($1 || '.events') IS NOT NULL, EXISTS (SELECT FROM "
                        "pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = "
                        "$1 AND p.proname = 'emit_message')",
                        {schema}));
  std::erase_if(versions, [&](int version) {
    return version != kInNoSchema && has.at(0).at(version == kMessages ? 1 : 0) != "t";
  });
  return versions;
}

absl::Status SlotMissing(const PipelineRecord& record) {
  if (!record.SlotWasMade()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "init_incomplete: `walpost init --backfill` of pipeline '%s' was interrupted before its "
        "slot was recorded: run it again; or `walpost slot recreate --leave-gap --yes`, which "
        "leaves out the rows that are there",
        record.name));
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "slot_missing: pipeline '%s' was set up on slot '%s' at %s, but the slot is gone. Events "
      "since its last confirmed "
      "position are not in any slot; a new one would skip them in silence, so nothing was changed. "
      "See docs/runbook.md, slot_missing",
      record.name, record.slot, record.consistent_point));
}

}  // namespace walpost::operations
