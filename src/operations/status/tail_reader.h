// TailReader - pgoutput payloads into lines for people, by the code that `run` reads them with.
// Thread: one owner.   Lifetime: `options` must outlive it.
// Errors: kDataLoss: what came is not what PostgreSQL sends. A table that does not fit its mapping, or a row
//   that is no event, is a line.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/chunk_arena.h"
#include "base/source_facts.h"
#include "envelope/encoder.h"
#include "operations/status/tail.h"
#include "outbox/announced_types.h"
#include "outbox/message_mapper.h"
#include "outbox/table_mapper.h"
#include "pgoutput/decoder.h"

namespace walpost::operations {

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
