// What the verbs do on a server that lacks something, and that they do it nowhere else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "operations/emit.h"
#include "operations/setup/init.h"
#include "operations/status/check.h"
#include "outbox/options.h"
#include "postgres/connect.h"
#include "postgres/sql_connection.h"
#include "unit/operations/server_fixture.h"

namespace walpost::operations {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class OldServerTest : public ServerFixture {
 protected:
  InitOptions WithMessages() const {
    InitOptions options = Options();
    options.with_messages = true;
    options.source.message_prefixes = {"shop"};
    return options;
  }

  static bool HasMessages() { return Server().Major() >= 14; }
};

// Failure 56.
TEST_F(OldServerTest, InitOfMessagesIsRejectedBefore14AndMakesNothing) {
  const std::string before = State();
  const Outcome outcome = Init(WithMessages());
  if (HasMessages()) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    return;
  }
  EXPECT_EQ(outcome.exit_code, 78);
  EXPECT_THAT(outcome.error, HasSubstr("logical messages need PostgreSQL 14 or newer"));
  EXPECT_EQ(State(), before);
}

// Failure 56.
TEST_F(OldServerTest, StreamAndCheckRejectMessagesBefore14) {
  InitOk();
  auto outcome = postgres::Connect(WithMessages().source, base::Lsn());
  CheckOptions options;
  options.name = "shop";
  options.source = WithMessages().source;
  options.tables = {*outbox::PresetOptions("walpost")};
  options.kafka.properties = {{"test.mock.num.brokers", "1"}};
  const std::string output = Check(options).output;
  if (HasMessages()) {
    EXPECT_TRUE(std::holds_alternative<postgres::Connected>(outcome));
    EXPECT_THAT(output, Not(HasSubstr("need PostgreSQL 14")));
    outcome = postgres::StreamEnd();
    AwaitFreeSlots();
    return;
  }
  ASSERT_TRUE(std::holds_alternative<postgres::StreamEnd>(outcome));
  const auto& end = std::get<postgres::StreamEnd>(outcome);
  EXPECT_EQ(end.kind, postgres::StreamEnd::Kind::kOperator);
  EXPECT_EQ(end.reason, base::HaltReason::kSchemaMismatch);
  const auto way_out = AllOf(HasSubstr("need PostgreSQL 14 or newer"), HasSubstr("has 13"),
                             HasSubstr("remove messages.prefixes"));
  EXPECT_THAT(std::string(end.status.message()), way_out);
  EXPECT_THAT(output, way_out);
}

// Set up by a migration tool, which does not know walpost: the functions themselves reject.
TEST_F(OldServerTest, EmittedMessagesAreRejectedBefore14) {
  InitOptions print = WithMessages();
  print.print_sql = true;
  const std::string command = "psql -X -q -v ON_ERROR_STOP=1 '" + Conninfo() + "' >/dev/null";
  FILE* const psql = popen(command.c_str(), "w");
  ASSERT_NE(psql, nullptr);
  const std::string sql = Init(print).output;
  std::fwrite(sql.data(), 1, sql.size(), psql);
  ASSERT_EQ(pclose(psql), 0);
  const auto rejected =
      AllOf(HasSubstr("needs PostgreSQL 14 or newer"), HasSubstr("Insert into an outbox table"));

  auto connection = postgres::SqlConnection::Connect(Conninfo(), "writer");
  ASSERT_TRUE(connection.ok()) << connection.status();
  const std::string by_sql(
      connection->Query("SELECT outbox.emit_message('t', 'a', '1', 'x')").status().message());
  EmitOptions options;
  options.source = WithMessages().source;
  options.message = true;
  const Outcome by_verb = operations::Emit(options);
  if (HasMessages()) {
    EXPECT_EQ(by_sql, "");
    EXPECT_EQ(by_verb.exit_code, 0) << by_verb.error;
    return;
  }
  EXPECT_THAT(by_sql, rejected);
  EXPECT_THAT(by_verb.error, HasSubstr("needs PostgreSQL 14 or newer"));
}

}  // namespace
}  // namespace walpost::operations
