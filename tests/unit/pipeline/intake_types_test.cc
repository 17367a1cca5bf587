// Type messages reach the mapping of every outbox.
#include <gtest/gtest.h>

#include <string>

#include "outbox/column_value.h"
#include "outbox/presets.h"
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

TEST(IntakeTypesTest, DomainOverUuidIsTheEventsId) {
  envelope::OutboxOptions options;
  options.table = *outbox::PresetOptions("debezium");
  options.encoder = {envelope::ValueFormat::kRaw, envelope::HeaderSet::kDebezium};
  delivery::Tracker tracker;
  Counters counters;
  const PipelineOptions pipeline_options = OptionsOf(options);
  DeadLetters dead_letters(pipeline_options, &tracker);
  Undeliverables undeliverables(pipeline_options, &tracker, &counters, &dead_letters);
  Intake intake(pipeline_options, &tracker, &counters, &undeliverables);
  base::SourceFacts facts;
  facts.tables = {{kTable.oid, "public", "outbox"}};
  intake.Start(facts);

  pgoutput::Relation relation;
  relation.id = kTable;
  relation.schema = "public";
  relation.name = "outbox";
  relation.columns = {{"id", kEventId, -1, true},
                      {"aggregatetype", outbox::type_oid::kText, -1, false},
                      {"aggregateid", outbox::type_oid::kText, -1, false},
                      {"payload", outbox::type_oid::kText, -1, false}};
  for (const std::string& payload :
       {testing::BeginBytes(Lsn(0x100)), testing::TypeBytes(kEventId, "", "uuid"),
        testing::RelationBytes(relation),
        testing::InsertBytes(kTable, {BinaryColumn(std::string(16, '\x11')), TextColumn("order"),
                                      TextColumn("42"), TextColumn("x")}),
        testing::CommitBytes(Lsn(0x100), Lsn(0x130))}) {
    const std::optional<Halt> halt = intake.TakePayload(payload, {});
    ASSERT_FALSE(halt.has_value()) << halt->detail;
  }

  ASSERT_EQ(tracker.in_flight_events(), 1U);
  const envelope::Record& record = tracker.entry(tracker.oldest_unsettled()).record;
  ASSERT_EQ(record.headers.size(), 1U);
  EXPECT_EQ(record.headers[0].value, "11111111-1111-1111-1111-111111111111");
}

}  // namespace
}  // namespace walpost::pipeline
