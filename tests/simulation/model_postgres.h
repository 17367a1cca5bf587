// ModelPostgres - a server as walpost sees it: a log of committed transactions, one slot, and
// walsenders that put them on the wire in pgoutput's own bytes.
// Why: what the server does wrong (nothing), forgets (confirmed_flush after a crash) and sends again
//   (exactly the transactions with commit_lsn >= max(confirmed_flush, START)) decides what may be
//   confirmed.
// Thread: one owner.
// Source: docs/design.md, facts 1-5; walsender.c and snapbuild.c of PostgreSQL.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/lsn.h"
#include "base/source_facts.h"
#include "base/time.h"
#include "pgoutput/message.h"
#include "plan.h"
#include "random.h"

namespace walpost::simulation {

// A committed row of an outbox.
struct Event {
  std::string id;
  std::uint32_t table = 0;
  std::uint32_t lane = 0;  // topic and key
  std::uint32_t lane_index = 0;
  std::uint32_t oid = 0;  // of the table it was written to
  std::string key;
  std::string topic;
  std::string payload;
  base::Lsn commit_lsn;
  std::uint64_t system_identifier = 0;
  std::uint32_t timeline = 1;
  std::uint32_t era = 0;  // of the server
  std::uint32_t ordinal = 0;
  bool unfit = false;  // the row becomes no record
  bool gone = false;   // the database does not have it any more
  base::WallTime commit_time;
};

struct Operation {
  enum class Kind { kRow, kOtherRow, kUpdate, kDelete, kTruncate, kMessage };

  Kind kind = Kind::kRow;
  std::uint32_t table = 0;
  std::uint32_t version = 0;  // of the table's columns when it was written
  std::uint32_t oid = 0;      // of the table
  std::uint64_t event = 0;    // kRow: index into events()
};

struct Transaction {
  base::Lsn commit_lsn;
  base::Lsn end_lsn;
  base::WallTime commit_time;
  std::uint32_t xid = 0;
  bool origin = false;
  std::vector<Operation> operations;
};

class ModelPostgres {
 public:
  static constexpr std::uint32_t kTopics = 2;

  explicit ModelPostgres(const Plan& plan);

  // Commits one transaction: with rows, without, rolled back in parts, or large.
  void WriteTransaction(base::WallTime now);
  // WAL that concerns nobody.
  void WriteOther();

  // All that were ever written.
  std::uint64_t written() const { return written_; }

  const std::vector<Event>& events() const { return events_; }

  bool IsPhantom(std::uint64_t number) const { return number < ids_given_; }

  base::Lsn wal_end() const { return wal_end_; }

  std::uint32_t lanes() const { return kTopics * static_cast<std::uint32_t>(plan_.keys); }

  // What a preflight would report now.
  base::SourceFacts Facts() const;

  // --- The slot ---
  base::Lsn confirmed_flush() const { return confirmed_flush_; }

  void Confirm(base::Lsn flush);

  // Written to disk: what a crash goes back to.
  void Checkpoint();
  void Crash();

  // A standby that has everything takes over.
  void Failover();

  // --- Foreign hands ---
  // A history of its own begins with each: positions are used once more.
  std::uint32_t era() const { return era_; }

  // A standby takes over that lacks the last transactions.
  void FailoverLoses();
  // Another server, with nothing of this one's log.
  void BecomeAnotherCluster();

  // The connection string leads to another one for a while.
  void GoElsewhere(bool elsewhere) { elsewhere_ = elsewhere; }

  // False: there is nothing to leave out.
  bool AdvanceSlot();
  void MakeSlotAnew();
  void ReplaceTable();

  void ReplacePublication() { ++publication_oid_; }

  // Rows of a table that was replaced are still in the slot.
  bool SlotHoldsReplaced() const;

  // Of the outboxes.
  const std::vector<std::uint32_t>& oids() const { return oids_; }

  // Where the slot began, as walpost.pipeline says it.
  base::Lsn consistent_point() const { return consistent_point_; }

  // --- A transaction that cannot be decoded, or only now and then ---
  void BreakNextTransaction();

  void MendTransaction() { broken_ = base::Lsn(); }

  base::Lsn broken() const { return broken_; }

 private:
  friend class Walsender;

  void WriteRow(Transaction* transaction, std::uint32_t* ordinal);

  void SkipRow() { ++ids_given_; }

  std::string RowBytes(const Operation& operation) const;
  pgoutput::Relation RelationOf(std::uint32_t table, std::uint32_t version,
                                std::uint32_t oid) const;

  const Plan plan_;
  Random random_;
  Random unfit_;
  Random foreign_;
  std::vector<Transaction> transactions_;
  std::vector<Event> events_;
  std::vector<std::uint32_t> lane_sizes_;
  std::vector<std::uint32_t> versions_;  // of tables; the last one is no outbox
  std::vector<std::uint32_t> oids_;      // the same
  std::uint32_t publication_oid_ = 16'000;
  std::uint64_t written_ = 0;
  std::uint64_t ids_given_ = 0;  // rolled back ones, too
  base::Lsn wal_end_;
  base::Lsn confirmed_flush_;
  base::Lsn persisted_;
  base::Lsn broken_;
  base::Lsn consistent_point_;
  std::uint64_t system_identifier_;
  bool elsewhere_ = false;
  std::uint32_t era_ = 0;
  std::uint32_t timeline_ = 1;
  std::vector<base::TimelineEnd> history_;
};

// One connection's walsender.
class Walsender {
 public:
  Walsender(const ModelPostgres* server, base::Lsn start, Random* random);

  // The next frame; nullopt when everything was sent, or when it failed (see failed()).
  std::optional<std::string> Next();

  std::string Keepalive(bool reply_requested) const;

  // Everything that commits before it was sent.
  base::Lsn sent() const { return sent_; }

  bool in_transaction() const { return in_transaction_; }

  bool caught_up() const;

  // Stopped by a transaction it cannot decode.
  bool failed() const { return failed_; }

 private:
  std::optional<std::string> NextPayload();
  std::optional<std::string> NextOperation(const Transaction& transaction);

  const ModelPostgres* const server_;
  const base::Lsn start_;
  base::Lsn sent_;
  std::size_t transaction_ = 0;
  std::size_t operation_ = 0;
  bool in_transaction_ = false;
  bool origin_sent_ = false;
  bool failed_ = false;
  std::size_t fails_after_ = 0;          // operations of the broken transaction
  std::vector<std::int64_t> announced_;  // version and OID by table; -1 = not yet
};

}  // namespace walpost::simulation
