// What the tests of src/pipeline put on the wire: one outbox table, `outbox.events`, in few words.
// The payload is the record's value (format raw), the aggregate id its key, the aggregate type its
// topic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/source_facts.h"
#include "pipeline/options.h"
#include "support/pgoutput_bytes.h"

namespace walpost::pipeline {

inline constexpr std::uint32_t kEventsOid = 16'400;

envelope::OutboxOptions EventsOutbox();
PipelineOptions OptionsOf(envelope::OutboxOptions outbox);
base::SourceFacts EventsFacts();
pgoutput::Relation EventsRelation();

// A row with this id and key, and the payload "payload of <id>".
std::string EventBytes(std::string_view id, std::string_view key = "a",
                       std::string_view topic = "orders");
// The same with any column NULL or odd: id, aggregate_id, aggregate_type, event_type, payload.
std::string EventBytes(const testing::Tuple& row);

inline constexpr base::WallTime kCommitTime{std::chrono::seconds(1'700'000'000)};

std::string Begin(std::uint64_t commit_lsn, std::uint32_t xid = 77);
// Ends 8 bytes after it commits.
std::string Commit(std::uint64_t commit_lsn);

}  // namespace walpost::pipeline
