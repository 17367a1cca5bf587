// PreflightServerTest - a real server, with a database, a slot's name and an outbox for each test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <variant>

#include "postgres/connect.h"
#include "support/postgres_server.h"

namespace walpost::postgres {

inline constexpr char kDeadLetterTable[] =
    "CREATE TABLE walpost.dead_letters (pipeline text, position text, closed_at timestamptz, "
    "system_identifier bigint, decision text, send_to text)";
inline constexpr char kPipelineTable[] =
    "CREATE SCHEMA walpost; CREATE TABLE walpost.pipeline (name text PRIMARY KEY, slot text, "
    "publication text, system_identifier numeric, consistent_point pg_lsn, snapshot text, "
    "backfilled boolean, prefixes text[], created_at timestamptz DEFAULT now(), "
    "delivered_lsn pg_lsn)";

// A database of its own for each test, on one server.
class PreflightServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<walpost::testing::PostgresServer>(); }

  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override {
    static int count = 0;
    database_ = "d" + std::to_string(++count);
    slot_ = "s" + std::to_string(count);
    server_->Sql("CREATE DATABASE " + database_);
    Sql("CREATE SCHEMA outbox; CREATE TABLE outbox.events (id int)");
  }

  void TearDown() override {
    server_->Sql(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
        "WHERE NOT active");
  }

  std::string Sql(const std::string& statement) { return server_->Sql(statement, database_); }

  void MakePublication() {
    Sql("CREATE PUBLICATION walpost FOR TABLE outbox.events WITH (publish = 'insert')");
  }

  void MakeSlot() { Sql("SELECT pg_create_logical_replication_slot('" + slot_ + "', 'pgoutput')"); }

  // The server takes the slot for used a moment longer than the connection lives.
  void WaitUntilFree() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (Sql("SELECT active FROM pg_replication_slots WHERE slot_name = '" + slot_ + "'") !=
           "f") {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    }
  }

  void ExpectInUseFor(std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < until && !HasFailure()) {
      EXPECT_EQ(Sql("SELECT active FROM pg_replication_slots WHERE slot_name = '" + slot_ + "'"),
                "t");
    }
  }

  void MakeAll() {
    MakePublication();
    MakeSlot();
  }

  ConnectOptions Options() const {
    ConnectOptions options;
    options.conninfo = server_->Conninfo(database_);
    options.slot = slot_;
    options.tables = {{"outbox", "events"}};
    return options;
  }

  StreamEnd Rejected(const ConnectOptions& options) {
    auto outcome = Connect(options, base::Lsn());
    if (std::holds_alternative<Connected>(outcome)) {
      ADD_FAILURE() << "connected";
      return StreamEnd();
    }
    return std::get<StreamEnd>(outcome);
  }

  void ExpectHalt(const StreamEnd& end, base::HaltReason reason, const std::string& part) {
    EXPECT_EQ(end.kind, StreamEnd::Kind::kOperator) << end.status;
    EXPECT_EQ(base::HaltReasonName(end.reason), base::HaltReasonName(reason)) << end.status;
    const std::string text(end.status.message());
    EXPECT_THAT(text, ::testing::HasSubstr(part));
    EXPECT_THAT(text, ::testing::HasSubstr(database_)) << "says where";
    EXPECT_THAT(text, ::testing::HasSubstr("127.0.0.1")) << "says where";
    EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("\n")));
  }

  inline static std::unique_ptr<walpost::testing::PostgresServer> server_;
  std::string database_;
  std::string slot_;
};

}  // namespace walpost::postgres
