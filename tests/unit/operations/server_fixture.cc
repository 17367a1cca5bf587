#include "unit/operations/server_fixture.h"

#include <memory>

namespace walpost::operations {
namespace {

using walpost::testing::PostgresServer;
using walpost::testing::PostgresServerOptions;

std::unique_ptr<PostgresServer> server;

class ServerEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    server = std::make_unique<PostgresServer>(
        PostgresServerOptions{{"max_replication_slots=6", "max_wal_senders=6"}, {}, {}});
  }

  void TearDown() override { server.reset(); }
};

// Owned by GoogleTest.
[[maybe_unused]] ::testing::Environment* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(new ServerEnvironment);

}  // namespace

void ServerFixture::SetUp() {
  static int count = 0;
  database_ = "test_" + std::to_string(++count);
  server->Sql("CREATE DATABASE " + database_);
}

void ServerFixture::TearDown() {
  server->Sql("SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots");
}

PostgresServer& ServerFixture::Server() { return *server; }

std::string ServerFixture::Sql(const std::string& statement) const {
  return server->Sql(statement, database_);
}

std::string ServerFixture::Conninfo(const std::string& extra) const {
  return server->Conninfo(database_, extra);
}

InitOptions ServerFixture::Options() const {
  InitOptions options;
  options.name = "shop";
  options.source.conninfo = Conninfo();
  options.source.slot = "shop";
  options.source.publication = "shop";
  options.source.application_name = "walpost-shop";
  options.source.tables = {{"outbox", "events", {"id"}}};
  return options;
}

RecreateOptions ServerFixture::LeavingGap(const InitOptions& init) {
  RecreateOptions options;
  options.init = init;
  options.leave_gap = true;
  return options;
}

void ServerFixture::InitOk() const {
  const Outcome outcome = Init(Options());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
}

std::string ServerFixture::State() const {
  std::string state = Sql(
      "SELECT string_agg(what, E'\\n' ORDER BY what) FROM ("
      "SELECT 'schema ' || oid || ' ' || xmin || ' ' || nspname AS what FROM pg_namespace "
      "WHERE nspname !~ '^pg_' UNION ALL "
      "SELECT 'relation ' || c.oid || ' ' || c.xmin || ' ' || c.relname FROM pg_class c "
      "JOIN pg_namespace n ON n.oid = c.relnamespace "
      "WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' UNION ALL "
      "SELECT 'publication ' || oid || ' ' || xmin || ' ' || pubname FROM pg_publication UNION ALL "
      "SELECT 'member ' || oid || ' ' || xmin FROM pg_publication_rel UNION ALL "
      "SELECT 'slot ' || slot_name || ' ' || coalesce(confirmed_flush_lsn::text, '-') "
      "FROM pg_replication_slots) AS everything");
  if (!Sql("SELECT to_regclass('walpost.pipeline')").empty()) {
    state += "\n" + Sql("SELECT string_agg(xmin || ' ' || p::text, E'\\n' ORDER BY name) "
                        "FROM walpost.pipeline p");
  }
  return state;
}

void ServerFixture::AwaitFreeSlots() {
  // Polled: a walsender does not report its end.
  server->Sql(
      "DO $$BEGIN FOR i IN 1..1000 LOOP "
      "EXIT WHEN NOT EXISTS (SELECT FROM pg_replication_slots WHERE active); "
      "PERFORM pg_sleep(0.01); PERFORM pg_stat_clear_snapshot(); END LOOP; END$$");
}

void ServerFixture::Reload() {
  const std::string before = server->Sql("SELECT pg_conf_load_time()");
  server->Sql("SELECT pg_reload_conf()");
  // Every new connection is a child of the postmaster, which reloads first when it has the signal.
  for (int i = 0; i < 1'000 && server->Sql("SELECT pg_conf_load_time()") == before; ++i) {
  }
}

}  // namespace walpost::operations
