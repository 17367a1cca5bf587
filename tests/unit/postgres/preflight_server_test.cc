// Every problem preflight knows, made on a real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "postgres/connect.h"
#include "postgres/failure.h"
#include "postgres/preflight.h"
#include "postgres/slots.h"
#include "support/postgres_server.h"
#include "unit/postgres/preflight_fixture.h"

namespace walpost::postgres {
namespace {

using base::HaltReason;
using Kind = StreamEnd::Kind;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using walpost::testing::PostgresServer;
using walpost::testing::PostgresServerOptions;

// New connections have it.
class WithSenderTimeout {
 public:
  WithSenderTimeout(PostgresServer* server, const std::string& timeout) : server_(server) {
    server_->Sql("ALTER SYSTEM SET wal_sender_timeout = '" + timeout + "'");
    Reload();
  }

  ~WithSenderTimeout() {
    server_->Sql("ALTER SYSTEM RESET wal_sender_timeout");
    Reload();
  }

 private:
  void Reload() {
    const std::string before = server_->Sql("SELECT pg_conf_load_time()");
    server_->Sql("SELECT pg_reload_conf()");
    while (server_->Sql("SELECT pg_conf_load_time()") == before) {
    }
  }

  PostgresServer* const server_;
};

TEST_F(PreflightServerTest, CompleteSourceGivesAllFacts) {
  MakeAll();
  auto outcome = Connect(Options(), base::Lsn());
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome)) << std::get<StreamEnd>(outcome).status;
  const base::SourceFacts& facts = std::get<Connected>(outcome).facts;
  EXPECT_EQ(std::to_string(facts.system_identifier),
            Sql("SELECT system_identifier FROM pg_control_system()"));
  EXPECT_EQ(facts.timeline, 1u);
  EXPECT_TRUE(facts.timeline_history.empty());
  EXPECT_EQ(std::to_string(facts.server_version), Sql("SHOW server_version_num"));
  EXPECT_EQ(facts.database, database_);
  EXPECT_EQ(facts.host, "127.0.0.1:" + std::to_string(server_->port()));
  EXPECT_TRUE(facts.confirmed_flush_lsn.valid());
  EXPECT_EQ(facts.start_lsn, facts.confirmed_flush_lsn);
  EXPECT_GE(facts.server_wal_lsn, facts.confirmed_flush_lsn);
  EXPECT_EQ(std::to_string(facts.publication_oid), Sql("SELECT oid FROM pg_publication"));
  ASSERT_EQ(facts.tables.size(), 1u);
  EXPECT_EQ(std::to_string(facts.tables[0].oid), Sql("SELECT 'outbox.events'::regclass::oid"));
  EXPECT_EQ(facts.tables[0].schema, "outbox");
  EXPECT_EQ(facts.tables[0].name, "events");
  ASSERT_EQ(facts.tables[0].memberships.size(), 1u);
  EXPECT_EQ(std::to_string(facts.tables[0].memberships[0]),
            Sql("SELECT oid FROM pg_publication_rel"));
  EXPECT_EQ(std::to_string(facts.publication_xmin), Sql("SELECT xmin FROM pg_publication"));
  EXPECT_GT(facts.looked_lsn, base::Lsn());
  EXPECT_LE(facts.server_wal_lsn, facts.looked_lsn);
  EXPECT_EQ(facts.wal_sender_timeout_ms, 60'000);
  EXPECT_FALSE(facts.wal_keep_bytes) << "no limit is the default";
}

// Failure 20.
TEST_F(PreflightServerTest, StartIsTheLaterOfProgressAndSlot) {
  MakeAll();
  const base::Lsn later(base::Lsn::Parse(Sql("SELECT pg_current_wal_lsn()"))->value() + 1000);
  auto outcome = Connect(Options(), later);
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome));
  EXPECT_EQ(std::get<Connected>(outcome).facts.start_lsn, later);
}

TEST_F(PreflightServerTest, GuardSeesTheFactsAndTheTransactionThatItRemembersIsTheStart) {
  MakeAll();
  const base::Lsn later(base::Lsn::Parse(Sql("SELECT pg_current_wal_lsn()"))->value() + 1000);
  auto outcome = Connect(Options(), base::Lsn(), [&](base::SourceFacts* facts) {
    EXPECT_TRUE(facts->confirmed_flush_lsn.valid());
    EXPECT_EQ(facts->tables.size(), 1u);
    facts->progress.emplace().end_lsn = base::Lsn(later.value() + 500);
    facts->progress->last_transactions = {{later, base::Xid{700}, {}}};
    return std::optional<StreamEnd>();
  });
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome));
  EXPECT_EQ(std::get<Connected>(outcome).facts.start_lsn, later);
}

// The slot is free until START.
TEST_F(PreflightServerTest, SlotThatIsMovedBeforeStartEndsTheAttempt) {
  MakeAll();
  auto outcome = Connect(Options(), base::Lsn(), [this](base::SourceFacts*) {
    if (Sql("SELECT active FROM pg_replication_slots WHERE slot_name = '" + slot_ + "'") == "f") {
      Sql("INSERT INTO outbox.events VALUES (1)");
      Sql("SELECT pg_replication_slot_advance('" + slot_ + "', pg_current_wal_lsn())");
    }
    return std::optional<StreamEnd>();
  });
  ASSERT_TRUE(std::holds_alternative<StreamEnd>(outcome));
  EXPECT_EQ(std::get<StreamEnd>(outcome).kind, Kind::kLost);
  WaitUntilFree();
}

TEST_F(PreflightServerTest, DecisionThatIsMadeBeforeStartEndsTheAttempt) {
  MakeAll();
  std::uint64_t epoch = 0;
  auto outcome = Connect(Options(), base::Lsn(), [&](base::SourceFacts* facts) {
    facts->progress.emplace().epoch = epoch++;
    facts->progress->end_lsn = facts->confirmed_flush_lsn;
    return std::optional<StreamEnd>();
  });
  ASSERT_TRUE(std::holds_alternative<StreamEnd>(outcome));
  EXPECT_EQ(std::get<StreamEnd>(outcome).kind, Kind::kLost);
  EXPECT_EQ(epoch, 2u);
  WaitUntilFree();
}

// wal_sender_timeout counts from START on, before the stream is read. `init --with-messages` holds
// the slot while it records one, so that comes before START or not at all.
TEST_F(PreflightServerTest, PrefixThatIsRecordedBeforeStartEndsTheAttempt) {
  MakeAll();
  Sql(kPipelineTable);
  Sql("INSERT INTO walpost.pipeline (name, slot, system_identifier) SELECT 'shop', '" + slot_ +
      "', system_identifier FROM pg_control_system()");
  auto outcome = Connect(Options(), base::Lsn(), [this](base::SourceFacts*) {
    Sql("UPDATE walpost.pipeline SET prefixes = '{billing}'");
    return std::optional<StreamEnd>();
  });
  ASSERT_TRUE(std::holds_alternative<StreamEnd>(outcome));
  ExpectHalt(std::get<StreamEnd>(outcome), HaltReason::kInitIncomplete, "'billing'");
}

TEST_F(PreflightServerTest, GuardThatTakesLongBehindStartCostsNoConnection) {
  MakeAll();
  const WithSenderTimeout short_timeout(server_.get(), "1s");
  int calls = 0;
  auto outcome = Connect(Options(), base::Lsn(), [&](base::SourceFacts*) {
    if (++calls == 2) {
      ExpectInUseFor(std::chrono::seconds(3));
    }
    return std::optional<StreamEnd>();
  });
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome));
  EXPECT_EQ(calls, 2);
}

TEST_F(PreflightServerTest, SlotIsHeldForLongerThanTheServersTimeout) {
  MakeAll();
  const WithSenderTimeout short_timeout(server_.get(), "1s");
  const auto held = SlotHold::Take(Options());
  ASSERT_TRUE(held.ok()) << held.status();
  ExpectInUseFor(std::chrono::seconds(3));
}

TEST_F(PreflightServerTest, SlotIsHeldBeforeARowThatHasNoBinaryForm) {
  MakeAll();
  Sql("ALTER TABLE outbox.events ADD COLUMN rights aclitem[]; INSERT INTO outbox.events (rights) "
      "VALUES (ARRAY['postgres=r/postgres'::aclitem])");
  const auto held = SlotHold::Take(Options());
  ASSERT_TRUE(held.ok()) << held.status();
  ExpectInUseFor(std::chrono::seconds(1));
}

TEST_F(PreflightServerTest, HoldThatTheServerHasEndedIsNone) {
  MakeAll();
  const auto held = SlotHold::Take(Options());
  ASSERT_TRUE(held.ok()) << held.status();
  auto connection = SqlConnection::Connect(Options().conninfo, "preflight_test");
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_TRUE(held->Check(&*connection).ok());
  while (Sql("SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots WHERE "
             "active") != "0") {
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(held->Check(&*connection)));
}

TEST_F(PreflightServerTest, SlotThatIsHeldIsFreeForNobodyUntilTheEnd) {
  MakeAll();
  const std::string before = Sql("SELECT confirmed_flush_lsn FROM pg_replication_slots");
  Sql("INSERT INTO outbox.events VALUES (1)");
  {
    const auto held = SlotHold::Take(Options());
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_EQ(Rejected(Options()).kind, Kind::kSlotInUse);
    EXPECT_TRUE(absl::IsFailedPrecondition(SlotHold::Take(Options()).status()));
  }
  EXPECT_EQ(Sql("SELECT active FROM pg_replication_slots"), "f");
  EXPECT_EQ(Sql("SELECT confirmed_flush_lsn FROM pg_replication_slots"), before);
}

TEST_F(PreflightServerTest, GuardsReasonEndsTheAttemptBeforeTheSlotIsTaken) {
  MakeAll();
  auto outcome = Connect(Options(), base::Lsn(), [this](base::SourceFacts*) {
    EXPECT_EQ(Sql("SELECT active FROM pg_replication_slots WHERE slot_name = '" + slot_ + "'"),
              "f");
    StreamEnd end;
    end.kind = StreamEnd::Kind::kOperator;
    end.reason = HaltReason::kSlotMoved;
    return std::optional(end);
  });
  ASSERT_TRUE(std::holds_alternative<StreamEnd>(outcome));
  EXPECT_EQ(std::get<StreamEnd>(outcome).reason, HaltReason::kSlotMoved);
}

TEST_F(PreflightServerTest, PositionWhereTheSlotBeganIsRead) {
  MakeAll();
  Sql(kPipelineTable);
  Sql("INSERT INTO walpost.pipeline (name, slot, system_identifier, consistent_point) "
      "SELECT 'shop', '" +
      slot_ + "', system_identifier, '0/ABC' FROM pg_control_system()");
  auto outcome = Connect(Options(), base::Lsn());
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome));
  EXPECT_EQ(std::get<Connected>(outcome).facts.consistent_point, base::Lsn(0xabc));
}

TEST_F(PreflightServerTest, WalSenderTimeoutOfTheUsersOptionsIsSeen) {
  MakeAll();
  ConnectOptions options = Options();
  options.conninfo += " options='-c wal_sender_timeout=7s'";
  auto outcome = Connect(options, base::Lsn());
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome));
  EXPECT_EQ(std::get<Connected>(outcome).facts.wal_sender_timeout_ms, 7000);
}

// The server was killed in just that moment: libpq does not even know its version any more.
TEST_F(PreflightServerTest, ConnectionThatIsGoneAtOnceIsTriedAgain) {
  MakeAll();
  const ConnectOptions options = Options();
  auto opened = Connection::Open({options.conninfo, "gone_at_once", /*replication=*/true});
  ASSERT_TRUE(std::holds_alternative<Connection>(opened));
  auto& connection = std::get<Connection>(opened);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  Sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
      "'gone_at_once'");
  while (connection.Query("SELECT 1", deadline).ok()) {
  }
  const PreflightReport report =
      RunPreflight(&connection, options, PreflightMode::kStopAtFirst, deadline);
  ASSERT_NE(report.problem(), nullptr);
  EXPECT_EQ(report.problem()->kind, Kind::kLost) << report.problem()->status;
}

TEST_F(PreflightServerTest, MissingSlotNamesInit) {
  MakePublication();
  const StreamEnd end = Rejected(Options());
  ExpectHalt(end, HaltReason::kSlotMissing, "run `walpost init`");
  EXPECT_THAT(std::string(end.status.message()), HasSubstr("\"" + slot_ + "\""));
}

TEST_F(PreflightServerTest, MissingSlotWithHistoryNamesTheRunbook) {
  MakePublication();
  Sql(kPipelineTable);
  Sql("INSERT INTO walpost.pipeline (name, slot, system_identifier, consistent_point) "
      "SELECT 'shop', '" +
      slot_ + "', system_identifier, '0/ABC' FROM pg_control_system()");
  const StreamEnd end = Rejected(Options());
  ExpectHalt(end, HaltReason::kSlotMissing, "docs/runbook.md, slot_missing");
  EXPECT_THAT(std::string(end.status.message()),
              AllOf(HasSubstr("0/ABC"), HasSubstr("\"shop\""), Not(HasSubstr("`walpost init`"))));
}

// Failure 10.
TEST_F(PreflightServerTest, PhysicalSlotIsForeign) {
  MakePublication();
  Sql("SELECT pg_create_physical_replication_slot('" + slot_ + "')");
  ExpectHalt(Rejected(Options()), HaltReason::kSlotForeign, "physical");
}

// Failure 10.
TEST_F(PreflightServerTest, SlotThatDecodesPreparedTransactionsIsForeign) {
  if (server_->Major() < 14) {
    return;
  }
  MakePublication();
  Sql("SELECT pg_create_logical_replication_slot('" + slot_ + "', 'pgoutput', false, true)");
  ExpectHalt(Rejected(Options()), HaltReason::kSlotForeign, "two_phase");
}

// Failure 10.
TEST_F(PreflightServerTest, SlotOfAnotherPluginIsForeign) {
  MakePublication();
  Sql("SELECT pg_create_logical_replication_slot('" + slot_ + "', 'test_decoding')");
  ExpectHalt(Rejected(Options()), HaltReason::kSlotForeign, "test_decoding");
}

// Failure 10.
TEST_F(PreflightServerTest, SlotOfAnotherDatabaseIsForeign) {
  MakePublication();
  server_->Sql("SELECT pg_create_logical_replication_slot('" + slot_ + "', 'pgoutput')");
  ExpectHalt(Rejected(Options()), HaltReason::kSlotForeign, "database \"postgres\"");
}

// Failure 11.
TEST_F(PreflightServerTest, SlotInUseNamesThePid) {
  MakeAll();
  auto first = Connect(Options(), base::Lsn());
  ASSERT_TRUE(std::holds_alternative<Connected>(first));
  const StreamEnd end = Rejected(Options());
  EXPECT_EQ(end.kind, Kind::kSlotInUse);
  EXPECT_EQ(end.sqlstate, "55006");
  EXPECT_THAT(std::string(end.status.message()),
              HasSubstr("PID " + Sql("SELECT active_pid FROM pg_replication_slots WHERE slot_name "
                                     "= '" +
                                     slot_ + "'")));
}

// Failure 22.
TEST_F(PreflightServerTest, RecordOfAnotherClusterIsClusterChanged) {
  MakeAll();
  Sql(kPipelineTable);
  Sql("INSERT INTO walpost.pipeline (name, slot, system_identifier) VALUES ('shop', '" + slot_ +
      "', 42)");
  ExpectHalt(Rejected(Options()), HaltReason::kClusterChanged, "42");
}

TEST_F(PreflightServerTest, RecordThatIsNotBackfilledIsInitIncomplete) {
  MakeAll();
  Sql(kPipelineTable);
  Sql("INSERT INTO walpost.pipeline (name, slot, system_identifier, backfilled) SELECT 'shop', '" +
      slot_ + "', system_identifier, false FROM pg_control_system()");
  ExpectHalt(Rejected(Options()), HaltReason::kInitIncomplete, "backfilled = false");
}

TEST_F(PreflightServerTest, RecordedPrefixThatIsNotConfiguredIsInitIncomplete) {
  MakeAll();
  Sql(kPipelineTable);
  Sql("INSERT INTO walpost.pipeline (name, slot, system_identifier, prefixes) SELECT 'shop', '" +
      slot_ + "', system_identifier, '{shop,o''brien,billing}' FROM pg_control_system()");
  ConnectOptions options = Options();
  ExpectHalt(Rejected(options), HaltReason::kInitIncomplete, "'shop', 'o''brien', 'billing'");
  options.message_prefixes = {"billing", "o'brien"};
  if (server_->Major() < 14) {
    ExpectHalt(Rejected(options), HaltReason::kSchemaMismatch, "need PostgreSQL 14 or newer");
    return;
  }
  const StreamEnd end = Rejected(options);
  ExpectHalt(end, HaltReason::kInitIncomplete, "message prefix 'shop' for pipeline \"shop\"");
  EXPECT_THAT(std::string(end.status.message()),
              AllOf(HasSubstr("messages.prefixes"), HasSubstr("walpost init --with-messages")));
  options.message_prefixes = {"new", "billing", "o'brien", "shop"};
  auto outcome = Connect(options, base::Lsn());
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome));
  EXPECT_EQ(std::get<Connected>(outcome).facts.message_prefixes, options.message_prefixes);
}

TEST_F(PreflightServerTest, RecordOfAnotherSlotSaysNothing) {
  MakeAll();
  Sql(kPipelineTable);
  Sql("INSERT INTO walpost.pipeline (name, slot, system_identifier) VALUES ('x', 'other', 42)");
  EXPECT_TRUE(std::holds_alternative<Connected>(Connect(Options(), base::Lsn())));
}

TEST_F(PreflightServerTest, RecordTableOfAnotherLayoutIsIgnored) {
  MakeAll();
  Sql("CREATE SCHEMA walpost; CREATE TABLE walpost.pipeline (unrelated int)");
  EXPECT_TRUE(std::holds_alternative<Connected>(Connect(Options(), base::Lsn())));
}

// What it guards is not known: whether all is backfilled, the cluster, the prefixes.
TEST_F(PreflightServerTest, RecordThatIsLockedIsTriedAgain) {
  MakeAll();
  Sql(kPipelineTable);
  auto other = Connection::Open({server_->Conninfo(database_), "another", false});
  ASSERT_TRUE(std::holds_alternative<Connection>(other));
  const Deadline soon = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Connection& holder = std::get<Connection>(other);
  ASSERT_TRUE(holder.Query("BEGIN", soon).ok());
  ASSERT_TRUE(holder.Query("LOCK TABLE walpost.pipeline IN ACCESS EXCLUSIVE MODE", soon).ok());
  ConnectOptions options = Options();
  options.lock_timeout = std::chrono::milliseconds(100);
  for (const std::string& slot : {slot_, std::string("no_such_slot")}) {
    options.slot = slot;
    const StreamEnd end = Rejected(options);
    EXPECT_EQ(end.kind, Kind::kLost) << end.status;
    EXPECT_EQ(end.sqlstate, sqlstate::kLockNotAvailable) << end.status;
    EXPECT_THAT(std::string(end.status.message()), HasSubstr("walpost.pipeline"));
  }
  const auto checked = CheckSource(options);
  ASSERT_TRUE(std::holds_alternative<PreflightReport>(checked));
  for (const PreflightStep& step : std::get<PreflightReport>(checked).steps) {
    EXPECT_EQ(step.problem.has_value(), step.name == "slot" || step.name == "record") << step.name;
  }
}

// Failure 14.
TEST_F(PreflightServerTest, RecordThatMayNotBeReadNamesTheRights) {
  MakeAll();
  Sql(kPipelineTable);
  Sql(kDeadLetterTable);
  server_->Sql("CREATE ROLE only_replication LOGIN REPLICATION");
  ConnectOptions options = Options();
  options.conninfo = server_->Conninfo(database_, "user=only_replication");
  for (const char* const grant : {"GRANT USAGE ON SCHEMA walpost TO \"only_replication\"",
                                  "GRANT SELECT ON walpost.pipeline TO \"only_replication\"",
                                  "GRANT SELECT ON walpost.dead_letters TO \"only_replication\""}) {
    const StreamEnd end = Rejected(options);
    ExpectHalt(end, HaltReason::kAuthFailed, grant);
    EXPECT_EQ(end.sqlstate, sqlstate::kInsufficientPrivilege);
    Sql(grant);
  }
  EXPECT_TRUE(std::holds_alternative<Connected>(Connect(options, base::Lsn())));
  WaitUntilFree();
  Sql("DROP SCHEMA walpost CASCADE");
  server_->Sql("DROP ROLE only_replication");
  EXPECT_THAT(server_->Log(), Not(HasSubstr("permission denied for")));
}

TEST_F(PreflightServerTest, ClosedDeadLetterCountsWhereItsEventComesAgain) {
  MakeAll();
  Sql(absl::StrFormat("CREATE SCHEMA walpost; %s", kDeadLetterTable));
  ConnectOptions options = Options();
  options.pipeline = "orders";
  const auto may_have = [&](const char* decision, const char* commit_lsn) {
    Sql(
        absl::StrFormat("TRUNCATE walpost.dead_letters; INSERT INTO walpost.dead_letters SELECT "
                        "'orders', lpad(to_hex(system_identifier), 16, '0') || "
                        "'-00000001-%s-00000000', now(), "
                        "system_identifier, '%s' FROM pg_control_system()",
                        commit_lsn, decision));
    const auto outcome = Connect(options, base::Lsn());
    return std::holds_alternative<Connected>(outcome) &&
           std::get<Connected>(outcome).facts.may_have_dead_letters;
  };
  EXPECT_TRUE(may_have("discard", "00ffffffffffffff"));
  WaitUntilFree();
  EXPECT_FALSE(may_have("discard", "0000000000000001"));
  WaitUntilFree();
  EXPECT_TRUE(may_have("retry", "0000000000000001")) << "it was sent, and goes";
  WaitUntilFree();
  Sql("DROP SCHEMA walpost CASCADE");
}

TEST_F(PreflightServerTest, RelayThatMayNotCountDeadLettersIsRejectedBeforeTheFirst) {
  MakeAll();
  Sql(
      absl::StrFormat("CREATE SCHEMA walpost; %s; CREATE TABLE walpost.dead_letter_count (pipeline "
                      "text)",
                      kDeadLetterTable));
  server_->Sql("CREATE ROLE relay LOGIN REPLICATION");
  Sql("GRANT USAGE ON SCHEMA walpost TO relay");
  Sql("GRANT SELECT, INSERT, UPDATE, DELETE ON walpost.dead_letters TO relay");
  ConnectOptions options = Options();
  options.conninfo = server_->Conninfo(database_, "user=relay");
  options.writes_dead_letters = true;
  ExpectHalt(Rejected(options), HaltReason::kDeadLetterFailed, "walpost.dead_letter_count");
  Sql("GRANT SELECT, INSERT, UPDATE ON walpost.dead_letter_count TO relay");
  EXPECT_TRUE(std::holds_alternative<Connected>(Connect(options, base::Lsn())));
  WaitUntilFree();
  Sql("DROP SCHEMA walpost CASCADE");
  server_->Sql("DROP ROLE relay");
}

// Failure 30.
TEST_F(PreflightServerTest, ApplicationNameInSynchronousStandbyNamesIsRejected) {
  MakeAll();
  // Asynchronous here, or this very session would wait for the standby.
  Sql("ALTER SYSTEM SET synchronous_commit = off");
  Sql("ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (walpost)'");
  Sql("SELECT pg_reload_conf()");
  const StreamEnd end = Rejected(Options());
  ConnectOptions renamed = Options();
  renamed.conninfo += " application_name=outbox_relay";
  auto outcome = Connect(renamed, base::Lsn());
  Sql("ALTER SYSTEM RESET ALL");
  Sql("SELECT pg_reload_conf()");
  ExpectHalt(end, HaltReason::kInitIncomplete, "synchronous_standby_names");
  EXPECT_TRUE(std::holds_alternative<Connected>(outcome)) << "the user's application_name wins";
}

TEST_F(PreflightServerTest, CheckShowsEveryProblemAndGoesOnWhileTheSlotIsInUse) {
  MakeAll();
  auto running = Connect(Options(), base::Lsn());
  ASSERT_TRUE(std::holds_alternative<Connected>(running));
  Sql("ALTER PUBLICATION walpost SET (publish = 'update')");
  auto outcome = CheckSource(Options());
  ASSERT_TRUE(std::holds_alternative<PreflightReport>(outcome));
  const PreflightReport& report = std::get<PreflightReport>(outcome);
  std::string failed;
  for (const PreflightStep& step : report.steps) {
    failed += step.problem.has_value() ? step.name + " " : "";
  }
  EXPECT_EQ(failed, "slot_free publication ");
  EXPECT_EQ(report.steps.back().name, "dead_letters");
  ASSERT_NE(report.problem(), nullptr);
  EXPECT_EQ(report.problem()->kind, Kind::kSlotInUse);
}

// Failure 40.
TEST_F(PreflightServerTest, WidePublicationIsOnlyAWarning) {
  Sql("CREATE PUBLICATION walpost FOR ALL TABLES");
  MakeSlot();
  auto outcome = CheckSource(Options());
  ASSERT_TRUE(std::holds_alternative<PreflightReport>(outcome));
  const PreflightReport& report = std::get<PreflightReport>(outcome);
  EXPECT_EQ(report.problem(), nullptr);
  EXPECT_THAT(report.warnings, Contains(HasSubstr("FOR ALL TABLES")));
  EXPECT_THAT(report.warnings, Contains(HasSubstr("more than inserts")));
}

// Failure 13.
TEST(PreflightOtherServerTest, WalLevelReplicaIsSlotMissingThatNamesWalLevel) {
  const PostgresServer server(PostgresServerOptions{{"wal_level=replica"}, {}, {}});
  ConnectOptions options;
  options.conninfo = server.Conninfo();
  auto outcome = Connect(options, base::Lsn());
  ASSERT_TRUE(std::holds_alternative<StreamEnd>(outcome));
  const StreamEnd& end = std::get<StreamEnd>(outcome);
  EXPECT_EQ(end.reason, HaltReason::kSlotMissing);
  EXPECT_THAT(std::string(end.status.message()),
              AllOf(HasSubstr("wal_level"), HasSubstr("restart PostgreSQL")));
}

// Failures 8, 28.
TEST(PreflightOtherServerTest, LostSlotIsInvalidatedAndItsLimitAWarning) {
  const PostgresServer server(PostgresServerOptions{
      {"max_slot_wal_keep_size=1MB", "min_wal_size=32MB", "max_wal_size=32MB"},
      {},
      {"--wal-segsize=1"}});
  server.Sql("CREATE TABLE t (id int); CREATE PUBLICATION walpost FOR TABLE t");
  server.Sql("SELECT pg_create_logical_replication_slot('walpost', 'pgoutput')");
  for (int i = 0; i < 6; ++i) {
    server.Sql("INSERT INTO t VALUES (1)");
    server.Sql("SELECT pg_switch_wal()");
  }
  server.Sql("CHECKPOINT");
  ASSERT_EQ(server.Sql("SELECT wal_status FROM pg_replication_slots"), "lost");
  ConnectOptions options;
  options.conninfo = server.Conninfo();
  auto outcome = CheckSource(options);
  ASSERT_TRUE(std::holds_alternative<PreflightReport>(outcome));
  const PreflightReport& report = std::get<PreflightReport>(outcome);
  ASSERT_NE(report.problem(), nullptr);
  EXPECT_EQ(report.problem()->kind, Kind::kOperator);
  EXPECT_EQ(report.problem()->reason, HaltReason::kSlotInvalidated);
  EXPECT_THAT(std::string(report.problem()->status.message()),
              AllOf(HasSubstr("docs/runbook.md, slot_invalidated"),
                    HasSubstr(report.facts.server_version >= 170000
                                  ? "(wal_removed)"
                                  : "(wal_status lost, see max_slot_wal_keep_size)")));
  EXPECT_THAT(report.warnings, Contains(HasSubstr("max_slot_wal_keep_size is 1MB")));
}

// Failure 28.
TEST(PreflightOtherServerTest, IdleSlotIsInvalidatedFrom18AndItsLimitAWarning) {
  const PostgresServer server;
  server.Sql("CREATE TABLE t (id int); CREATE PUBLICATION walpost FOR TABLE t");
  server.Sql("SELECT pg_create_logical_replication_slot('walpost', 'pgoutput')");
  const bool limited = server.Major() >= 18;
  if (limited) {
    server.Sql("ALTER SYSTEM SET idle_replication_slot_timeout = '1s'");
    server.Sql("SELECT pg_reload_conf()");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (server.Sql("SELECT invalidation_reason FROM pg_replication_slots").empty()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      server.Sql("INSERT INTO t VALUES (1)");
      server.Sql("CHECKPOINT");
    }
  }
  ConnectOptions options;
  options.conninfo = server.Conninfo();
  auto outcome = CheckSource(options);
  ASSERT_TRUE(std::holds_alternative<PreflightReport>(outcome));
  const PreflightReport& report = std::get<PreflightReport>(outcome);
  const auto warning = Contains(HasSubstr("idle_replication_slot_timeout is 1s"));
  if (limited) {
    EXPECT_THAT(report.warnings, warning);
    ASSERT_NE(report.problem(), nullptr);
    EXPECT_EQ(report.problem()->reason, HaltReason::kSlotInvalidated);
    EXPECT_THAT(std::string(report.problem()->status.message()), HasSubstr("(idle_timeout)"));
  } else {
    EXPECT_THAT(report.warnings, Not(warning));
    EXPECT_EQ(report.problem(), nullptr);
  }
}

}  // namespace
}  // namespace walpost::postgres
