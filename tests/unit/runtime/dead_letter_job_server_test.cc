#include "runtime/dead_letter_job.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "support/postgres_server.h"

namespace walpost::runtime {
namespace {

using base::DeadLetter;
using pipeline::DeadLetterReply;
using pipeline::DeadLetterRequest;
using Kind = DeadLetterRequest::Kind;

class DeadLetterJobServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(WALPOST_SOURCE_DIR "/sql/V1__walpost.up.sql");
    const std::string script{std::istreambuf_iterator<char>(file), {}};
    auto connection = postgres::SqlConnection::Connect(server_.Conninfo(), "test");
    ASSERT_TRUE(connection.ok()) << connection.status();
    ASSERT_TRUE(connection->Execute(script).ok());
    place_.conninfo = server_.Conninfo();
    place_.application_name = "test";
    place_.pipeline = "orders";
  }

  DeadLetterReply Run(const DeadLetterRequest& request) {
    DeadLetterReply reply = job_.Run(place_, request);
    EXPECT_TRUE(reply.status.ok()) << reply.status;
    return reply;
  }

  void Write(const std::string& position) {
    DeadLetter row;
    row.position = position;
    row.event_id = "id-" + position;
    row.topic = "orders";
    row.reason = "record_too_large";
    Run({.kind = Kind::kInsert, .rows = {row}});
  }

  walpost::testing::PostgresServer server_;
  DeadLetterStore place_;
  DeadLetterJob job_;
};

// The database closes it at once, and Kafka has the record all the same.
TEST_F(DeadLetterJobServerTest, RowThatIsDiscardedWhileItIsSentLeavesTheOthersOpen) {
  Write("p1");
  Write("p2");
  Write("p3");
  server_.Sql("UPDATE walpost.dead_letters SET decision = 'discard' WHERE seq = 1");
  EXPECT_EQ(Run({.kind = Kind::kDecision}).open_rows, 2U);
  EXPECT_EQ(Run({.kind = Kind::kDelivered, .seq = 1}).open_rows, 2U);
  EXPECT_EQ(Run({.kind = Kind::kDelivered, .seq = 2}).open_rows, 1U);
  EXPECT_EQ(server_.Sql("SELECT string_agg(seq::text, ',') FROM walpost.dead_letters"), "3");
}

TEST_F(DeadLetterJobServerTest, RowThatAVerbWroteMeanwhileIsSeenBeforeNoneIsLeft) {
  Write("p1");
  server_.Sql(
      "INSERT INTO walpost.dead_letters (pipeline, position, event_id, event_type, source, topic, "
      "event_time_ms, header_names, header_values, value_schema, reason, detail, attempts, parked, "
      "system_identifier) SELECT pipeline, '', 'other', event_type, source, topic, event_time_ms, "
      "header_names, header_values, value_schema, reason, detail, attempts, parked, "
      "system_identifier FROM walpost.dead_letters");
  EXPECT_EQ(Run({.kind = Kind::kDelivered, .seq = 1}).open_rows, 1U);
}

// Of one statement and of a transaction.
TEST_F(DeadLetterJobServerTest, RowThatSomebodyHoldsIsTriedAgain) {
  for (const char* position : {"p1", "p2"}) {
    DeadLetter row;
    row.position = position;
    row.topic = "orders";
    row.key = "k";
    row.reason = "record_too_large";
    row.parked = true;
    Run({.kind = Kind::kInsert, .rows = {row}});
  }
  server_.Sql("UPDATE walpost.dead_letters SET decision = 'discard', of_key = true WHERE seq = 1");
  auto holder = postgres::SqlConnection::Connect(server_.Conninfo(), "holder");
  ASSERT_TRUE(
      holder->Execute("BEGIN; SELECT * FROM walpost.dead_letters WHERE seq = 2 FOR UPDATE").ok());
  for (const Kind kind : {Kind::kDelivered, Kind::kKeyDiscarded}) {
    const DeadLetterReply reply =
        job_.Run(place_, {.kind = kind, .seq = 2, .topic = "orders", .key = "k"});
    EXPECT_EQ(reply.status.code(), absl::StatusCode::kUnavailable) << reply.status;
  }
}

// No confirmation would pass a dead letter that cannot be written.
TEST_F(DeadLetterJobServerTest, DatabaseWhoseTransactionsOnlyReadByDefaultIsWrittenAllTheSame) {
  server_.Sql("ALTER DATABASE postgres SET default_transaction_read_only = on");
  Write("p1");
  EXPECT_EQ(Run({.kind = Kind::kLoad}).open_rows, 1U);
}

// As a VACUUM FULL does, which may take hours.
TEST_F(DeadLetterJobServerTest, TableThatSomebodyHoldsBeforeTheFirstQuestionIsTriedAgain) {
  auto holder = postgres::SqlConnection::Connect(server_.Conninfo(), "holder");
  ASSERT_TRUE(
      holder->Execute("BEGIN; LOCK TABLE walpost.dead_letters IN ACCESS EXCLUSIVE MODE").ok());
  const DeadLetterReply reply = job_.Run(place_, {.kind = Kind::kLoad});
  EXPECT_EQ(reply.status.code(), absl::StatusCode::kUnavailable) << reply.status;
}

}  // namespace
}  // namespace walpost::runtime
