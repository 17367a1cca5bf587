#include "operations/status/check_parts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "operations/rows/row_sender.h"
#include "operations/setup/init_sql.h"
#include "operations/setup/pipeline_record.h"
#include "operations/trusted_owner.h"

namespace walpost::operations {
namespace {

using outbox::TableOptions;
using postgres::QuoteIdentifier;
using postgres::QuoteLiteral;
using postgres::Row;
using postgres::SqlConnection;

// The columns of table `c` that can hold more than PostgreSQL can send; null = none. All count but
// those of a brief type, and those of which a CHECK of its own says octet_length(column::text) <= N
// or the like, and no more than that: what is not understood is no bound.
constexpr const char kUnboundedColumns[] =
    "(WITH RECURSIVE base AS (SELECT a.attnum, a.attname, a.atttypmod AS typmod, t.oid, "
    "t.typnamespace, t.typname, t.typlen, t.typtypmod, t.typbasetype FROM pg_attribute a JOIN "
    "pg_type t ON t.oid = a.atttypid WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT "
    "a.attisdropped UNION ALL SELECT b.attnum, b.attname, greatest(b.typmod, b.typtypmod), t.oid, "
    "t.typnamespace, t.typname, t.typlen, t.typtypmod, t.typbasetype FROM base b JOIN pg_type t ON "
    "t.oid = b.typbasetype) SELECT string_agg(quote_ident(b.attname), ', ' ORDER BY b.attnum) FROM "
    "base b WHERE b.typbasetype = 0 AND b.typlen = -1 AND NOT (b.typnamespace = "
    "'pg_catalog'::regnamespace AND (b.typname = ANY ('{numeric,inet,cidr,tsvector,int4range,"
    "int8range,numrange,tsrange,tstzrange,daterange}') OR b.typname IN ('varchar', 'bpchar', "
    "'bit', 'varbit') AND b.typmod BETWEEN 0 AND 1000004)) AND (b.typname IN ('bpchar', 'varbit') "
    "OR NOT EXISTS (SELECT FROM pg_constraint k, LATERAL (SELECT CASE WHEN k.contypid = 0 THEN "
    "regexp_replace(quote_ident(b.attname), '([][(){}.*+?^$|\\\\-])', '\\\\\\1', 'g') ELSE 'VALUE' "
    "END) AS d (name), LATERAL (SELECT '(octet_|char_|character_)?length\\(\\(?' || d.name || "
    "'\\)?(::text)?\\) ') AS l (length) WHERE k.contype = 'c' AND (k.conrelid = c.oid AND k.conkey "
    "= ARRAY[b.attnum] OR k.contypid IN (SELECT other.oid FROM base other WHERE other.attnum = "
    "b.attnum)) AND pg_get_constraintdef(k.oid) ~ ('^CHECK \\(\\(+(' || d.name || ' IS NULL\\) OR "
    "\\(+)?(' || l.length || '>=? \\d+\\) AND \\(+)?' || l.length || '<=? \\d{1,7}\\)+( NOT "
    "VALID| NO INHERIT)*$'))))";

class TablesCheck {
 public:
  explicit TablesCheck(SqlConnection* connection) : connection_(connection) {}

  void Versions() {
    const auto applied = AppliedVersions(connection_);
    if (absl::IsPermissionDenied(applied.status()) || (applied.ok() && applied->empty())) {
      return;  // the record's own line says that nothing is set up, or that it may not be read
    }
    if (!applied.ok()) {
      found_.Warn("schema version", std::string(applied.status().message()));
      return;
    }
    const auto has = [&](int version) {
      return std::find(applied->begin(), applied->end(), version) != applied->end();
    };
    // Versions 3 and 5 are a matter of choice.
    const bool outdated = !has(1) || has(2) != has(5);
    if (applied->back() > kSchemaVersion) {
      found_.Warn("schema version",
                  absl::StrFormat("%d is newer than what this walpost knows, %d: update walpost",
                                  applied->back(), kSchemaVersion));
    } else if (outdated) {
      found_.Warn("schema version",
                  absl::StrFormat("%d; this walpost has %d: run `walpost init`, or apply the files "
                                  "of sql/ that are missing, or have changed since",
                                  applied->back(), kSchemaVersion));
    } else {
      found_.Ok("schema version", std::to_string(applied->back()));
    }
  }

  void Table(const TableOptions& table) {
    const std::string name = absl::StrFormat("table %s.%s", table.schema, table.table);
    const std::string quoted = QuoteIdentifier(table.schema) + "." + QuoteIdentifier(table.table);
    // A function is only looked for, never called, and only that of a role whose table it is, or
    // which is trusted, is spoken of.
    const auto rows = connection_->Query(
        "SELECT c.relrowsecurity, c.relkind = 'p', EXISTS (SELECT FROM pg_proc p WHERE "
        "p.pronamespace = n.oid AND p.proname = 'maintain') AND NOT EXISTS (SELECT FROM pg_proc p "
        "JOIN pg_roles owner ON owner.oid = p.proowner WHERE p.pronamespace = n.oid AND p.proname "
        "= 'maintain' AND owner.oid <> c.relowner AND " +
            std::string(kOwnerIsForeign) +
            "), EXISTS (SELECT FROM pg_attrdef d WHERE d.adrelid = c.oid AND "
            "pg_get_expr(d.adbin, d.adrelid) ~ 'gen_random_uuid|uuid_generate_v4'), "
            "has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'), "
            "current_user, c.relkind = 'p' AND NOT EXISTS (SELECT FROM pg_trigger t WHERE "
            "t.tgrelid = c.oid AND t.tgname = 'events_stay'), "
            "current_setting('server_version_num')::integer >= 140000 AND EXISTS (SELECT FROM "
            "pg_partitioned_table t WHERE t.partrelid = c.oid AND t.partdefid = 0), " +
            std::string(kUnboundedColumns) +
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 "
            "AND c.relname = $2",
        {table.schema, table.table});
    if (!rows.ok()) {
      found_.Warn(name, std::string(rows.status().message()));
      return;
    }
    if (rows->empty()) {
      return;  // the line about its columns says it
    }
    const Row& row = rows->front();
    if (row.at(0) == "t") {
      found_.Warn(name,
                  "row-level security is on: it does not filter the stream, but may hide rows from "
                  "what reads the table to send events again");
    }
    if (row.at(4) != "t") {
      const std::string role = row.at(5).value_or("");
      found_.Warn(
          name, absl::StrFormat("%s may not read it: the stream needs no such right, but `init "
                                "--backfill`, `replay`, `audit` and `slot recreate` do: GRANT "
                                "USAGE ON SCHEMA %s TO %s; GRANT SELECT ON %s TO %s",
                                role, QuoteIdentifier(table.schema), QuoteIdentifier(role), quoted,
                                QuoteIdentifier(role)));
    }
    if (row.at(3) == "t") {
      found_.Warn(name,
                  "ids are random: each row touches another page of their index, and after a "
                  "checkpoint every page that is touched goes to the WAL as a whole; ids that grow "
                  "with time (UUID version 7) do not");
    }
    if (row.at(6) == "t") {
      found_.Warn(
          name,
          "is partitioned: an UPDATE that moves a row to another partition is sent as a new "
          "event; REVOKE UPDATE, or reject it by a trigger (docs/schema-changes.md)");
    }
    if (row.at(7) == "t") {
      found_.Warn(name,
                  "has no default partition, so a partition can be detached CONCURRENTLY, and then "
                  "PostgreSQL leaves events out; with one it rejects (docs/schema-changes.md)");
    }
    if (row.at(8) && !(row.at(2) == "t" && table.table == "events")) {
      found_.Warn(name, absl::StrFormat(
                            "no CHECK of the form octet_length(column::text) <= N, with N below "
                            "10 million, bounds %s, and a row of more than 1 GB as text stops all "
                            "delivery: ALTER TABLE %s ADD CHECK (...) (docs/security.md)",
                            *row.at(8), quoted));
    }
    if (row.at(2) == "t" && table.table == "events") {
      Delivered(name, QuoteIdentifier(table.schema), row.at(5).value_or(""));
    }
    if (row.at(1) == "t" && row.at(2) == "t" && table.table == "events") {
      Partitions(name, quoted, QuoteIdentifier(table.schema));
    }
  }

  // What others may do with what walpost made.
  void Rights(const std::vector<TableOptions>& tables) {
    std::vector<std::string> schemas = {"walpost", "outbox", "inbox"};
    for (const TableOptions& table : tables) {
      schemas.push_back(table.schema);
    }
    const auto own = OwnSchemas(connection_, schemas);
    const auto creators = own.ok() ? FindCreators(connection_, *own) : own.status();
    const auto writers = creators.ok() ? FindWriters(connection_, *own) : creators.status();
    if (!writers.ok()) {
      found_.Warn("rights", std::string(writers.status().message()));
      return;
    }
    for (const Grant& grant : *creators) {
      found_.Warn(
          grant.what,
          absl::StrFormat("lets others create in it: role %s, whose code would run with the "
                          "rights of whoever uses what walpost made there: %s",
                          grant.role, grant.cure));
    }
    for (const Grant& grant : *writers) {
      found_.Warn(
          "rights on " + grant.what,
          absl::StrFormat("role %s may change what walpost goes by, so events could be left out, "
                          "or forged: %s; a walpost or an operator of yours gets its rights as a "
                          "member of a role (docs/database.md)",
                          grant.role, grant.cure));
    }
  }

  // Of other tables only their rows' length matters: PostgreSQL sends them, too.
  void Others(const std::vector<TableOptions>& tables, const std::string& publication) {
    std::vector<std::string> outboxes = {"('', '')"};
    for (const TableOptions& table : tables) {
      outboxes.push_back("(" + QuoteLiteral(table.schema) + ", " + QuoteLiteral(table.table) + ")");
    }
    const auto others = connection_->Query(
        "WITH tables AS (SELECT c.oid, n.nspname, c.relname, coalesce(pg_partition_root(c.oid), "
        "c.oid) AS root FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace) SELECT "
        "count(*), min(format('%I.%I', t.nspname, t.relname)) FROM pg_publication_tables p JOIN "
        "tables t ON (t.nspname, t.relname) = (p.schemaname, p.tablename) WHERE p.pubname = $1 AND "
        "t.root NOT IN (SELECT root FROM tables WHERE (nspname, relname) IN (" +
            absl::StrJoin(outboxes, ", ") + "))",
        {publication});
    const std::string name = "tables of " + publication;
    if (!others.ok()) {
      found_.Warn(name, std::string(others.status().message()));
    } else if (others->front().at(0) != "0") {
      found_.Warn(name, absl::StrFormat(
                            "%s are no outbox, such as %s: take them out, as a row of more than 1 "
                            "GB as text stops all delivery (docs/security.md)",
                            *others->front().at(0), *others->front().at(1)));
    }
  }

  void Ids(const std::vector<TableOptions>& tables, const std::string& publication) {
    const auto shared = SharedIds::Read(tables, publication, connection_);
    if (!shared.ok()) {
      found_.Warn("ids", std::string(shared.status().message()));
      return;
    }
    for (const SharedIds::Pair& pair : shared->pairs()) {
      found_.Warn(
          absl::StrFormat("ids of %s and %s", pair.first, pair.second),
          absl::StrFormat("%s: `audit` does not know whether their rows are missing, and `slot "
                          "recreate` and `replay --missing` send none: %s",
                          SharedIds::TextOf(pair), kSharedIdsCure));
    }
  }

  std::vector<CheckLine> Take() { return found_.Take(); }

 private:
  // What `run` cannot note, outbox.maintain does not know.
  void Delivered(const std::string& name, const std::string& schema, const std::string& role) {
    const auto rows = connection_->Query(
        "SELECT pg_is_in_recovery(), has_column_privilege(record, 'delivered_lsn', 'UPDATE') "
        "FROM to_regclass('walpost.pipeline') AS record WHERE record IS NOT NULL");
    if (!rows.ok()) {
      found_.Warn(name, std::string(rows.status().message()));
      return;
    }
    if (rows->empty()) {
      return;
    }
    if (rows->front().at(0) == "t") {
      found_.Warn(
          name, absl::StrFormat("walpost reads from a standby and cannot note there how far it has "
                                "delivered, so %s.maintain drops nothing",
                                schema));
    } else if (rows->front().at(1) != "t") {
      found_.Warn(
          name, absl::StrFormat(
                    "%s may not note how far it has delivered, so %s.maintain drops nothing: GRANT "
                    "UPDATE (delivered_lsn) ON walpost.pipeline TO %s",
                    role, schema, QuoteIdentifier(role)));
    }
  }

  void Partitions(const std::string& name, const std::string& table, const std::string& schema) {
    const auto rows = connection_->Query(
        "SELECT count(*), coalesce(max(bound[1]::timestamptz) < now() + interval '1 hour', true) "
        "FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid CROSS JOIN "
        "regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \\(''.+''\\) TO "
        "\\(''(.+)''\\)') AS bound WHERE i.inhparent = to_regclass($1) AND bound IS NOT NULL",
        {table});
    if (!rows.ok() && connection_->last_sqlstate().substr(0, 2) == "22") {
      return;  // bounds of another type: partitions of somebody's own
    }
    if (!rows.ok()) {
      found_.Warn(name, std::string(rows.status().message()));
      return;
    }
    const Row& row = rows->front();
    const std::string fix = absl::StrFormat(
        ": run SELECT * FROM %s.maintain() as its owner, and have it done every hour", schema);
    if (row.at(1) == "t") {
      found_.Warn(name, "the time of its last partition is nearly over" + fix);
      return;
    }
    const absl::StatusOr<bool> has_rows = DefaultHasRows(table);
    if (!has_rows.ok()) {
      found_.Warn(name, std::string(has_rows.status().message()));
    } else if (*has_rows) {
      found_.Warn(name, "the default partition has rows" + fix);
    } else {
      found_.Ok(name, row.at(0).value_or("") + " partitions");
    }
  }

  // As far as it may be read: who may not has no need to.
  absl::StatusOr<bool> DefaultHasRows(const std::string& table) {
    ASSIGN_OR_RETURN(
        const std::vector<Row> found,
        connection_->Query(
            "SELECT n.nspname, c.relname FROM pg_partitioned_table t JOIN pg_class c ON c.oid = "
            "t.partdefid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE t.partrelid = "
            "to_regclass($1) AND has_schema_privilege(n.oid, 'USAGE') AND "
            "has_table_privilege(c.oid, 'SELECT')",
            {table}));
    if (found.empty()) {
      return false;
    }
    absl::StatusOr<bool> has =
        HasRows(found.front().at(0).value_or(""), found.front().at(1).value_or(""));
    (void)connection_->Execute("ROLLBACK");
    return absl::IsPermissionDenied(has.status()) ? false : has;
  }

  // In a transaction that whoever calls this ends.
  absl::StatusOr<bool> HasRows(const std::string& schema, const std::string& table) {
    RETURN_IF_ERROR(BeginReadOnly(connection_, schema, table));
    ASSIGN_OR_RETURN(
        const std::vector<Row> rows,
        connection_->Query(absl::StrFormat("SELECT FROM %s.%s LIMIT 1", QuoteIdentifier(schema),
                                           QuoteIdentifier(table))));
    return !rows.empty();
  }

  SqlConnection* const connection_;
  CheckLines found_;
};

}  // namespace

std::vector<CheckLine> CheckTables(const std::vector<TableOptions>& tables,
                                   const std::string& publication, SqlConnection* connection) {
  TablesCheck check(connection);
  check.Versions();
  for (const TableOptions& table : tables) {
    check.Table(table);
  }
  check.Rights(tables);
  check.Ids(tables, publication);
  check.Others(tables, publication);
  return check.Take();
}

}  // namespace walpost::operations
