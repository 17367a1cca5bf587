// The rule, against what pgoutput sends.
#include <string>

#include "postgres/preflight.h"
#include "unit/postgres/preflight_fixture.h"

namespace walpost::postgres {
namespace {

class SentColumnsServerTest : public PreflightServerTest {
 protected:
  void SetUp() override {
    PreflightServerTest::SetUp();
    Sql("CREATE TABLE outbox.plain " + Columns() + "; CREATE TABLE outbox.root " + Columns() +
        " PARTITION BY LIST (a); CREATE TABLE outbox.leaf PARTITION OF outbox.root DEFAULT");
  }

  // Of which 17 and older make no virtual column.
  static std::string Columns() {
    return std::string(
               "(a int, b int, kept int GENERATED ALWAYS AS (1) STORED, more int GENERATED ") +
           "ALWAYS AS (2) STORED, made int GENERATED ALWAYS AS (3) " +
           (server_->Major() < 18 ? "STORED)" : "VIRTUAL)");
  }

  static int Version() {
    return std::stoi(server_->Sql("SELECT current_setting('server_version_num')"));
  }

  // The columns of `table` that the publication made by `publish` sends: by the rule, and in the
  // stream.
  void ExpectSent(const std::string& publish, const std::string& table,
                  const std::string& columns) {
    SCOPED_TRACE(publish);
    Sql("DROP PUBLICATION IF EXISTS walpost; CREATE PUBLICATION walpost FOR " + publish);
    MakeSlot();
    Sql("INSERT INTO " + table + " (a, b) VALUES (1, 2)");
    const std::string of_table = " FROM pg_attribute a WHERE a.attrelid = '" + table +
                                 "'::regclass AND a.attnum > 0 AND NOT a.attisdropped AND ";
    const std::string list = "string_agg(a.attname, ' ' ORDER BY a.attnum)";
    EXPECT_EQ(Sql("SELECT " + list + of_table +
                  SentColumnSql(Version(), "(SELECT oid FROM pg_publication)")),
              columns);
    const std::string name = table.substr(table.find('.') + 1);
    EXPECT_EQ(
        Sql("WITH relation AS (SELECT data FROM pg_logical_slot_get_binary_changes('" + slot_ +
            "', NULL, NULL, 'proto_version', '1', 'publication_names', 'walpost') WHERE "
            "get_byte(data, 0) = ascii('R') AND position('" +
            name + "'::bytea || '\\x00' IN data) > 0) SELECT " + list +
            " FROM pg_attribute a, relation WHERE a.attrelid = '" + table +
            "'::regclass AND a.attnum > 0 AND position('\\x00'::bytea || a.attname::bytea || "
            "'\\x00' IN data) > 0"),
        columns);
    Sql("SELECT pg_drop_replication_slot('" + slot_ + "')");
  }
};

TEST_F(SentColumnsServerTest, WholeTableHasItsPlainColumns) {
  for (const char* publish : {"TABLE outbox.plain", "ALL TABLES"}) {
    ExpectSent(publish, "outbox.plain", "a b");
  }
  for (const char* publish : {"TABLE outbox.root WITH (publish_via_partition_root = true)",
                              "ALL TABLES WITH (publish_via_partition_root = true)"}) {
    ExpectSent(publish, "outbox.root", "a b");
  }
}

// Before 15 a publication holds whole tables only.
TEST_F(SentColumnsServerTest, ColumnListCountsAlone) {
  if (Version() < 150000) {
    return ExpectSent("TABLE outbox.plain", "outbox.plain", "a b");
  }
  ExpectSent("TABLE outbox.plain (a)", "outbox.plain", "a");
  ExpectSent("TABLES IN SCHEMA outbox", "outbox.plain", "a b");
  ExpectSent("TABLE outbox.root (b) WITH (publish_via_partition_root = true)", "outbox.root", "b");
  ExpectSent("TABLE outbox.root, outbox.leaf (b)", "outbox.leaf", "b");
}

// Failure 55.
TEST_F(SentColumnsServerTest, StoredGeneratedColumnsAreSentFrom18WhereThePublicationSaysSo) {
  if (Version() < 180000) {
    return ExpectSent("TABLE outbox.plain WITH (publish = 'insert')", "outbox.plain", "a b");
  }
  const std::string stored = " WITH (publish_generated_columns = stored)";
  for (const char* publish : {"TABLE outbox.plain", "ALL TABLES", "TABLES IN SCHEMA outbox",
                              "TABLE outbox.plain, TABLES IN SCHEMA outbox"}) {
    ExpectSent(publish, "outbox.plain", "a b");
    ExpectSent(publish + stored, "outbox.plain", "a b kept more");
  }
  for (const std::string& with : {std::string(), stored}) {
    ExpectSent("TABLE outbox.plain (a, kept)" + with, "outbox.plain", "a kept");
    ExpectSent("TABLE outbox.plain (a)" + with, "outbox.plain", "a");
  }
  ExpectSent(
      "TABLE outbox.root WITH (publish_via_partition_root = true, "
      "publish_generated_columns = stored)",
      "outbox.root", "a b kept more");
  ExpectSent("TABLE outbox.root, outbox.leaf" + stored, "outbox.leaf", "a b kept more");
  ExpectSent("TABLE outbox.root, outbox.leaf (a, more)" + stored, "outbox.leaf", "a more");
}

TEST_F(SentColumnsServerTest, ColumnListMayNameWhatItIsSaidThatItMay) {
  if (Version() < 150000) {
    return;  // there are no lists
  }
  for (const char* column : {"a", "kept", "made"}) {
    const std::string made =
        Sql(std::string("DO $$ BEGIN CREATE PUBLICATION one FOR TABLE outbox.plain (") + column +
            "); EXCEPTION WHEN OTHERS THEN NULL; END $$; SELECT count(*) > 0 FROM pg_publication");
    EXPECT_EQ(
        made,
        Sql("SELECT " + ListableColumnSql(Version()) +
            " FROM pg_attribute a WHERE a.attrelid = 'outbox.plain'::regclass AND a.attname = '" +
            column + "'"))
        << column;
    Sql("DROP PUBLICATION IF EXISTS one");
  }
}

}  // namespace
}  // namespace walpost::postgres
