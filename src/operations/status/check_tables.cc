#include "operations/status/check_tables.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "operations/rows/row_sender.h"
#include "operations/rows/table_columns.h"
#include "operations/setup/init_sql.h"
#include "operations/setup/pipeline_record.h"
#include "operations/trusted_owner.h"
#include "registry/resolver.h"

namespace walpost::operations {
namespace {

using outbox::TableOptions;
using postgres::QuoteIdentifier;
using postgres::QuoteLiteral;
using postgres::Row;
using postgres::SqlConnection;

// The columns of table `c` that can hold more than PostgreSQL can send; null = none. All count but
// those of a brief type, and those of which a CHECK says octet_length(column::text) <= N or the
// like, in a plain form: what is not understood is no bound.
constexpr const char kUnboundedColumns[] =
    "(WITH RECURSIVE base AS (SELECT a.attnum, a.attname, a.atttypmod AS typmod, t.oid, t.typname, "
    "t.typlen, t.typtypmod, t.typbasetype FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
    "WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped UNION ALL SELECT b.attnum, "
    "b.attname, greatest(b.typmod, b.typtypmod), t.oid, t.typname, t.typlen, t.typtypmod, "
    "t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.typbasetype) SELECT "
    "string_agg(quote_ident(b.attname), ', ' ORDER BY b.attnum) FROM base b WHERE b.typbasetype = "
    "0 AND b.typlen = -1 AND b.typname <> ALL ('{numeric,inet,cidr,tsvector,int4range,int8range,"
    "numrange,tsrange,tstzrange,daterange}') AND NOT (b.typname IN ('varchar', 'bpchar', 'bit', "
    "'varbit') AND b.typmod BETWEEN 0 AND 1000004) AND NOT EXISTS (SELECT FROM pg_constraint k, "
    "LATERAL (SELECT CASE WHEN k.contypid = 0 THEN regexp_replace(quote_ident(b.attname), "
    "'([^a-zA-Z0-9_ ])', '\\\\\\1', 'g') ELSE 'VALUE' END AS name, pg_get_constraintdef(k.oid) AS "
    "def) d WHERE k.contype = 'c' AND (k.conrelid = c.oid AND b.attnum = ANY (k.conkey) OR "
    "k.contypid IN (SELECT other.oid FROM base other WHERE other.attnum = b.attnum)) AND d.def ~ "
    "('\\m(octet_|char_|character_)?length\\(\\(?' || d.name || '\\)?(::text)?\\) <=? "
    "\\d{1,8}\\M') AND regexp_replace(d.def, '\\(' || d.name || ' IS NULL\\) OR ', '') !~ "
    "'\\m(OR|CASE|NOT \\(|NOT ENFORCED)'))";

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
                  absl::StrFormat("%d; this walpost has %d: run `walpost init`, or apply "
                                  "the files of sql/ that are missing, or have changed since",
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
                            "100 million, bounds %s, and a row of more than 1 GB as text stops all "
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
    std::vector<std::string> outboxes;
    for (const TableOptions& table : tables) {
      outboxes.push_back(
          QuoteLiteral(QuoteIdentifier(table.schema) + "." + QuoteIdentifier(table.table)));
    }
    const auto others = connection_->Query(
        "SELECT count(*), min(c.oid::regclass::text) FROM pg_publication_tables p JOIN "
        "pg_namespace n ON n.nspname = p.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND "
        "c.relname = p.tablename WHERE p.pubname = $1 AND coalesce(pg_partition_root(c.oid), "
        "c.oid) NOT IN (SELECT coalesce(pg_partition_root(o.oid), o.oid) FROM pg_class o WHERE "
        "o.oid IN (SELECT to_regclass(name) FROM unnest(ARRAY[" +
            absl::StrJoin(outboxes, ", ") + "]::text[]) name))",
        {publication});
    if (others.ok() && others->front().at(0) != "0") {
      found_.Warn(
          "tables of " + publication,
          absl::StrFormat("%s of them are no outbox, such as %s: take them out, as a row of "
                          "more than 1 GB as text stops all delivery (docs/security.md)",
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

namespace {

using envelope::Framing;
using envelope::SchemaNeed;
using registry::Finding;
using registry::Resolver;
using Level = CheckLine::Level;

constexpr char kTopic[] = "{topic}";

class SchemaChecker {
 public:
  explicit SchemaChecker(const CheckSchemasOptions& options) : options_(options) {}

  CheckSchemasResult Run() {
    std::vector<envelope::FramingOptions> framings;
    for (const SchemaSource& source : options_.sources) {
      framings.push_back(source.encoder.framing);
    }
    auto resolver = Resolver::Create(options_.registry, framings);
    if (!resolver.ok()) {
      Add(Level::kFailed, "schema registry", std::string(resolver.status().message()));
      return std::move(result_);
    }
    resolver_ = *std::move(resolver);
    if (const absl::Status reached = resolver_->Reach(); !reached.ok()) {
      Fail("schema registry", reached);
      return std::move(result_);
    }
    std::vector<std::string> urls;
    for (const std::string& url : options_.registry.urls) {
      urls.push_back(registry::ShownUrl(url, options_.registry));
    }
    Add(Level::kOk, "schema registry", absl::StrFormat("answers at %s", absl::StrJoin(urls, ", ")));
    for (std::uint32_t i = 0; options_.schemas && i < options_.sources.size(); ++i) {
      if (options_.sources[i].encoder.framing.framing != Framing::kNone && !result_.unreachable) {
        CheckSource(options_.sources[i], i);
      }
    }
    return std::move(result_);
  }

 private:
  void Add(Level level, std::string name, std::string text) {
    result_.lines.push_back({level, std::move(name), std::move(text)});
  }

  void Fail(const std::string& name, const absl::Status& status) {
    result_.unreachable = result_.unreachable || absl::IsUnavailable(status);
    Add(Level::kFailed, name, std::string(status.message()));
  }

  std::vector<std::string> RecordsOf(const SchemaSource& source, std::uint32_t index) const {
    if (source.encoder.format == envelope::ValueFormat::kEnvelope) {
      return {std::string(envelope::kEnvelopeRecord)};
    }
    if (!source.encoder.framing.needs_record()) {
      return {""};
    }
    return resolver_->RecordsOf(index);
  }

  void CheckSource(const SchemaSource& source, std::uint32_t index) {
    const envelope::FramingOptions& framing = source.encoder.framing;
    const std::string name = "schemas of " + source.name;
    const std::vector<std::string> records = RecordsOf(source, index);
    if (records.empty()) {
      Add(Level::kWarning, name,
          "not checked: rows name the messages; set `descriptor_set` to check them");
      return;
    }
    const bool by_topic = framing.subject.find(kTopic) != std::string::npos;
    if (by_topic && source.more_topics) {
      Add(Level::kWarning, name,
          source.topics.empty()
              ? "not checked: their subjects have the topic's name, and rows name the topics; "
                "list the topics in `topics.allowed` to check them"
              : "not checked where rows name other topics: list those in `topics.allowed` to "
                "check them");
    }
    new_subjects_.clear();
    seen_.clear();
    for (const std::string& topic : by_topic ? source.topics : std::vector<std::string>{""}) {
      for (const std::string& record : records) {
        CheckOne(framing, SchemaNeed{framing.framing, framing.type,
                                     envelope::ExpandSubject(framing.subject, topic, record),
                                     record, index});
        if (result_.unreachable) {
          return;
        }
      }
    }
    if (!new_subjects_.empty()) {
      Add(framing.auto_register ? Level::kOk : Level::kWarning, name,
          absl::StrFormat("subjects that do not exist yet: %s; %s",
                          absl::StrJoin(new_subjects_, ", "), Advice(framing)));
    }
  }

  static const char* Advice(const envelope::FramingOptions& framing) {
    return framing.auto_register ? "walpost registers it with the first event"
                                 : "register it before the first event of it";
  }

  void CheckOne(const envelope::FramingOptions& framing, const SchemaNeed& need) {
    if (!seen_.emplace(need.subject, need.record).second) {
      return;
    }
    const std::string name = absl::StrFormat("subject %s%s%s", need.subject,
                                             need.record.empty() ? "" : ", ", need.record);
    const absl::StatusOr<Finding> finding = resolver_->Examine(need);
    if (!finding.ok()) {
      Fail(name, finding.status());
      return;
    }
    switch (finding->state) {
      case Finding::State::kRegistered:
        Add(Level::kOk, name, finding->text);
        return;
      case Finding::State::kCompatible:
        Add(framing.auto_register ? Level::kOk : Level::kWarning, name,
            finding->text + "; " + Advice(framing));
        return;
      case Finding::State::kNewSubject:
        new_subjects_.push_back(need.subject);
        return;
      case Finding::State::kRejected:
        Add(Level::kFailed, name, finding->text);
        return;
    }
  }

  const CheckSchemasOptions& options_;
  std::shared_ptr<Resolver> resolver_;
  CheckSchemasResult result_;
  std::vector<std::string> new_subjects_;
  std::set<std::pair<std::string, std::string>> seen_;
};

}  // namespace

CheckSchemasResult CheckSchemas(const CheckSchemasOptions& options) {
  return SchemaChecker(options).Run();
}

SchemaSource SchemaSourceOf(const outbox::TableOptions& table,
                            const envelope::EncoderOptions& encoder) {
  SchemaSource source{table.schema + "." + table.table, encoder,
                      outbox::NamesAmong(table.topics.allowed), false};
  if (!table.topics.allowed.empty() && source.topics.size() == table.topics.allowed.size()) {
    return source;
  }
  for (const auto& [type, topic] : table.topics.by_aggregate_type) {
    source.topics.push_back(topic);
  }
  const bool fixed = table.topic.find('{') == std::string::npos && !table.debezium;
  if (fixed) {
    source.topics.push_back(table.topic);
  }
  source.more_topics = !fixed || !table.columns.topic.empty();
  return source;
}

}  // namespace walpost::operations
