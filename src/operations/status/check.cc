#include "operations/status/check.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "base/text.h"
#include "observe/http_client.h"
#include "operations/deadletters/dlq.h"
#include "operations/rows/table_columns.h"
#include "operations/setup/pipeline_record.h"
#include "operations/status/check_parts.h"
#include "outbox/table_mapper.h"
#include "postgres/preflight.h"
#include "postgres/slots.h"
#include "postgres/sql_connection.h"
#include "registry/http.h"

namespace walpost::operations {
namespace {

using postgres::Row;
using postgres::SqlConnection;

using Level = CheckLine::Level;

class Checker {
 public:
  explicit Checker(const CheckOptions& options) : options_(options) {}

  void Run() {
    CheckStream();
    CheckDatabase();
    CheckDeadLetters();
    LookAtKafka();
    CheckRegistry();
    CheckHttp();
  }

  const std::vector<CheckLine>& lines() const { return found_.all(); }

  int exit_code() const {
    bool failed = false;
    for (const CheckLine& line : found_.all()) {
      failed = failed || line.level == Level::kFailed;
    }
    return !failed ? 0 : unreachable_ ? kExitUnavailable : kExitConfig;
  }

 private:
  // What `run` looks at before it streams, by the same code.
  void CheckStream() {
    const std::variant<postgres::PreflightReport, postgres::StreamEnd> result =
        postgres::CheckSource(options_.source);
    if (const auto* end = std::get_if<postgres::StreamEnd>(&result)) {
      unreachable_ = end->kind == postgres::StreamEnd::Kind::kLost;
      found_.Fail("replication connection", std::string(end->status.message()));
      return;
    }
    const auto& report = std::get<postgres::PreflightReport>(result);
    found_.Ok("replication connection",
              absl::StrFormat("%s, database %s, PostgreSQL %d.%d", report.facts.host,
                              report.facts.database, report.facts.server_version / 10000,
                              report.facts.server_version % 10000));
    for (const postgres::PreflightStep& step : report.steps) {
      if (!step.problem) {
        found_.Ok(step.name, "ok");
      } else if (step.problem->kind == postgres::StreamEnd::Kind::kSlotInUse) {
        found_.Warn(step.name, std::string(step.problem->status.message()) +
                                   " (fine when it is your own running walpost)");
      } else {
        found_.Fail(step.name, std::string(step.problem->status.message()));
      }
    }
    for (const std::string& warning : report.warnings) {
      found_.Warn("source", warning);
    }
  }

  void CheckDatabase() {
    absl::StatusOr<SqlConnection> connection =
        SqlConnection::Connect(options_.source.conninfo, options_.source.application_name);
    if (!connection.ok()) {
      unreachable_ = unreachable_ || absl::IsUnavailable(connection.status());
      found_.Fail("sql connection", std::string(connection.status().message()));
      return;
    }
    for (const outbox::TableOptions& table : options_.tables) {
      CheckTable(table, &*connection);
    }
    found_.Append(CheckTables(options_.tables, options_.source.publication, &*connection));
    found_.Append(CheckServer(options_.source.slot, &*connection,
                              [] { return std::chrono::system_clock::now(); }));
    CheckRecord(&*connection);
    const absl::Status trusted = RequireTrustedPublication(&*connection, options_.source);
    if (!trusted.ok()) {
      found_.Warn("publication owner", std::string(trusted.message()));
    }
    if (!options_.source.message_prefixes.empty()) {
      CheckMessagePrefixes(&*connection);
    }
    // Whoever emits one too large to be read stops the slot, whether messages are sent to us or
    // not.
    constexpr int kMessagesBoundedSince = 160000;
    if (!options_.source.message_prefixes.empty() ||
        connection->server_version() < kMessagesBoundedSince) {
      CheckMessageRights(&*connection);
      CheckMessageOwner(&*connection);
    }
  }

  // The mapper that will read the rows is bound to the columns the catalog has.
  void CheckTable(const outbox::TableOptions& table, SqlConnection* connection) {
    const std::string name = absl::StrFormat("columns of %s.%s", table.schema, table.table);
    const auto columns = TableColumns::Read(connection, options_.source.publication, table);
    if (absl::IsNotFound(columns.status())) {
      found_.Fail(name,
                  "the table does not exist, or has no columns: run `walpost init`, or correct "
                  "`outboxes[].table`");
      return;
    }
    if (!columns.ok()) {
      found_.Fail(name, std::string(columns.status().message()));
      return;
    }
    outbox::TableMapper mapper(table);
    const absl::Status bound = columns->Bind(&mapper);
    bound.ok() ? found_.Ok(name, "fit the mapping")
               : found_.Fail(name, std::string(bound.message()));
  }

  void CheckRecord(SqlConnection* connection) {
    const auto record = FindRecord(connection, options_.name, options_.source.slot);
    if (!record.ok()) {
      found_.Warn("walpost.pipeline", std::string(record.status().message()));
    } else if (!*record) {
      found_.Warn("walpost.pipeline",
                  "no record of this pipeline: `walpost init` writes it; without it walpost cannot "
                  "distinguish a lost slot from one that was never made");
    } else {
      found_.Ok("walpost.pipeline", absl::StrFormat("set up at %s", (*record)->consistent_point));
    }
  }

  void CheckDeadLetters() {
    if (options_.dead_letter_conninfo.empty()) {
      return;  // of the source preflight has looked
    }
    PipelineSettings pipeline;
    pipeline.name = options_.name;
    pipeline.source = options_.source;
    pipeline.dead_letter_conninfo = options_.dead_letter_conninfo;
    const auto table = OpenDeadLetters(pipeline);
    unreachable_ = unreachable_ || absl::IsUnavailable(table.status());
    table.ok()
        ? found_.Ok("delivery.dead_letter_conninfo", "has walpost.dead_letters")
        : found_.Fail("delivery.dead_letter_conninfo", std::string(table.status().message()));
  }

  void CheckMessagePrefixes(SqlConnection* connection) {
    const auto recorded = ReadPrefixes(connection, options_.name);
    if (!recorded.ok()) {
      found_.Warn("messages.prefixes", std::string(recorded.status().message()));
      return;
    }
    for (const std::string& prefix : options_.source.message_prefixes) {
      if (std::find(recorded->begin(), recorded->end(), prefix) != recorded->end()) {
        found_.Ok("messages.prefixes", absl::StrFormat("%s is recorded", prefix));
      } else {
        found_.Warn(
            "messages.prefixes",
            absl::StrFormat("%s is not recorded in walpost.pipeline, so outbox.emit_message "
                            "rejects it: stop walpost, run `walpost init --with-messages`",
                            prefix));
      }
    }
  }

  void CheckMessageRights(SqlConnection* connection) {
    const auto rows = connection->Query(
        "SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc WHERE proname = "
        "'pg_logical_emit_message' AND has_function_privilege('public', oid, 'EXECUTE')");
    if (!rows.ok()) {
      found_.Warn("messages", std::string(rows.status().message()));
    } else if (rows->at(0).at(0)) {
      found_.Warn("messages",
                  absl::StrFormat(
                      "any role may emit messages%s: REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC "
                      "(docs/messages.md)",
                      options_.source.message_prefixes.empty()
                          ? ", and PostgreSQL before 16 cannot read one of 1 GB, which stops the "
                            "slot"
                          : ", and thus events",
                      *rows->at(0).at(0)));
    }
  }

  void CheckMessageOwner(SqlConnection* connection) {
    const auto rows = connection->Query(
        "SELECT DISTINCT pg_get_userbyid(e.proowner) FROM pg_proc e JOIN pg_namespace n ON n.oid = "
        "e.pronamespace CROSS JOIN pg_proc p WHERE n.nspname = 'outbox' AND e.proname = "
        "'emit_message' AND p.proname = 'pg_logical_emit_message' AND p.pronamespace = "
        "'pg_catalog'::regnamespace AND NOT has_function_privilege(e.proowner, p.oid, 'EXECUTE')");
    if (!rows.ok()) {
      found_.Warn("messages", std::string(rows.status().message()));
    } else if (!rows->empty()) {
      found_.Fail("messages",
                  absl::StrFormat("outbox.emit_message fails: role %s, which owns it, may not call "
                                  "pg_logical_emit_message: GRANT EXECUTE on it, or run `walpost "
                                  "init --with-messages --revoke-emit` again",
                                  rows->at(0).at(0).value_or("")));
    }
  }

  void LookAtKafka() {
    CheckKafkaOptions options;
    options.name = options_.name;
    options.kafka = options_.kafka;
    options.topics = KnownTopics();
    options.progress_topic = options_.progress_topic;
    options.dead_letter_topic = options_.dead_letter_topic;
    options.timeout = options_.kafka_timeout;
    CheckKafkaResult result = CheckKafka(options);
    unreachable_ = unreachable_ || result.unreachable;
    found_.Append(std::move(result.lines));
  }

  // Those that need no event to be known, each once.
  std::vector<std::string> KnownTopics() const {
    std::set<std::string> topics(options_.topics_allowed.begin(), options_.topics_allowed.end());
    if (!options_.source.message_prefixes.empty() && !options_.messages_topic.empty() &&
        options_.messages_topic.find('{') == std::string::npos) {
      topics.insert(options_.messages_topic);
    }
    for (const outbox::TableOptions& table : options_.tables) {
      if (table.topic.find('{') == std::string::npos) {
        topics.insert(table.topic);
      }
    }
    return {topics.begin(), topics.end()};
  }

  void CheckRegistry() {
    if (options_.schemas.registry.urls.empty()) {
      return;
    }
    if (const std::string warning = registry::ClearTextWarning(options_.schemas.registry);
        !warning.empty()) {
      found_.Warn("schema registry", warning);
    }
    CheckSchemasResult result = CheckSchemas(options_.schemas);
    unreachable_ = unreachable_ || result.unreachable;
    found_.Append(std::move(result.lines));
  }

  void CheckHttp() {
    if (!observe::IsLoopbackOnly(options_.http.listen) && options_.http.token.empty()) {
      found_.Warn("http", observe::OpenToAll(options_.http.listen));
    }
  }

  const CheckOptions& options_;
  CheckLines found_;
  bool unreachable_ = false;
};

std::string AsText(const std::vector<CheckLine>& lines, bool color) {
  std::string text;
  for (const CheckLine& line : lines) {
    const char* mark = line.level == Level::kOk ? "✓" : line.level == Level::kWarning ? "!" : "✗";
    const char* paint = line.level == Level::kOk        ? "\x1b[32m"
                        : line.level == Level::kWarning ? "\x1b[33m"
                                                        : "\x1b[31m";
    text += color ? absl::StrFormat("%s%s\x1b[0m", paint, mark) : std::string(mark);
    text += absl::StrFormat(" %s: %s\n", base::Printable(line.name), base::Printable(line.text));
  }
  return text;
}

std::string AsJson(const std::vector<CheckLine>& lines) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CheckLine& line : lines) {
    const char* level = line.level == Level::kOk        ? "ok"
                        : line.level == Level::kWarning ? "warning"
                                                        : "failed";
    list.push_back({{"level", level}, {"check", line.name}, {"text", line.text}});
  }
  return base::JsonText(list, 2) + "\n";
}

}  // namespace

Outcome Check(const CheckOptions& options) {
  Checker checker(options);
  checker.Run();
  return Outcome{checker.exit_code(),
                 options.json ? AsJson(checker.lines()) : AsText(checker.lines(), options.color),
                 "", /*as_it_is=*/true};
}

}  // namespace walpost::operations
