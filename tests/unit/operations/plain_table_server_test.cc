#include "operations/rows/table_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "postgres/sql_connection.h"
#include "unit/operations/server_fixture.h"

namespace walpost::operations {
namespace {

using ::testing::HasSubstr;

class PlainTableServerTest : public ServerFixture {
 protected:
  postgres::SqlConnection Connect() const {
    return *postgres::SqlConnection::Connect(Conninfo(), "test");
  }
};

TEST_F(PlainTableServerTest, ViewIsNotReadWhereTheServerCanRejectIt) {
  Sql("CREATE VIEW public.seen AS SELECT 1 AS id");
  postgres::SqlConnection connection = Connect();
  const bool can =
      Sql("SELECT count(*) FROM pg_settings WHERE name = 'restrict_nonsystem_relation_kind'") ==
      "1";
  Sql("CREATE TABLE public.rows (id integer)");
  ASSERT_TRUE(BeginReadOnly(&connection, "public", "rows").ok());
  EXPECT_EQ(connection.Query("SELECT id FROM public.seen").ok(), !can);
}

TEST_F(PlainTableServerTest, TableIsAsItIsUntilTheTransactionEnds) {
  Sql("CREATE TABLE public.rows (id integer)");
  postgres::SqlConnection connection = Connect();
  ASSERT_TRUE(BeginReadOnly(&connection, "public", "rows").ok());
  postgres::SqlConnection other = Connect();
  ASSERT_TRUE(other.Execute("SET lock_timeout = '100ms'").ok());
  EXPECT_FALSE(other.Execute("ALTER TABLE public.rows RENAME TO gone").ok());
  EXPECT_EQ(other.last_sqlstate(), "55P03");
  ASSERT_TRUE(connection.Execute("ROLLBACK").ok());
  EXPECT_TRUE(other.Execute("ALTER TABLE public.rows RENAME TO gone").ok());
}

TEST_F(PlainTableServerTest, TableThatTookAnothersPlaceBehindTheSnapshotIsNamed) {
  Sql("CREATE TABLE public.rows (id integer)");
  postgres::SqlConnection exporter = Connect();
  ASSERT_TRUE(exporter.Execute("BEGIN ISOLATION LEVEL REPEATABLE READ").ok());
  const auto snapshot = exporter.Query("SELECT pg_export_snapshot()");
  ASSERT_TRUE(snapshot.ok());
  Sql("DROP TABLE public.rows");
  Sql("CREATE TABLE public.rows (id integer)");
  postgres::SqlConnection reader = Connect();
  EXPECT_THAT(
      std::string(BeginReadOnly(&reader, "public", "rows", *snapshot->at(0).at(0)).message()),
      HasSubstr("was put in another's place meanwhile"));
}

TEST_F(PlainTableServerTest, WhatIsNoTableIsNamed) {
  Sql("CREATE MATERIALIZED VIEW public.made AS SELECT 1 AS id");
  for (const auto& [name, why] : {std::pair("made", "public.made is no table"),
                                  std::pair("none", "table public.none does not exist")}) {
    postgres::SqlConnection connection = Connect();
    EXPECT_THAT(std::string(BeginReadOnly(&connection, "public", name).message()), HasSubstr(why));
  }
}

}  // namespace
}  // namespace walpost::operations
