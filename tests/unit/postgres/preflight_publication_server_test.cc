// What a publication must be and hold, on a real server.
#include <chrono>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_join.h"
#include "postgres/connection.h"
#include "postgres/preflight.h"
#include "unit/postgres/preflight_fixture.h"

namespace walpost::postgres {
namespace {

using base::HaltReason;

// Failure 31.
TEST_F(PreflightServerTest, MissingPublicationNeedsAnOperator) {
  MakeSlot();
  ExpectHalt(Rejected(Options()), HaltReason::kPublicationMissing, "publication \"walpost\"");
}

TEST_F(PreflightServerTest, PublicationWithoutInsertsNamesTheCommand) {
  MakeAll();
  Sql("ALTER PUBLICATION walpost SET (publish = 'delete')");
  ExpectHalt(Rejected(Options()), HaltReason::kPublicationMissing,
             "ALTER PUBLICATION \"walpost\" SET (publish = 'insert')");
}

TEST_F(PreflightServerTest, TableOutsideThePublicationIsNamed) {
  MakeAll();
  Sql("CREATE TABLE outbox.other (id int)");
  ConnectOptions options = Options();
  options.tables.push_back({"outbox", "other"});
  ExpectHalt(Rejected(options), HaltReason::kPublicationMissing,
             "ALTER PUBLICATION \"walpost\" ADD TABLE \"outbox\".\"other\"");
}

TEST_F(PreflightServerTest, TableThatDoesNotExistIsSaidSo) {
  MakeAll();
  ConnectOptions options = Options();
  options.tables = {{"outbox", "nowhere"}};
  ExpectHalt(Rejected(options), HaltReason::kPublicationMissing, "does not exist");
}

TEST_F(PreflightServerTest, TableDroppedAndCreatedAgainIsMissing) {
  MakeAll();
  Sql("DROP TABLE outbox.events; CREATE TABLE outbox.events (id int)");
  ExpectHalt(Rejected(Options()), HaltReason::kPublicationMissing, "\"outbox\".\"events\"");
}

// Failure 49.
TEST_F(PreflightServerTest, PartitionedTableMustBePublishedAsItself) {
  Sql("CREATE TABLE outbox.parts (id int) PARTITION BY RANGE (id); CREATE TABLE outbox.parts_1 "
      "PARTITION OF outbox.parts FOR VALUES FROM (0) TO (10)");
  Sql("CREATE PUBLICATION walpost FOR TABLE outbox.parts WITH (publish = 'insert')");
  MakeSlot();
  ConnectOptions options = Options();
  options.tables = {{"outbox", "parts"}};
  ExpectHalt(Rejected(options), HaltReason::kPublicationMissing,
             "publish_via_partition_root = true");
  Sql("ALTER PUBLICATION walpost SET (publish_via_partition_root = true)");
  EXPECT_TRUE(std::holds_alternative<Connected>(Connect(options, base::Lsn())));
  WaitUntilFree();
  options.tables = {{"outbox", "parts_1"}};
  ExpectHalt(Rejected(options), HaltReason::kPublicationMissing, "is a partition of outbox.parts");
}

TEST_F(PreflightServerTest, PartitionsAreKnownAndMustWriteTheLog) {
  Sql("CREATE TABLE outbox.parts (id int) PARTITION BY RANGE (id); CREATE TABLE outbox.parts_1 "
      "PARTITION OF outbox.parts FOR VALUES FROM (0) TO (10)");
  Sql("CREATE PUBLICATION walpost FOR TABLE outbox.parts WITH (publish = 'insert', "
      "publish_via_partition_root = true)");
  MakeSlot();
  ConnectOptions options = Options();
  options.tables = {{"outbox", "parts"}};
  auto seen = LookAgain(options);
  ASSERT_TRUE(std::holds_alternative<base::SourceFacts>(seen));
  const base::PublishedTable& table = std::get<base::SourceFacts>(seen).tables.at(0);
  ASSERT_EQ(table.partitions.size(), 1u);
  EXPECT_EQ(std::to_string(table.partitions[0]), Sql("SELECT 'outbox.parts_1'::regclass::oid"));
  Sql("ALTER TABLE outbox.parts_1 SET UNLOGGED");
  ExpectHalt(Rejected(options), HaltReason::kPublicationMissing,
             "writes no log (UNLOGGED): run ALTER TABLE outbox.parts_1 SET LOGGED");
  Sql("DROP TABLE outbox.parts_1; CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA "
      "WRAPPER w; CREATE FOREIGN TABLE outbox.parts_2 PARTITION OF outbox.parts FOR VALUES FROM "
      "(0) "
      "TO (10) SERVER s");
  ExpectHalt(Rejected(options), HaltReason::kPublicationMissing, "is a foreign table");
  Sql("DROP FOREIGN DATA WRAPPER w CASCADE");
}

// Before 15 a publication holds whole tables only.
TEST_F(PreflightServerTest, TableMustBePublishedWhole) {
  MakeAll();
  ConnectOptions options = Options();
  options.tables = {{"outbox", "events", {"id", "more", "nowhere"}}};
  Sql("ALTER TABLE outbox.events ADD COLUMN more text, ADD COLUMN less text");
  if (server_->Major() < 16) {
    EXPECT_TRUE(std::holds_alternative<base::SourceFacts>(LookAgain(options)));
    return;
  }
  Sql("ALTER PUBLICATION walpost SET TABLE outbox.events (id, more)");
  EXPECT_TRUE(std::holds_alternative<base::SourceFacts>(LookAgain(options)))
      << "what is not mapped need not be sent";
  Sql("ALTER PUBLICATION walpost SET TABLE outbox.events (id, less)");
  ExpectHalt(Rejected(options), HaltReason::kPublicationMissing,
             "table outbox.events has a column list without more");
  Sql("ALTER PUBLICATION walpost SET TABLE outbox.events WHERE (id IS NULL)");
  ExpectHalt(Rejected(options), HaltReason::kPublicationMissing,
             "table outbox.events has a row filter, WHERE (id IS NULL)");
}

// From 18 on a list may name a stored generated column; before, no such column is ever sent.
TEST_F(PreflightServerTest, ColumnListWithoutAMappedGeneratedColumnIsRejectedWhereItCouldHaveIt) {
  MakeAll();
  ConnectOptions options = Options();
  options.tables = {{"outbox", "events", {"id", "made"}}};
  Sql("ALTER TABLE outbox.events ADD COLUMN made int GENERATED ALWAYS AS (id + 1) STORED");
  const auto accepted = [&] {
    return std::holds_alternative<base::SourceFacts>(LookAgain(options));
  };
  EXPECT_TRUE(accepted()) << "there is no list";
  if (server_->Major() < 15) {
    return;
  }
  Sql("ALTER PUBLICATION walpost SET TABLE outbox.events (id)");
  if (server_->Major() < 18) {
    EXPECT_TRUE(accepted());
    return;
  }
  ExpectHalt(Rejected(options), HaltReason::kPublicationMissing,
             "table outbox.events has a column list without made");
  ExpectHalt(Rejected(options), HaltReason::kPublicationMissing,
             "ALTER PUBLICATION \"walpost\" SET (publish_generated_columns = stored)");
  Sql("ALTER PUBLICATION walpost SET TABLE outbox.events (id, made)");
  EXPECT_TRUE(accepted());
  Sql("ALTER TABLE outbox.events ADD COLUMN never int GENERATED ALWAYS AS (id) VIRTUAL");
  options.tables[0].columns.push_back("never");
  EXPECT_TRUE(accepted()) << "no list may name it";
}

// One statement sees the catalogs of one moment and functions of the next.
TEST_F(PreflightServerTest, ColumnThatComesAndGoesIsNotLeftOut) {
  MakeAll();
  ConnectOptions options = Options();
  options.tables = {{"outbox", "events", {"id", "more"}}};
  std::thread migrations([this] {
    Sql("DO $$ BEGIN FOR n IN 1..500 LOOP ALTER TABLE outbox.events ADD COLUMN more text; COMMIT; "
        "ALTER TABLE outbox.events DROP COLUMN more; COMMIT; END LOOP; END $$");
  });
  const absl::Cleanup join([&migrations] { migrations.join(); });
  while (Sql("SELECT max(attnum) FROM pg_attribute WHERE attrelid = 'outbox.events'::regclass") !=
         "501") {
    const auto seen = LookAgain(options);
    ASSERT_TRUE(std::holds_alternative<base::SourceFacts>(seen))
        << std::get<StreamEnd>(seen).status;
  }
}

TEST_F(PreflightServerTest, MembershipsAreTheRowsThatPublishTheTable) {
  MakeAll();
  const auto memberships = [this] {
    return std::get<base::SourceFacts>(LookAgain(Options())).tables.at(0).memberships;
  };
  const std::vector<std::uint32_t> before = memberships();
  Sql("CREATE TABLE outbox.another (id int); ALTER PUBLICATION walpost ADD TABLE outbox.another");
  EXPECT_EQ(memberships(), before);
  Sql("ALTER PUBLICATION walpost DROP TABLE outbox.events; ALTER PUBLICATION walpost ADD TABLE "
      "outbox.events");
  EXPECT_NE(memberships(), before);
  if (server_->Major() >= 15) {
    Sql("ALTER PUBLICATION walpost ADD TABLES IN SCHEMA outbox");
    EXPECT_EQ(memberships().size(), 2U);
  }
}

TEST_F(PreflightServerTest, TypesWhoseValuesAreTextAreKnown) {
  MakeAll();
  Sql("CREATE TYPE mood AS ENUM ('wild'); CREATE DOMAIN moody AS mood; CREATE TYPE pair AS (a "
      "int); "
      "CREATE TYPE span AS RANGE (subtype = int4)");
  const auto seen = LookAgain(Options());
  EXPECT_EQ(absl::StrJoin(std::get<base::SourceFacts>(seen).text_types, " "),
            Sql("SELECT 'mood'::regtype::oid || ' ' || 'moody'::regtype::oid"));
  Sql("DROP DOMAIN moody; DROP TYPE mood, pair, span");
}

// Failure 51.
TEST_F(PreflightServerTest, AllTablesPublicationHoldsTheTable) {
  Sql("CREATE PUBLICATION walpost FOR ALL TABLES");
  MakeSlot();
  EXPECT_TRUE(std::holds_alternative<Connected>(Connect(Options(), base::Lsn())));
}

TEST_F(PreflightServerTest, UnloggedTableIsPublicationMissingThatSaysWhy) {
  Sql("CREATE PUBLICATION walpost FOR ALL TABLES; ALTER TABLE outbox.events SET UNLOGGED");
  MakeSlot();
  ExpectHalt(Rejected(Options()), HaltReason::kPublicationMissing,
             "run ALTER TABLE \"outbox\".\"events\" SET LOGGED");
  Sql("ALTER TABLE outbox.events SET LOGGED");
  EXPECT_TRUE(std::holds_alternative<Connected>(Connect(Options(), base::Lsn())));
}

// Holds a lock until it goes.
class Lock {
 public:
  Lock(const std::string& conninfo, const std::string& table)
      : connection_(std::get<Connection>(Connection::Open({conninfo, "lock", false}))) {
    for (const std::string& sql : {std::string("BEGIN"), "LOCK TABLE " + table}) {
      EXPECT_TRUE(connection_.Query(sql, Deadline::max()).ok());
    }
  }

 private:
  Connection connection_;
};

TEST_F(PreflightServerTest, LockedPartitionHoldsUpNothing) {
  Sql("CREATE TABLE outbox.parts (id int) PARTITION BY RANGE (id); CREATE TABLE outbox.parts_1 "
      "PARTITION OF outbox.parts FOR VALUES FROM (0) TO (10)");
  Sql("CREATE PUBLICATION walpost FOR TABLE outbox.parts "
      "WITH (publish = 'insert', publish_via_partition_root = true)");
  MakeSlot();
  ConnectOptions options = Options();
  options.tables = {{"outbox", "parts"}};
  const Lock lock(server_->Conninfo(database_), "outbox.parts_1");
  auto outcome = Connect(options, base::Lsn());
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome)) << std::get<StreamEnd>(outcome).status;
  EXPECT_EQ(std::get<Connected>(outcome).facts.tables.at(0).partitions.size(), 1u);
}

// Failure 98.
TEST_F(PreflightServerTest, LockedTableHoldsUpNothing) {
  Sql("CREATE TABLE public.other (id int); CREATE PUBLICATION walpost FOR ALL TABLES");
  MakeSlot();
  const Lock ours(server_->Conninfo(database_), "outbox.events");
  const Lock other(server_->Conninfo(database_), "public.other");
  auto outcome = Connect(Options(), base::Lsn());
  ASSERT_TRUE(std::holds_alternative<Connected>(outcome)) << std::get<StreamEnd>(outcome).status;
}

// A trigger may route rows there.
TEST_F(PreflightServerTest, TableThatOthersInheritFromNamesThem) {
  MakeAll();
  Sql("CREATE TABLE outbox.old () INHERITS (outbox.events)");
  ExpectHalt(Rejected(Options()), HaltReason::kPublicationMissing, "outbox.old");
  Sql("ALTER TABLE outbox.old NO INHERIT outbox.events");
  EXPECT_TRUE(std::holds_alternative<Connected>(Connect(Options(), base::Lsn())));
}

// What pgoutput does, whatever pg_publication_tables lists.
TEST_F(PreflightServerTest, RowsComeUnderTheTopmostPublishedTable) {
  Sql("CREATE TABLE outbox.root (id int) PARTITION BY RANGE (id); CREATE TABLE outbox.leaf "
      "PARTITION "
      "OF outbox.root FOR VALUES FROM (0) TO (10)");
  Sql("CREATE PUBLICATION walpost FOR TABLE outbox.root, outbox.leaf "
      "WITH (publish = 'insert', publish_via_partition_root = true)");
  MakeSlot();
  ConnectOptions options = Options();
  options.tables = {{"outbox", "leaf"}};
  ExpectHalt(Rejected(options), HaltReason::kPublicationMissing, "is a partition of outbox.root");
  Sql("ALTER PUBLICATION walpost SET (publish_via_partition_root = false)");
  EXPECT_TRUE(std::holds_alternative<base::SourceFacts>(LookAgain(options)));
}

// From 15 on the server takes row filter and column list from the partition's own row.
// Failure 100.
TEST_F(PreflightServerTest, PartitionPublishedOnlyThroughItsParentIsRejectedWhereItMayHaveAFilter) {
  Sql("CREATE TABLE outbox.root (id int) PARTITION BY RANGE (id); CREATE TABLE outbox.leaf "
      "PARTITION OF outbox.root FOR VALUES FROM (0) TO (10)");
  Sql("CREATE PUBLICATION walpost FOR TABLE outbox.root WITH (publish = 'insert')");
  MakeSlot();
  ConnectOptions options = Options();
  options.tables = {{"outbox", "leaf"}};
  if (server_->Major() < 15) {
    EXPECT_TRUE(std::holds_alternative<base::SourceFacts>(LookAgain(options)));
    return;
  }
  ExpectHalt(Rejected(options), HaltReason::kPublicationMissing,
             "ALTER PUBLICATION \"walpost\" ADD TABLE \"outbox\".\"leaf\"");
  Sql("ALTER PUBLICATION walpost ADD TABLE outbox.leaf");
  EXPECT_TRUE(std::holds_alternative<base::SourceFacts>(LookAgain(options)));
  Sql("DROP PUBLICATION walpost; CREATE PUBLICATION walpost FOR ALL TABLES");
  EXPECT_TRUE(std::holds_alternative<base::SourceFacts>(LookAgain(options)));
}

// A server that has decoded rows of its partitions misses it when it leaves the schema or comes
// back.
TEST_F(PreflightServerTest, PartitionedTableThatOnlyItsSchemaPublishesIsRejected) {
  if (server_->Major() < 15) {
    return;
  }
  Sql("CREATE TABLE outbox.root (id int) PARTITION BY RANGE (id); CREATE TABLE outbox.leaf "
      "PARTITION OF outbox.root FOR VALUES FROM (0) TO (10)");
  Sql("CREATE PUBLICATION walpost FOR TABLES IN SCHEMA outbox WITH (publish = 'insert', "
      "publish_via_partition_root = true)");
  MakeSlot();
  ConnectOptions options = Options();
  options.tables = {{"outbox", "root"}};
  ExpectHalt(Rejected(options), HaltReason::kPublicationMissing,
             "ALTER PUBLICATION \"walpost\" ADD TABLE \"outbox\".\"root\"");
  Sql("ALTER PUBLICATION walpost ADD TABLE outbox.root");
  EXPECT_TRUE(std::holds_alternative<base::SourceFacts>(LookAgain(options)));
}

TEST_F(PreflightServerTest, MembershipsOfAPartitionAreThoseThatAFilterOfItsOwnWouldEdit) {
  Sql("CREATE TABLE outbox.root (id int) PARTITION BY RANGE (id); CREATE TABLE outbox.leaf "
      "PARTITION OF outbox.root FOR VALUES FROM (0) TO (10)");
  Sql("CREATE PUBLICATION walpost FOR TABLE outbox.root, outbox.leaf WITH (publish = 'insert')");
  MakeSlot();
  ConnectOptions options = Options();
  options.tables = {{"outbox", "leaf"}};
  const auto seen = LookAgain(options);
  ASSERT_TRUE(std::holds_alternative<base::SourceFacts>(seen)) << std::get<StreamEnd>(seen).status;
  const std::vector<std::uint32_t>& memberships =
      std::get<base::SourceFacts>(seen).tables.at(0).memberships;
  if (server_->Major() < 15) {
    EXPECT_EQ(memberships.size(), 2u);
    return;
  }
  EXPECT_EQ(absl::StrJoin(memberships, " "),
            Sql("SELECT oid FROM pg_publication_rel WHERE prrelid = 'outbox.leaf'::regclass"));
}

}  // namespace
}  // namespace walpost::postgres
