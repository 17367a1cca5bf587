// Intake - pgoutput payloads of one stream into events in flight: decode, map, encode, track.
// Why: one place that knows transactions, ordinals and what was already taken before a reconnect,
//   so that a redelivered transaction is neither doubled nor cut.
// Thread: loop thread.   Lifetime: `tracker` and `counters` must outlive it.
// Errors: a Halt. What was taken before it stays in flight and can still be delivered and
//   confirmed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/source_facts.h"
#include "delivery/tracker.h"
#include "envelope/encoder.h"
#include "outbox/column_value.h"
#include "outbox/message_mapper.h"
#include "outbox/table_mapper.h"
#include "pgoutput/decoder.h"
#include "pipeline/counters.h"
#include "pipeline/halt.h"
#include "pipeline/known_transactions.h"
#include "pipeline/options.h"
#include "pipeline/undeliverables.h"

namespace walpost::pipeline {

class Intake {
 public:
  // `schemas` may be null where nothing is framed.
  Intake(const PipelineOptions& options, delivery::Tracker* tracker, Counters* counters,
         Undeliverables* undeliverables, envelope::SchemaTable* schemas = nullptr);

  // A new connection: relations come anew. What is in flight stays, and rows up to the last one
  // taken are dropped when they come again. CHECK-fails unless the last connection was left.
  void Start(const base::SourceFacts& facts);

  // The connection ended; a transaction that was open will come again.
  void Leave();

  // Nothing is in flight any more and nothing counts as taken.
  void Forget();

  // When the server sent what comes next, by its clock.
  void TakeTime(base::WallTime at) { frame_at_ = at; }

  // `start` as in its frame.
  std::optional<Halt> TakePayload(std::string_view payload, base::Lsn start);

  // The server announced a table that may have been edited since the catalogs were read, or is a
  // standby and may have been promoted: nothing more is taken until the next look at the server.
  bool must_look() const { return must_look_; }

  // A standby reported a position, which counts only after another look at the standby.
  bool position_waits() const { return !facts_.KnowsTimelineUpTo(reported_position_); }

  std::optional<Halt> OnLooked(const base::SourceFacts& facts);

  // A keepalive's position.
  std::optional<Halt> TakePosition(base::Lsn reported);

  // Everything that ends at or before `safe` is delivered.
  void Settle(base::Lsn safe) { known_.Settle(safe); }

  // Where the next connection has to begin.
  base::Lsn TakeStart() { return known_.TakeStart(); }

  // What this connection has to send again has come, and nothing else.
  bool verified() const { return known_.verified(); }

  // How far this very connection has come.
  base::Lsn connection_lsn() const { return connection_lsn_; }

  const KnownTransactions& known() const { return known_; }

  // What was learned of the server's log, also of a transaction that is not whole yet: a log that
  // ends before it is another history.
  base::Lsn seen_lsn() const;

  // The highest end_lsn or keepalive position received.
  base::Lsn received_lsn() const { return received_lsn_; }

  bool in_transaction() const { return transaction_.open; }

  // Of the open or, else, the last transaction; for messages.
  base::Lsn last_commit_lsn() const { return transaction_.commit_lsn; }

  base::WallTime last_commit_time() const { return transaction_.info.commit_time; }

  // Between two inputs.
  void CheckInvariants() const;

 private:
  struct Outbox {
    outbox::TableMapper mapper;
    envelope::Encoder encoder;
    std::uint32_t oid = 0;                        // by preflight; 0 = unknown
    std::optional<pgoutput::Relation> announced;  // on this connection, the newest
    std::string bind_error;
    base::PublishedTable published;
  };

  struct Announced {
    base::Lsn in;        // the first transaction that did
    bool again = false;  // another one did, or may have done
  };

  // A partition that is none any more.
  struct Former {
    Outbox* outbox = nullptr;
    base::Lsn gone_lsn;  // rows that commit from here on are not the outbox's
  };

  struct Replaced {
    const Outbox* outbox = nullptr;
    Halt halt;
  };

  struct Messages {
    outbox::MessageMapper mapper;
    envelope::Encoder encoder;
  };

  struct Transaction {
    bool open = false;
    base::Lsn commit_lsn;
    base::WallTime commit_time;  // exactly as the server has it; a replication origin may send any
    bool has_origin = false;     // said before anything else of it
    envelope::TransactionInfo info;
    base::FullXid full_xid;
    std::uint32_t timeline = 0;
    std::uint32_t next_ordinal = 0;  // of events alone: which others are sent may change
    std::uint64_t events = 0;        // taken
    KnownTransactions::Taken taken_through;
    bool known = false;  // something of it was taken, on this connection or before
    // It commits before what is complete, and nothing of it was taken: so it holds nothing of ours.
    bool empty_for_us = false;
  };

  std::optional<Halt> On(const pgoutput::Begin& begin);
  std::optional<Halt> On(const pgoutput::Commit& commit);
  std::optional<Halt> On(const pgoutput::Relation& relation);
  std::optional<Halt> On(const pgoutput::Insert& insert);
  std::optional<Halt> On(const pgoutput::LogicalMessage& message);
  std::optional<Halt> OnOther();

  bool IsOlderThanAdoption(const base::PublishedTable& table) const;
  void OnSentUpTo(base::Lsn position);
  void Complete(base::Lsn position);
  std::optional<Halt> CheckSource(const pgoutput::Insert& insert, std::uint32_t announced);
  bool IsDecided(const Outbox& outbox) const;
  std::optional<Halt> FindOutbox(std::uint32_t oid);
  void SelectOutbox(std::uint32_t oid);
  const Outbox* OwnerOf(std::uint32_t leaf, std::uint32_t published_as) const;
  std::optional<Halt> CheckLeaf(std::uint32_t leaf, std::uint32_t published_as) const;
  void RememberLeaf(std::uint32_t leaf, std::uint32_t published_as);
  bool PublishedByRoot(std::uint32_t partition) const;
  std::optional<Halt> TakeRepeated(std::uint32_t ordinal);
  bool ConcernsUs(const pgoutput::Relation& relation, const Outbox* outbox);
  bool MayBePartition(const pgoutput::Relation& relation) const;
  void TakeFacts(const base::SourceFacts& facts);
  std::optional<Halt> TakeRow(Outbox* outbox, const pgoutput::Insert& insert,
                              std::uint32_t ordinal);
  std::optional<Halt> TakeMessage(const pgoutput::LogicalMessage& message, std::uint32_t ordinal,
                                  std::uint32_t table);
  std::optional<Halt> CheckUnknown(const base::Since& since, std::uint32_t ordinal);
  void AddToTracker(const envelope::Record& record, std::uint32_t ordinal, std::uint32_t table);
  bool TakeRepeat(const outbox::Event& event, std::uint32_t ordinal, std::uint32_t table);
  envelope::Position PositionOf(std::uint32_t ordinal) const;
  absl::Status Add(const outbox::Event& event, envelope::Encoder* encoder, std::uint32_t ordinal,
                   std::uint32_t table);
  // Of a row or message of so many bytes.
  absl::Status CheckSize(std::size_t bytes) const;
  std::size_t BytesOf(const pgoutput::Insert& insert, const pgoutput::Relation& announced) const;
  std::span<const pgoutput::Value> WithoutLarge(std::span<const pgoutput::Value> values);
  std::optional<Halt> Undeliverable(UndeliverableEvent undeliverable, const absl::Status& why);
  void Taken(std::uint32_t ordinal);
  Halt OtherRows() const;
  Halt ProtocolError(const std::string& what) const;
  std::string Place(std::uint32_t ordinal) const;

  delivery::Tracker* const tracker_;
  Counters* const counters_;
  Undeliverables* const undeliverables_;
  envelope::SchemaTable* const schemas_;
  const std::vector<envelope::OutboxOptions> options_;
  const MessagesOptions messages_options_;
  const std::size_t event_bytes_max_;

  base::SourceFacts facts_;
  std::vector<Outbox> outboxes_;
  outbox::AnnouncedTypes types_;
  std::optional<Messages> messages_;
  pgoutput::Decoder decoder_;
  pgoutput::Message message_;
  std::string_view payload_;            // the message that is being taken
  base::Lsn payload_lsn_;               // of the message just taken
  std::vector<pgoutput::Value> small_;  // scratch
  // Relations that are no outbox themselves, and the transaction that was the first on this
  // connection to announce them; at most kAnnouncedMax.
  absl::flat_hash_map<std::uint32_t, Announced> announced_;
  absl::flat_hash_map<std::uint32_t, Outbox*> outbox_by_partition_;
  absl::flat_hash_map<std::uint32_t, Former> former_partitions_;
  // Of the tree that an outbox is a partition of.
  absl::flat_hash_map<std::uint32_t, Outbox*> outbox_by_relative_;
  // By the table whose name its rows come under: the table that a change came from which the
  // catalogs say must not come so. The INSERT that follows is not announced again.
  absl::flat_hash_map<std::uint32_t, std::uint32_t> suspect_leaves_;
  // By relation: another table than the outbox was, first announced by rows that do not count any
  // more.
  absl::flat_hash_map<std::uint32_t, Replaced> replaced_;
  base::Lsn looked_first_lsn_;  // of this connection; the publication was not altered since
  bool announced_forgotten_ = false;
  const Outbox* announced_root_ = nullptr;  // since the last row
  std::uint32_t announced_last_ = 0;        // the same; the table that the next row is stored in
  std::uint32_t last_oid_ = 0;              // of the last row
  Outbox* last_outbox_ = nullptr;

  Transaction transaction_;
  base::FullXid newest_xid_;  // that was seen
  bool must_look_ = false;
  base::Lsn reported_position_;  // by the last keepalive
  base::WallTime frame_at_;      // when the server sent the last frame
  KnownTransactions known_;
  base::Lsn received_lsn_;
  base::Lsn complete_lsn_;    // everything that commits before it was taken, over all connections
  base::Lsn connection_lsn_;  // the same, on this connection only
};

}  // namespace walpost::pipeline
