// Type messages reach the mapping of the outbox that they come before, and no other.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "outbox/column_value.h"
#include "outbox/options.h"
#include "outbox_wire.h"
#include "pipeline/intake.h"
#include "support/pgoutput_bytes.h"

namespace walpost::pipeline {
namespace {

using base::Lsn;
using testing::BinaryColumn;
using testing::TextColumn;

constexpr pgoutput::RelationId kTable{16400};
constexpr std::uint32_t kEventId = 16390;  // CREATE DOMAIN event_id AS uuid

class IntakeTypesTest : public ::testing::Test {
 protected:
  IntakeTypesTest() {
    base::SourceFacts facts;
    facts.tables = {{kTable.oid, "public", "outbox"}};
    facts.text_types = {kEventId};
    intake_.Start(facts);
  }

  static PipelineOptions Options() {
    envelope::OutboxOptions options;
    options.table = *outbox::PresetOptions("debezium");
    options.encoder = {envelope::ValueFormat::kRaw, envelope::HeaderSet::kDebezium};
    return OptionsOf(options);
  }

  static pgoutput::Relation Relation(pgoutput::RelationId id, const std::string& name) {
    pgoutput::Relation relation;
    relation.id = id;
    relation.schema = "public";
    relation.name = name;
    relation.columns = {{"id", kEventId, -1, true},
                        {"aggregatetype", outbox::type_oid::kText, -1, false},
                        {"aggregateid", outbox::type_oid::kText, -1, false},
                        {"payload", outbox::type_oid::kText, -1, false}};
    return relation;
  }

  void Take(const std::vector<std::string>& payloads) {
    for (const std::string& payload : payloads) {
      const std::optional<Halt> halt = intake_.TakePayload(payload, {});
      ASSERT_FALSE(halt.has_value()) << halt->detail;
    }
  }

  // A transaction with one row, behind `announced`. The id that it becomes.
  std::string IdOf(std::vector<std::string> announced, const testing::TupleColumn& id) {
    announced.insert(announced.begin(), testing::BeginBytes(Lsn(0x100)));
    announced.push_back(
        testing::InsertBytes(kTable, {id, TextColumn("order"), TextColumn("42"), TextColumn("x")}));
    announced.push_back(testing::CommitBytes(Lsn(0x100), Lsn(0x130)));
    Take(announced);
    if (tracker_.in_flight_events() != 1) {
      return "none";
    }
    const envelope::Record& record = tracker_.entry(tracker_.oldest_unsettled()).record;
    return record.headers.size() == 1 ? std::string(record.headers[0].value) : "no header";
  }

  const PipelineOptions options_ = Options();
  delivery::Tracker tracker_;
  Counters counters_;
  DeadLetters dead_letters_{options_, &tracker_};
  Undeliverables undeliverables_{options_, &tracker_, &counters_, &dead_letters_};
  Intake intake_{options_, &tracker_, &counters_, &undeliverables_};
};

TEST_F(IntakeTypesTest, DomainOverUuidIsTheEventsId) {
  EXPECT_EQ(IdOf({testing::TypeBytes(kEventId, "", "uuid"),
                  testing::RelationBytes(Relation(kTable, "outbox"))},
                 BinaryColumn(std::string(16, '\x11'))),
            "11111111-1111-1111-1111-111111111111");
}

// Each table comes with all its types, and there may be any number of other tables.
TEST_F(IntakeTypesTest, TypesOfAnotherTableAreForgotten) {
  EXPECT_EQ(IdOf({testing::TypeBytes(kEventId, "", "uuid"),
                  testing::RelationBytes(Relation({16500}, "other")),
                  testing::RelationBytes(Relation(kTable, "outbox"))},
                 BinaryColumn("an id")),
            "an id");
}

TEST_F(IntakeTypesTest, TableThatIsAnnouncedAgainBringsItsTypesAgain) {
  EXPECT_EQ(IdOf({testing::TypeBytes(kEventId, "", "numeric"),
                  testing::RelationBytes(Relation(kTable, "outbox")),
                  testing::RelationBytes(Relation(kTable, "outbox"))},
                 BinaryColumn("an id")),
            "an id");
}

}  // namespace
}  // namespace walpost::pipeline
