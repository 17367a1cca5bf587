// `init --print-sql`: for those who let a migration tool or an administrator do it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "operations/setup/init.h"

namespace walpost::operations {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

InitOptions Options() {
  InitOptions options;
  options.name = "shop";
  options.source.conninfo = "host=127.0.0.1 port=1";  // nobody is asked
  options.source.slot = "shop_slot";
  options.source.publication = "shop_pub";
  options.source.tables = {{"outbox", "events"}};
  options.print_sql = true;
  return options;
}

std::string Sql(const InitOptions& options) {
  const Outcome outcome = Init(options);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.error, "");
  return outcome.output;
}

// A publication made after its slot is missing at positions the slot still has to read.
TEST(PrintSqlTest, PublicationStandsBeforeTheSlotAndTheRecordLast) {
  const std::string sql = Sql(Options());
  const std::size_t table = sql.find("CREATE TABLE IF NOT EXISTS outbox.events");
  const std::size_t publication = sql.find("CREATE PUBLICATION \"shop_pub\"");
  const std::size_t slot = sql.find("pg_create_logical_replication_slot('shop_slot', 'pgoutput')");
  const std::size_t record = sql.find("INSERT INTO walpost.pipeline");
  ASSERT_NE(record, std::string::npos);
  EXPECT_LT(table, publication);
  EXPECT_LT(publication, slot);
  EXPECT_LT(slot, record);
}

TEST(PrintSqlTest, OwnTableIsMadeOnlyWhereItIsUsed) {
  InitOptions options = Options();
  options.source.tables = {{"public", "outbox"}, {"Shop", "a\"b"}};
  const std::string sql = Sql(options);
  EXPECT_THAT(sql, Not(HasSubstr("outbox.events")));
  EXPECT_THAT(sql, HasSubstr("CREATE TABLE IF NOT EXISTS walpost.pipeline"));
  EXPECT_THAT(sql, HasSubstr("FOR TABLE \"public\".\"outbox\", \"Shop\".\"a\"\"b\" WITH "
                             "(publish = 'insert', publish_via_partition_root = true)"));
}

// Also where the name stands alone, as the roles' rights need it.
TEST(PrintSqlTest, AnotherSchemaIsMeantWhereverTheFilesSayOutbox) {
  InitOptions options = Options();
  options.source.tables = {{"shop", "events"}};
  options.table_schema = "shop";
  options.with_roles = true;
  const std::string sql = Sql(options);
  EXPECT_THAT(sql, HasSubstr("nspname IN ('walpost', 'shop')"));
  EXPECT_THAT(sql, HasSubstr("to_regnamespace('shop')"));
  EXPECT_THAT(sql, Not(HasSubstr("'outbox'")));
  EXPECT_THAT(sql, Not(HasSubstr("outbox.events")));
}

TEST(PrintSqlTest, RightToEmitIsRevokedWithoutMessages) {
  InitOptions options = Options();
  EXPECT_THAT(Sql(options), Not(HasSubstr("REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC")));
  options.revoke_emit = true;
  EXPECT_THAT(Sql(options), HasSubstr("REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC"));
}

TEST(PrintSqlTest, NamesAreQuoted) {
  InitOptions options = Options();
  options.name = "o'brien";
  options.source.publication = "a \"b\"'c";
  const std::string sql = Sql(options);
  EXPECT_THAT(sql, HasSubstr("CREATE PUBLICATION \"a \"\"b\"\"'c\""));
  EXPECT_THAT(sql, HasSubstr("SELECT 'o''brien', slot_name, 'a \"b\"''c',"));
}

}  // namespace
}  // namespace walpost::operations
