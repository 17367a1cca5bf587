#include "outbox_wire.h"

#include <chrono>

#include "outbox/column_value.h"
#include "outbox/options.h"

namespace walpost::pipeline {

namespace {}  // namespace

envelope::OutboxOptions EventsOutbox() {
  envelope::OutboxOptions outbox;
  outbox.table = *outbox::PresetOptions("walpost");
  outbox.table.topic = "{aggregate_type}";
  outbox.encoder.format = envelope::ValueFormat::kRaw;
  return outbox;
}

PipelineOptions OptionsOf(envelope::OutboxOptions outbox) {
  PipelineOptions options;
  options.name = "shop";
  options.outboxes = {std::move(outbox)};
  return options;
}

base::SourceFacts EventsFacts() {
  base::SourceFacts facts;
  facts.system_identifier = 0xC0FFEE;
  facts.server_version = 180000;
  facts.timeline = 3;
  facts.timeline_history = {{1, base::Lsn(10)}, {2, base::Lsn(20)}};
  facts.database = "shop";
  facts.tables = {{kEventsOid, "outbox", "events"}};
  return facts;
}

pgoutput::Relation EventsRelation() {
  using outbox::type_oid::kBytea;
  using outbox::type_oid::kText;
  pgoutput::Relation relation;
  relation.id = pgoutput::RelationId{kEventsOid};
  relation.schema = "outbox";
  relation.name = "events";
  relation.columns = {{"id", kText, -1, true},
                      {"aggregate_id", kText, -1, false},
                      {"aggregate_type", kText, -1, false},
                      {"event_type", kText, -1, false},
                      {"payload", kBytea, -1, false}};
  return relation;
}

std::string EventBytes(std::string_view id, std::string_view key, std::string_view topic) {
  using testing::BinaryColumn;
  using testing::TextColumn;
  return EventBytes({TextColumn(id), TextColumn(key), TextColumn(topic), TextColumn("created"),
                     BinaryColumn("payload of " + std::string(id))});
}

std::string EventBytes(const testing::Tuple& row) {
  return testing::InsertBytes(pgoutput::RelationId{kEventsOid}, row);
}

std::string Begin(std::uint64_t commit_lsn, std::uint32_t xid) {
  return testing::BeginBytes(base::Lsn(commit_lsn), base::Xid{xid}, kCommitTime);
}

std::string Commit(std::uint64_t commit_lsn) {
  return testing::CommitBytes(base::Lsn(commit_lsn), base::Lsn(commit_lsn + 8), kCommitTime);
}

}  // namespace walpost::pipeline
