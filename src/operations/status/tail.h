// Tail - events as they are committed, to look at: from PostgreSQL to the terminal, without Kafka.
// Why: to see what an application writes, before there is a Kafka, or beside a walpost that runs.
// Thread: blocking, until `stop_fd` is readable, the limit is reached, or nobody reads what is
// printed.
// Units/limits: reads by a slot of its own, which is gone with the connection; no other slot and no
//   topic is touched. Values are shown as they are in the row; a Schema Registry is not asked.
// Errors: as ExitCodeOf says; a row that is no event is shown as such and ends nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/source_facts.h"
#include "envelope/encoder.h"
#include "operations/outcome.h"
#include "outbox/column_value.h"
#include "outbox/message_mapper.h"
#include "outbox/table_mapper.h"
#include "pgoutput/decoder.h"

namespace walpost::operations {

struct TailOptions {
  PipelineSettings pipeline;   // source, outboxes and messages of it
  std::string messages_topic;  // template
  outbox::TopicOptions messages_topics;
  bool from_now = false;    // else with what the configured slot has not confirmed
  std::string table;        // SCHEMA.TABLE, or message:PREFIX; empty = all
  std::string key;          // empty = all
  std::uint64_t limit = 0;  // of events shown; 0 = none
  bool payload = false;
  bool json = false;
  int stop_fd = -1;
  // Cancelled: nobody reads it any more. DeadlineExceeded: nobody has read for too long.
  std::function<absl::Status(const std::string&)> print;
};

Outcome Tail(const TailOptions& options);

// TailReader - pgoutput payloads into lines for people, by the code that `run` reads them with.
// Thread: one owner.   Lifetime: `options` must outlive it.
// Errors: kDataLoss: what came is not what PostgreSQL sends. A table that does not fit its mapping,
//   or a row that is no event, is a line.
class TailReader {
 public:
  TailReader(const TailOptions& options, base::SourceFacts facts);

  // The line of an event that is wanted; nullopt = there is nothing to show.
  absl::StatusOr<std::optional<std::string>> Take(std::string_view payload);

  // Everything before it was taken.
  base::Lsn taken_lsn() const { return taken_lsn_; }

  // Of a keepalive.
  void TakePosition(base::Lsn wal_end);

 private:
  struct Outbox {
    outbox::TableMapper mapper;
    envelope::Encoder encoder;
    std::string label;  // SCHEMA.TABLE
    std::string bind_error;
  };

  void Bind(const pgoutput::Relation& relation);
  std::optional<std::string> Row(const pgoutput::Insert& insert);
  std::optional<std::string> Message(const pgoutput::LogicalMessage& message);
  std::optional<std::string> Line(absl::Status mapped, const outbox::Event& event,
                                  const std::string& label, std::uint32_t ordinal,
                                  envelope::Encoder* encoder);
  bool Wanted(const outbox::Event& event, const std::string& label) const;

  const TailOptions& options_;
  const base::SourceFacts facts_;
  pgoutput::Decoder decoder_;
  pgoutput::Message message_;
  std::deque<Outbox> outboxes_;
  outbox::AnnouncedTypes types_;
  std::map<std::uint32_t, Outbox*> by_oid_;  // null = no outbox
  outbox::MessageMapper message_mapper_;
  envelope::Encoder message_encoder_;
  base::ChunkArena arena_;
  bool open_ = false;  // a transaction
  base::Lsn commit_lsn_;
  envelope::TransactionInfo transaction_;
  std::uint32_t next_ordinal_ = 0;
  base::Lsn taken_lsn_;
};

}  // namespace walpost::operations
