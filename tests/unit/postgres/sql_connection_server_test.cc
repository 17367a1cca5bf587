#include "postgres/sql_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "postgres/connection.h"
#include "support/postgres_server.h"

namespace walpost::postgres {
namespace {

using ::testing::HasSubstr;
using walpost::testing::PostgresServer;

class SqlConnectionServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<PostgresServer>(); }

  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override {
    auto connected = SqlConnection::Connect(server_->Conninfo(), "sql_test");
    ASSERT_TRUE(connected.ok()) << connected.status();
    connection_.emplace(*std::move(connected));
  }

  static std::unique_ptr<PostgresServer> server_;
  std::optional<SqlConnection> connection_;
};

std::unique_ptr<PostgresServer> SqlConnectionServerTest::server_;

TEST_F(SqlConnectionServerTest, ParametersAndNullsTravelAsText) {
  const auto rows =
      connection_->Query("SELECT $1::int + 1, $2::text, $3::text", {"41", std::nullopt, "it's"});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(*rows, (std::vector<Row>{{"42", std::nullopt, "it's"}}));
}

// Of a dead letter nothing else is left: its row must survive a crash from when it can be seen.
TEST_F(SqlConnectionServerTest, WhatIsCommittedSurvivesACrashWhateverTheDatabaseSays) {
  server_->Sql("CREATE DATABASE careless");
  server_->Sql("ALTER DATABASE careless SET synchronous_commit = off");
  auto careless = SqlConnection::Connect(server_->Conninfo("careless"), "sql_test");
  ASSERT_TRUE(careless.ok()) << careless.status();
  const auto rows = careless->Query("SHOW synchronous_commit");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)[0][0], "on");
}

TEST_F(SqlConnectionServerTest, TransactionOfAProcessThatIsSuspendedEnds) {
  const std::string timeout = "SHOW idle_in_transaction_session_timeout";
  ASSERT_TRUE(connection_->BeginTransaction().ok());
  EXPECT_EQ(connection_->Query(timeout)->at(0).at(0), "10s");
  ASSERT_TRUE(connection_->EndTransaction(absl::OkStatus()).ok());
  EXPECT_EQ(connection_->Query(timeout)->at(0).at(0), "0");
}

// They are meant for the database's own sessions. One of ours may wait for Kafka longer.
TEST_F(SqlConnectionServerTest, TimeoutsOfTheDatabaseDoNotEndASession) {
  server_->Sql("CREATE DATABASE impatient");
  std::vector<std::string> names = {"statement_timeout", "idle_in_transaction_session_timeout"};
  for (const SessionTimeout& timeout : kSessionTimeouts) {
    if (connection_->server_version() >= timeout.since) {
      names.emplace_back(timeout.name);
    }
  }
  for (const std::string& name : names) {
    server_->Sql("ALTER DATABASE impatient SET " + name + " = '5s'");
  }
  auto impatient = SqlConnection::Connect(server_->Conninfo("impatient"), "sql_test");
  ASSERT_TRUE(impatient.ok()) << impatient.status();
  for (const std::string& name : names) {
    const auto rows = impatient->Query("SHOW " + name);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ((*rows)[0][0], "0") << name;
  }
}

TEST_F(SqlConnectionServerTest, QuotedTextComesBackUnchanged) {
  const std::string text = "a'b\\c\"d";
  const auto rows =
      connection_->Query("SELECT " + QuoteLiteral(text) + " AS " + QuoteIdentifier(text));
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ((*rows)[0][0], text);
}

TEST_F(SqlConnectionServerTest, ScriptIsOneTransaction) {
  EXPECT_FALSE(connection_->Execute("CREATE TABLE public.half (id int); SELECT 1/0").ok());
  EXPECT_EQ(connection_->last_sqlstate(), "22012");
  EXPECT_FALSE(connection_->Query("SELECT * FROM public.half").ok());
  EXPECT_EQ(connection_->last_sqlstate(), "42P01");
  EXPECT_TRUE(connection_->Execute("SELECT 1; SELECT 2").ok());
  EXPECT_EQ(connection_->last_sqlstate(), "");
}

TEST_F(SqlConnectionServerTest, ErrorsCarryTheSqlstateAndTheServersWords) {
  const auto rows = connection_->Query("SELECT * FROM nowhere");
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(rows.status().message()), HasSubstr("42P01"));
  EXPECT_THAT(std::string(rows.status().message()), HasSubstr("nowhere"));
}

TEST_F(SqlConnectionServerTest, LostConnectionIsUnavailable) {
  server_->Sql(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sql_test'");
  EXPECT_EQ(connection_->Query("SELECT 1").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(SqlConnection::Connect("host=127.0.0.1 port=1", "x").status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(SqlConnectionServerTest, RightsMissingIsPermissionDenied) {
  server_->Sql("CREATE TABLE secret (id int); CREATE ROLE guest LOGIN");
  auto guest = SqlConnection::Connect(server_->Conninfo("postgres", "user=guest"), "x");
  ASSERT_TRUE(guest.ok());
  EXPECT_EQ(guest->Query("SELECT * FROM public.secret").status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(SqlConnectionServerTest, ConnectionSaysWhereItLeads) {
  EXPECT_EQ(connection_->host(), "127.0.0.1:" + std::to_string(server_->port()));
  EXPECT_EQ(connection_->database(), "postgres");
  EXPECT_GE(connection_->server_version(), 130000);
}

}  // namespace
}  // namespace walpost::postgres
