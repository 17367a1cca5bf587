#include "postgres/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libpq-fe.h>
#include <poll.h>

#include <future>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "postgres/connection.h"
#include "support/postgres_server.h"

namespace walpost::postgres {
namespace {

using ::testing::HasSubstr;
using walpost::testing::PostgresServer;
using walpost::testing::PostgresServerOptions;

class SlotsServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<PostgresServer>(
        PostgresServerOptions{{"max_replication_slots=4", "max_prepared_transactions=2"}, {}, {}});
    server_->Sql("CREATE TABLE t (id int)");
  }

  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override {
    auto connected = SqlConnection::Connect(server_->Conninfo(), "slots_test");
    ASSERT_TRUE(connected.ok()) << connected.status();
    connection_.emplace(*std::move(connected));
  }

  void TearDown() override {
    server_->Sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots");
  }

  static CreateSlotOptions Options(const std::string& slot) {
    CreateSlotOptions options;
    options.conninfo = server_->Conninfo();
    options.slot = slot;
    return options;
  }

  static std::unique_ptr<PostgresServer> server_;
  std::optional<SqlConnection> connection_;
};

std::unique_ptr<PostgresServer> SlotsServerTest::server_;

TEST_F(SlotsServerTest, CreatedSlotIsListedWithItsPosition) {
  const auto created = CreateSlot(Options("walpost"));
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_TRUE(created->consistent_point.valid());
  const auto slots = ListSlots(&*connection_);
  ASSERT_TRUE(slots.ok()) << slots.status();
  ASSERT_EQ(slots->size(), 1u);
  const SlotInfo& slot = slots->front();
  EXPECT_EQ(slot.name, "walpost");
  EXPECT_EQ(slot.plugin, "pgoutput");
  EXPECT_EQ(slot.type, "logical");
  EXPECT_EQ(slot.database, "postgres");
  EXPECT_FALSE(slot.active);
  EXPECT_FALSE(slot.temporary);
  EXPECT_EQ(slot.confirmed_flush_lsn, created->consistent_point);
  EXPECT_TRUE(slot.restart_lsn.valid());
  EXPECT_EQ(slot.wal_status, "reserved");
  EXPECT_TRUE(slot.retained_bytes.has_value());
  EXPECT_FALSE(slot.safe_wal_size.has_value());
}

TEST_F(SlotsServerTest, SnapshotSeesWhatTheStreamWillNotBring) {
  const std::string before = server_->Sql("SELECT pg_current_xact_id()");
  const auto created = CreateSlot(Options("walpost"));
  const std::string after = server_->Sql("SELECT pg_current_xact_id()");
  ASSERT_TRUE(created.ok()) << created.status();
  const std::string visible = "SELECT pg_visible_in_snapshot('%', '" + created->snapshot + "')";
  const auto ask = [&](const std::string& xid) {
    std::string query = visible;
    return server_->Sql(query.replace(query.find('%'), 1, xid));
  };
  EXPECT_EQ(ask(before), "t");
  EXPECT_EQ(ask(after), "f");
}

// The last transaction that the slot waited for was rolled back, and another one is open:
// PostgreSQL's own snapshot then ends before it begins ("763:761:"), which is no pg_snapshot.
TEST_F(SlotsServerTest, SnapshotBehindARolledBackTransactionCanBeReadBack) {
  const auto begun = [](const std::string& name) {
    auto writer = SqlConnection::Connect(server_->Conninfo(), name);
    EXPECT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE(writer->Execute("BEGIN; SELECT pg_current_xact_id()").ok());
    return *std::move(writer);
  };
  const auto await = [](const std::string& condition) {
    while (server_->Sql("SELECT " + condition) != "t") {
    }
  };
  const std::string waits =
      "EXISTS (SELECT FROM pg_locks w JOIN pg_locks h USING (transactionid) JOIN pg_stat_activity "
      "a "
      "ON a.pid = h.pid WHERE NOT w.granted AND h.granted AND a.application_name = ";
  SqlConnection first = begun("first");
  auto created = std::async(std::launch::async, [] { return CreateSlot(Options("walpost")); });
  await(waits + "'first')");
  SqlConnection second = begun("second");
  ASSERT_TRUE(first.Execute("COMMIT").ok());
  await(waits + "'second')");
  const SqlConnection third = begun("third");
  ASSERT_TRUE(second.Execute("ROLLBACK").ok());
  const auto slot = created.get();
  ASSERT_TRUE(slot.ok()) << slot.status();
  EXPECT_EQ(server_->Sql("SELECT pg_visible_in_snapshot('3', '" + slot->snapshot + "')"), "t");
  EXPECT_EQ(
      server_->Sql("SELECT pg_visible_in_snapshot(pg_current_xact_id(), '" + slot->snapshot + "')"),
      "f");
}

TEST_F(SlotsServerTest, ExistingSlotIsAlreadyExists) {
  ASSERT_TRUE(CreateSlot(Options("walpost")).ok());
  EXPECT_EQ(CreateSlot(Options("walpost")).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(SlotsServerTest, NoSlotLeftNamesTheSetting) {
  for (const char* name : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(CreateSlot(Options(name)).ok()) << name;
  }
  const auto created = CreateSlot(Options("walpost"));
  EXPECT_EQ(created.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(created.status().message()), HasSubstr("max_replication_slots"));
}

// Failure 27.
TEST_F(SlotsServerTest, CreationBehindAnOpenTransactionNamesItAndLeavesNothing) {
  auto writer = SqlConnection::Connect(server_->Conninfo(), "slow_writer");
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Execute("BEGIN; INSERT INTO public.t VALUES (1)").ok());
  CreateSlotOptions options = Options("walpost");
  options.timeout = std::chrono::milliseconds(500);
  const auto created = CreateSlot(options);
  EXPECT_EQ(created.status().code(), absl::StatusCode::kDeadlineExceeded);
  const auto pid = writer->Query("SELECT pg_backend_pid()");
  ASSERT_TRUE(pid.ok());
  EXPECT_THAT(std::string(created.status().message()), HasSubstr("PID " + *(*pid)[0][0]));
  EXPECT_THAT(std::string(created.status().message()), HasSubstr("slow_writer"));
  const auto slot = FindSlot(&*connection_, "walpost");
  ASSERT_TRUE(slot.ok());
  EXPECT_FALSE(slot->has_value());
}

// Failure 27.
TEST_F(SlotsServerTest, CreationBehindAPreparedTransactionNamesIt) {
  server_->Sql("BEGIN; INSERT INTO public.t VALUES (1); PREPARE TRANSACTION 'forgotten'");
  CreateSlotOptions options = Options("walpost");
  options.timeout = std::chrono::milliseconds(500);
  const auto created = CreateSlot(options);
  server_->Sql("ROLLBACK PREPARED 'forgotten'");
  EXPECT_THAT(std::string(created.status().message()),
              HasSubstr("prepared transaction 'forgotten'"));
}

TEST_F(SlotsServerTest, TimeoutsOfTheDatabaseDoNotEndTheSnapshot) {
  server_->Sql("CREATE DATABASE impatient");
  for (const SessionTimeout& timeout : kSessionTimeouts) {
    if (connection_->server_version() >= timeout.since) {
      server_->Sql(std::string("ALTER DATABASE impatient SET ") + timeout.name + " = '300ms'");
    }
  }
  CreateSlotOptions options = Options("walpost");
  options.conninfo = server_->Conninfo("impatient");
  options.on_snapshot = [this](const std::string& snapshot) -> absl::Status {
    poll(nullptr, 0, 600);
    ASSIGN_OR_RETURN(SqlConnection reader,
                     SqlConnection::Connect(server_->Conninfo("impatient"), "slots_test"));
    return reader.Execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '" +
                          snapshot + "'");
  };
  const auto created = CreateSlot(options);
  EXPECT_TRUE(created.ok()) << created.status();
}

// A transaction that is open when the new slot is wanted, and one that begins later: the old slot
// stays.
TEST_F(SlotsServerTest, OldSlotStaysUntilTheNewOneIsThere) {
  ASSERT_TRUE(CreateSlot(Options("walpost")).ok());
  const auto old = FindSlot(&*connection_, "walpost");
  ASSERT_TRUE(old.ok() && old->has_value());
  CreateSlotOptions options = Options("walpost");
  options.drop_old = [this] { return DropSlot(&*connection_, "walpost"); };
  options.timeout = std::chrono::milliseconds(500);
  auto writer = SqlConnection::Connect(server_->Conninfo(), "slow_writer");
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Execute("BEGIN; INSERT INTO public.t VALUES (1)").ok());
  const auto late = CreateSlot(options);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("slow_writer"));
  const auto still = FindSlot(&*connection_, "walpost");
  ASSERT_TRUE(still.ok() && still->has_value());
  EXPECT_EQ((*still)->confirmed_flush_lsn, (*old)->confirmed_flush_lsn);
  ASSERT_TRUE(writer->Execute("ROLLBACK").ok());
  const auto created = CreateSlot(options);
  ASSERT_TRUE(created.ok()) << created.status();
  const auto slots = ListSlots(&*connection_);
  ASSERT_TRUE(slots.ok()) << slots.status();
  ASSERT_EQ(slots->size(), 1u) << "that of the time between is gone";
  EXPECT_EQ(slots->front().confirmed_flush_lsn, created->consistent_point);
  EXPECT_GT(created->consistent_point, (*old)->confirmed_flush_lsn);
  EXPECT_FALSE(slots->front().temporary);
}

TEST_F(SlotsServerTest, OldSlotThatCannotBeDroppedLeavesNoNewOne) {
  ASSERT_TRUE(CreateSlot(Options("walpost")).ok());
  CreateSlotOptions options = Options("walpost");
  options.drop_old = [] { return absl::FailedPreconditionError("in use"); };
  EXPECT_EQ(CreateSlot(options).status(), absl::FailedPreconditionError("in use"));
  const auto slots = ListSlots(&*connection_);
  ASSERT_TRUE(slots.ok()) << slots.status();
  EXPECT_EQ(slots->size(), 1u);
}

TEST_F(SlotsServerTest, OldSlotStaysWhereTheRoleMayNotCopyOne) {
  ASSERT_TRUE(CreateSlot(Options("walpost")).ok());
  server_->Sql(
      "CREATE ROLE relay LOGIN REPLICATION; REVOKE EXECUTE ON FUNCTION "
      "pg_copy_logical_replication_slot(name, name, boolean) FROM PUBLIC");
  CreateSlotOptions options = Options("walpost");
  options.conninfo += " user=relay";
  bool dropped = false;
  options.drop_old = [&dropped] {
    dropped = true;
    return absl::OkStatus();
  };
  const auto created = CreateSlot(options);
  EXPECT_EQ(created.status().code(), absl::StatusCode::kPermissionDenied) << created.status();
  EXPECT_THAT(std::string(created.status().message()), HasSubstr("TO \"relay\""));
  EXPECT_FALSE(dropped);
}

TEST_F(SlotsServerTest, SlotWhoseSessionEndsBeforeItsSnapshotIsUsedIsDropped) {
  CreateSlotOptions options = Options("walpost");
  options.on_snapshot = [](const std::string&) {
    server_->Sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = "
        "'walsender'");
    return absl::UnavailableError("too late");
  };
  EXPECT_EQ(CreateSlot(options).status(), absl::UnavailableError("too late"));
  const auto slot = FindSlot(&*connection_, "walpost");
  ASSERT_TRUE(slot.ok());
  EXPECT_FALSE(slot->has_value());
}

TEST_F(SlotsServerTest, DroppedSlotIsGoneAndAMissingOneNotFound) {
  ASSERT_TRUE(CreateSlot(Options("walpost")).ok());
  EXPECT_TRUE(DropSlot(&*connection_, "walpost").ok());
  const auto slot = FindSlot(&*connection_, "walpost");
  ASSERT_TRUE(slot.ok());
  EXPECT_FALSE(slot->has_value());
  EXPECT_EQ(DropSlot(&*connection_, "walpost").code(), absl::StatusCode::kNotFound);
}

TEST_F(SlotsServerTest, NameThatNoSlotCanHaveIsInvalid) {
  for (const std::string& name : {std::string(), std::string("Upper"), std::string("a b"),
                                  std::string("a\"b"), std::string(64, 'a')}) {
    EXPECT_EQ(CreateSlot(Options(name)).status().code(), absl::StatusCode::kInvalidArgument)
        << name;
  }
}

}  // namespace
}  // namespace walpost::postgres
