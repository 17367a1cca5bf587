// What Relation messages say: which table rows belong to, and whether it still fits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "intake_fixture.h"

namespace walpost::pipeline {
namespace {

using base::HaltReason;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using walpost::testing::BinaryColumn;
using walpost::testing::TextColumn;

class IntakeRelationsTest : public IntakeFixture {};

// Failure 38.
TEST_F(IntakeRelationsTest, ColumnsAreBoundFromTheRelationInForce) {
  TakeAll({Begin(100), EventBytes("e1")});
  pgoutput::Relation moved = EventsRelation();
  std::swap(moved.columns[0], moved.columns[1]);
  Take(walpost::testing::RelationBytes(moved));
  Take(EventBytes({TextColumn("key2"), TextColumn("e2"), TextColumn("orders"), TextColumn("t"),
                   BinaryColumn("p")}));
  EXPECT_THAT(Ids(), ElementsAre("e1", "e2"));
  EXPECT_EQ(tracker_.entry(1).record.key, "key2");
}

class TablesOfOneNameTest : public IntakeRelationsTest {
 protected:
  static constexpr std::uint32_t kOther = 9;

  TablesOfOneNameTest() { facts_.tables.push_back({kOther, "sales", "events"}); }

  static PipelineOptions WithBoth() {
    PipelineOptions options = OptionsOf(EventsOutbox());
    options.outboxes.push_back(EventsOutbox());
    options.outboxes[0].table.topic = "first";
    options.outboxes[1].table.topic = "second";
    options.outboxes[1].table.schema = "sales";
    return options;
  }
};

TEST_F(TablesOfOneNameTest, EachIsTheOutboxOfItsSchema) {
  const PipelineOptions options = WithBoth();
  DeadLetters dead_letters{options, &tracker_};
  Undeliverables undeliverables{options, &tracker_, &counters_, &dead_letters};
  Intake intake{options, &tracker_, &counters_, &undeliverables};
  intake.Start(facts_);
  pgoutput::Relation other = EventsRelation();
  other.id.oid = kOther;
  other.schema = "sales";
  const std::vector<std::string> payloads = {
      walpost::testing::RelationBytes(EventsRelation()), walpost::testing::RelationBytes(other),
      Begin(100), EventBytes("e1"),
      walpost::testing::InsertBytes(other.id, {TextColumn("e2"), TextColumn("k"), TextColumn("t"),
                                               TextColumn("t"), BinaryColumn("p")})};
  for (const std::string& payload : payloads) {
    ASSERT_FALSE(intake.TakePayload(payload, {}));
  }
  EXPECT_THAT(Ids(), ElementsAre("e1", "e2"));
  EXPECT_EQ(tracker_.entry(0).record.topic, "first");
  EXPECT_EQ(tracker_.entry(1).record.topic, "second");
}

// A row that was inserted before its table was attached is no event.
TEST_F(IntakeRelationsTest,
       RowUnderAPartitionsOwnNameIsIgnoredWhereThePublicationIsKnownToBeAsItWas) {
  pgoutput::Relation partition = EventsRelation();
  partition.id.oid = 9;
  partition.name = "events_1";
  const std::string row = walpost::testing::InsertBytes(partition.id, {TextColumn("x")});
  facts_.tables[0].partitions = {9};
  facts_.progress.emplace();
  for (const std::uint32_t remembered_xmin : {700U, 0U}) {
    facts_.progress->publication_xmin = remembered_xmin;
    Reconnect();
    TakeAll({Begin(100), walpost::testing::RelationBytes(partition)});
    if (remembered_xmin == 0) {
      EXPECT_EQ(Rejected(row).reason, HaltReason::kPublicationMissing);
      continue;
    }
    Take(row);
    EXPECT_EQ(counters_.changes_ignored, 1U);
  }
}

// With tables below outbox.events, on a connection of a publication that nothing remembers.
class PartitionsTest : public IntakeRelationsTest {
 protected:
  static constexpr std::uint32_t kMiddle = 9;
  static constexpr std::uint32_t kLeaf = 10;

  static std::string Announced(std::uint32_t oid) {
    pgoutput::Relation relation = EventsRelation();
    relation.id.oid = oid;
    relation.name = "table_" + std::to_string(oid);
    return walpost::testing::RelationBytes(relation);
  }

  static std::string RowOf(std::uint32_t oid) {
    return walpost::testing::InsertBytes(pgoutput::RelationId{oid}, {TextColumn("x")});
  }

  void Begins(int server_version, std::vector<std::uint32_t> partitions) {
    facts_.server_version = server_version;
    facts_.publication_xmin = 700;
    Looked(50, std::move(partitions));
    Reconnect();
  }

  void Looked(std::uint64_t at, std::vector<std::uint32_t> partitions) {
    facts_.looked_lsn = base::Lsn(at);
    facts_.tables[0].partitions = std::move(partitions);
  }
};

TEST_F(PartitionsTest, RowFromBeforeItsTableWasAttachedIsIgnoredOnTheFirstConnection) {
  Begins(150000, {});
  TakeAll({Begin(100), Announced(kLeaf)});
  EXPECT_TRUE(intake_.must_look());
  Looked(150, {kLeaf});
  EXPECT_FALSE(intake_.OnLooked(facts_));
  Take(RowOf(kLeaf));
  EXPECT_EQ(counters_.changes_ignored, 1U);
}

// What commits at the position of the look commits after it.
TEST_F(PartitionsTest, RowThatWasCommittedWhereTheFirstLookWasIsIgnored) {
  Begins(180000, {kMiddle, kLeaf});
  Looked(100, {kMiddle, kLeaf});
  Reconnect();
  TakeAll({Begin(100), Announced(kMiddle), Announced(kLeaf), RowOf(kMiddle)});
  EXPECT_EQ(counters_.changes_ignored, 1U);
}

// They go on sending rows of an attached table under its own name, until the connection ends.
TEST_F(PartitionsTest, RowOfAnAttachedTableUnderItsOwnNameHaltsOn13And14) {
  Begins(140023, {});
  TakeAll({Begin(100), Announced(kLeaf)});
  Looked(150, {});
  EXPECT_FALSE(intake_.OnLooked(facts_));
  TakeAll({RowOf(kLeaf), Commit(100), Begin(200), Announced(kLeaf)});
  EXPECT_TRUE(intake_.must_look()) << "it may have been attached";
  Looked(250, {kLeaf});
  EXPECT_FALSE(intake_.OnLooked(facts_));
  EXPECT_EQ(Rejected(RowOf(kLeaf)).reason, HaltReason::kPublicationMissing);
}

// The first rows of a connection come as what they are.
TEST_F(PartitionsTest, RowFromBeforeItsTableWasAttachedIsIgnoredOn13And14) {
  Begins(140023, {kLeaf});
  TakeAll({Begin(100), Announced(kLeaf), RowOf(kLeaf)});
  EXPECT_EQ(counters_.changes_ignored, 1U);
}

TEST_F(PartitionsTest, RowOfATreeFromBeforeItWasAttachedIsIgnored) {
  Begins(180000, {});
  TakeAll({Begin(100), Announced(kMiddle), Announced(kLeaf)});
  Looked(150, {kMiddle, kLeaf});
  EXPECT_FALSE(intake_.OnLooked(facts_));
  Take(RowOf(kMiddle));
  EXPECT_EQ(counters_.changes_ignored, 1U);
}

// The outbox was attached to the other table then. By now the leaf is nobody's.
TEST_F(PartitionsTest, RowUnderAnotherRootHaltsAlsoWhereItsPartitionHasGoneSince) {
  Begins(180000, {kLeaf});
  TakeAll({Begin(100), Announced(kMiddle), Announced(kLeaf)});
  Looked(150, {});
  EXPECT_FALSE(intake_.OnLooked(facts_));
  EXPECT_EQ(Rejected(RowOf(kMiddle)).reason, HaltReason::kPublicationMissing);
}

TEST_F(PartitionsTest, RowUnderAnotherRootHaltsAlsoWhereItsPartitionHasGoneBeforeAReconnect) {
  Begins(180000, {kLeaf});
  Looked(150, {});
  Reconnect();
  TakeAll({Begin(100), Announced(kMiddle), Announced(kLeaf)});
  EXPECT_EQ(Rejected(RowOf(kMiddle)).reason, HaltReason::kPublicationMissing);
}

// After a restart no earlier look is known.
TEST_F(PartitionsTest, RowOfAnUnknownTableUnderTheRootOfTheOutboxHalts) {
  static constexpr std::uint32_t kSibling = 11;
  facts_.tables[0].relatives = {kMiddle, kSibling};
  Begins(180000, {});
  TakeAll({Begin(100), Announced(kMiddle), Announced(kSibling), RowOf(kMiddle)});
  EXPECT_EQ(counters_.changes_ignored, 1U);
  TakeAll({Announced(kMiddle), Announced(kLeaf)});
  EXPECT_EQ(Rejected(RowOf(kMiddle)).reason, HaltReason::kPublicationMissing);
}

// The server announces a table before its first change alone.
TEST_F(PartitionsTest, RowUnderAnotherRootHaltsAlsoBehindAnUpdateOrADelete) {
  const pgoutput::RelationId root{kMiddle};
  for (const std::string& change : {walpost::testing::UpdateBytes(root, {TextColumn("x")}),
                                    walpost::testing::DeleteBytes(root, 'K', {TextColumn("x")})}) {
    Begins(180000, {kLeaf});
    TakeAll({Begin(100), Announced(kMiddle), Announced(kLeaf), change});
    EXPECT_EQ(Rejected(RowOf(kMiddle)).reason, HaltReason::kPublicationMissing);
  }
}

TEST_F(PartitionsTest, RowOfAnotherTableThatWasGivenAPartitionOfTheOutboxIsIgnored) {
  Begins(180000, {kLeaf});
  Looked(150, {});
  EXPECT_FALSE(intake_.OnLooked(facts_));
  TakeAll({Begin(200), Announced(kMiddle), Announced(kLeaf), RowOf(kMiddle)});
  EXPECT_EQ(counters_.changes_ignored, 1U);
}

// With FOR ALL TABLES the other table's name is the one that its rows come under.
TEST_F(IntakeRelationsTest, RowOfTheOutboxUnderTheNameOfAnotherTableHalts) {
  pgoutput::Relation root = EventsRelation();
  root.id.oid = 9;
  root.name = "root";
  const std::string row = walpost::testing::InsertBytes(root.id, {TextColumn("x")});
  TakeAll({Begin(100), walpost::testing::RelationBytes(root), row});
  Take(walpost::testing::RelationBytes(root));
  Take(walpost::testing::RelationBytes(EventsRelation()));
  EXPECT_EQ(Rejected(row).reason, HaltReason::kPublicationMissing);
}

TEST_F(IntakeRelationsTest, TablesThatAreTruncatedTogetherAreAnnouncedTogether) {
  pgoutput::Relation other = EventsRelation();
  other.id.oid = 9;
  other.name = "other";
  TakeAll({Begin(100), walpost::testing::RelationBytes(other),
           walpost::testing::RelationBytes(EventsRelation()),
           walpost::testing::TruncateBytes({other.id, pgoutput::RelationId{kEventsOid}}),
           walpost::testing::InsertBytes(other.id, {TextColumn("x")})});
}

// With two transactions of its rows: a partition's, and one that follows its detaching.
class DetachedPartitionTest : public IntakeRelationsTest {
 protected:
  // `others`: other tables that are announced in between.
  std::optional<Halt> RowAfterDetaching(int server_version, std::uint32_t others = 0) {
    pgoutput::Relation leaf = EventsRelation();
    leaf.id.oid = 9;
    leaf.name = "leaf";
    facts_.server_version = server_version;
    facts_.tables[0].partitions = {9};
    Reconnect();
    TakeAll({Begin(100), walpost::testing::RelationBytes(EventsRelation()),
             walpost::testing::RelationBytes(leaf), EventBytes("e1"), Commit(100)});
    facts_.tables[0].partitions.clear();
    intake_.OnLooked(facts_);
    Take(Begin(200));
    pgoutput::Relation other;
    other.name = "other";
    for (other.id.oid = 1'000; other.id.oid < 1'000 + others; ++other.id.oid) {
      Take(walpost::testing::RelationBytes(other));
    }
    TakeAll(
        {walpost::testing::RelationBytes(EventsRelation()), walpost::testing::RelationBytes(leaf)});
    return intake_.TakePayload(EventBytes("e2"), {});
  }
};

// They do not notice it within a connection.
TEST_F(DetachedPartitionTest, RowThatStillComesAsTheOutboxsHaltsOn13And14) {
  const std::optional<Halt> halt = RowAfterDetaching(140023);
  ASSERT_TRUE(halt);
  EXPECT_EQ(halt->reason, HaltReason::kPublicationMissing);
}

TEST_F(DetachedPartitionTest, RowHaltsAlsoBehindMoreTablesThanAreKept) {
  const std::optional<Halt> halt = RowAfterDetaching(130011, 10'100);
  ASSERT_TRUE(halt);
  EXPECT_EQ(halt->reason, HaltReason::kPublicationMissing);
}

TEST_F(DetachedPartitionTest, RowIsWhatItWasWhenItWasWrittenFrom15On) {
  EXPECT_FALSE(RowAfterDetaching(150018));
  EXPECT_THAT(Ids(), ElementsAre("e1", "e2"));
}

// It was a partition when the row was written, or the server would not say so.
TEST_F(IntakeRelationsTest, RowOfATableThatWasDetachedSinceIsAnEvent) {
  pgoutput::Relation leaf = EventsRelation();
  leaf.id.oid = 9;
  leaf.name = "leaf";
  facts_.server_version = 130000;
  Reconnect();
  TakeAll({Begin(100), walpost::testing::RelationBytes(EventsRelation()),
           walpost::testing::RelationBytes(leaf), EventBytes("e1"),
           walpost::testing::RelationBytes(EventsRelation()), walpost::testing::RelationBytes(leaf),
           EventBytes("e2"), Commit(100)});
  EXPECT_THAT(Ids(), ElementsAre("e1", "e2"));
}

TEST_F(IntakeRelationsTest, RowOfAnOutboxThatWasNotAnnouncedIsRejected) {
  intake_.Start(facts_);
  Take(Begin(100));
  EXPECT_EQ(Rejected(EventBytes("e1")).reason, HaltReason::kProtocolError);
}

TEST_F(IntakeRelationsTest, TableWithTheSameNameAndAnotherOidWasReplaced) {
  pgoutput::Relation replaced = EventsRelation();
  replaced.id.oid = 99;
  const Halt halt = Rejected(walpost::testing::RelationBytes(replaced));
  EXPECT_EQ(halt.reason, HaltReason::kTableReplaced);
  EXPECT_THAT(halt.detail, HasSubstr("outbox.events is OID 99"));
  EXPECT_THAT(halt.detail, HasSubstr("OID 16400"));
}

// Failure 37.
TEST_F(IntakeRelationsTest, RenamedTableIsNoticed) {
  pgoutput::Relation renamed = EventsRelation();
  renamed.name = "events_old";
  const Halt halt = Rejected(walpost::testing::RelationBytes(renamed));
  EXPECT_EQ(halt.reason, HaltReason::kTableReplaced);
  EXPECT_THAT(halt.detail, HasSubstr("is called outbox.events_old in the stream from here on"));
}

// After a crash the server sends it once more, as what it was then.
TEST_F(IntakeRelationsTest, DeliveredTransactionOfATableThatWasRenamedOrReplacedSinceIsPassedOver) {
  TakeAll({Begin(100), EventBytes("e1"), Commit(100)});
  tracker_.Settle(0);
  pgoutput::Relation renamed = EventsRelation();
  renamed.name = "events_old";
  pgoutput::Relation replaced = EventsRelation();
  replaced.id.oid = 99;
  for (const pgoutput::Relation& relation : {renamed, replaced}) {
    const std::string row = walpost::testing::InsertBytes(
        relation.id, {TextColumn("e1"), TextColumn("k"), TextColumn("orders"), TextColumn("t"),
                      BinaryColumn("p")});
    intake_.Leave();
    intake_.Start(facts_);
    TakeAll({Begin(100), walpost::testing::RelationBytes(relation), row, Commit(100)});
    EXPECT_TRUE(tracker_.empty());
    // It is not announced again.
    Take(Begin(200));
    EXPECT_EQ(Rejected(row).reason, HaltReason::kTableReplaced);
  }
}

TEST_F(IntakeRelationsTest, RowsOfAReplacedTableThatWereGivenUpArePassedOver) {
  pgoutput::Relation replaced = EventsRelation();
  replaced.id.oid = 99;
  const std::string row = walpost::testing::InsertBytes(replaced.id, {TextColumn("e1")});
  facts_.tables[0].since = {base::Lsn(500), kCommitTime};
  facts_.progress = facts_.ProgressAt(base::Lsn(500));
  for (const bool covered : {true, false}) {
    facts_.tables[0].since.at = kCommitTime - std::chrono::microseconds(covered ? 0 : 1);
    intake_.Leave();
    intake_.Start(facts_);
    Take(Begin(100));
    if (!covered) {
      EXPECT_EQ(Rejected(walpost::testing::RelationBytes(replaced)).reason,
                HaltReason::kTableReplaced);
      continue;
    }
    TakeAll({walpost::testing::RelationBytes(replaced), row, Commit(100), Begin(600)});
    EXPECT_EQ(Rejected(row).reason, HaltReason::kTableReplaced);
  }
}

// Failure 35.
TEST_F(IntakeRelationsTest, TableThatDoesNotFitIsReportedWithTheFirstRowItAffects) {
  TakeAll({Begin(100), EventBytes("e1")});
  pgoutput::Relation shrunk = EventsRelation();
  shrunk.columns.erase(shrunk.columns.begin() + 4);
  Take(walpost::testing::RelationBytes(shrunk));
  const Halt halt = Rejected(
      EventBytes({TextColumn("e2"), TextColumn("a"), TextColumn("orders"), TextColumn("t")}));
  EXPECT_EQ(halt.reason, HaltReason::kSchemaMismatch);
  EXPECT_THAT(halt.detail, HasSubstr("no column payload"));
  EXPECT_THAT(halt.detail, HasSubstr("commit LSN 0/64, ordinal 1"));
  EXPECT_THAT(halt.detail, HasSubstr("rows already written keep the columns"))
      << "or the advice misleads";
  EXPECT_THAT(Ids(), ElementsAre("e1"));
}

TEST_F(IntakeRelationsTest, TableThatFitsAgainIsReadAgain) {
  pgoutput::Relation shrunk = EventsRelation();
  shrunk.columns.erase(shrunk.columns.begin() + 4);
  TakeAll({Begin(100), walpost::testing::RelationBytes(shrunk),
           walpost::testing::RelationBytes(EventsRelation()), EventBytes("e1")});
  EXPECT_THAT(Ids(), ElementsAre("e1"));
}

}  // namespace
}  // namespace walpost::pipeline
