// ModelPostgres - a server as walpost sees it: a log of committed transactions, one slot, and
// walsenders that put them on the wire in pgoutput's own bytes.
// Why: what the server does wrong (nothing), forgets (confirmed_flush after a crash) and sends
//   again (exactly the transactions with commit_lsn >= max(confirmed_flush, START)) decides what
//   may be confirmed.
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
  bool undeliverable = false;  // the row becomes no record
  bool hostile = false;        // because it asks for a topic of walpost's own
  bool too_large = false;      // because it is; so its topic is known, and it parks its key
  bool gone = false;           // the database does not have it any more
  base::WallTime commit_time;
};

struct Operation {
  enum class Kind { kRow, kOtherRow, kUpdate, kDelete, kTruncate, kMessage };

  Kind kind = Kind::kRow;
  std::uint32_t table = 0;
  std::uint32_t version = 0;  // of the table's columns when it was written
  std::uint32_t oid = 0;      // of the table
  std::uint32_t edits = 0;    // of the table, when it was written
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

  // --- The last table, where plan.adopts: no outbox before it is adopted ---
  enum class Adoption {
    kNone,     // its rows are nobody's
    kPending,  // nobody writes to it: which rows count is being decided
    kDone
  };

  Adoption adoption() const { return adoption_; }

  // It is an outbox of the pipeline that connects now.
  void Configure() { configured_ = true; }

  bool configured() const { return configured_; }

  // As another instance has it, whose configuration is newer.
  static constexpr char kPrefixOfAnother[] = "another";

  void ConfigurePrefix() { prefix_configured_ = true; }

  bool prefix_configured() const { return prefix_configured_; }

  // As postgres::Connect: from when on its rows are events.
  base::Adoption BeginAdoption(const base::Progress& remembered, base::WallTime now);

  // walpost reads from it: Kafka remembers what of an adoption this server's log does not have.
  void OnAccepted() { held_below_ = 0; }

  // What was decided is remembered.
  void FinishAdoption() { adoption_ = Adoption::kDone; }

  // An operator decides that whatever `since` does not cover counts. So no row is nobody's there.
  void AdoptByDecision(const base::Since& since);

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

  // It is this server that is a standby, or no longer; connections stay.
  void BecomeStandby() { in_recovery_ = true; }

  bool in_recovery() const { return in_recovery_; }

  void Promote();

  // --- Other clients ---
  // A history of its own begins with each: positions are used once more.
  std::uint32_t era() const { return era_; }

  // A standby takes over that lacks the last transactions, and may have others instead.
  void FailoverLoses();
  // What a backup of its disk would hold.
  void TakeCopy();
  // The disk is put back to that, and goes on from there: on the same timeline, or on a new one.
  // Writes some transactions at once.
  void PutBack(base::WallTime now);
  // Another server, with nothing of this one's log.
  void BecomeAnotherCluster();

  // The connection string leads to another one for a while.
  void GoElsewhere(bool elsewhere) { elsewhere_ = elsewhere; }

  // False: there is nothing to leave out.
  bool AdvanceSlot();
  void MakeSlotAnew();
  void ReplaceTable();

  void ReplacePublication() { ++publication_oid_; }

  // One outbox, or what the publication publishes: rows inserted from here on are in no stream.
  void TakeOut();
  // As it was, but for the numbers of the catalog's rows.
  void PutBack();

  bool taken_out() const { return taken_out_ != Out::kNothing; }

  // Of the first row that may show the last edit.
  const std::optional<base::Lsn>& edit_reported_at() const { return edit_reported_at_; }

  // ANALYZE, GRANT and their like: the server announces the tables again.
  void AnnounceAgain();

  // Rows of a table that was replaced are still in the slot.
  bool SlotHoldsReplaced() const;

  // Of the outboxes.
  const std::vector<std::uint32_t>& oids() const { return oids_; }

  // The last one with rows of an outbox that ends at or before `position`.
  std::vector<base::CommittedTransaction> LastTransactions(base::Lsn position) const;

  // Where the slot began, as walpost.pipeline says it.
  base::Lsn consistent_point() const { return consistent_point_; }

  // --- A transaction that cannot be decoded, or only now and then ---
  void BreakNextTransaction();

  void MendTransaction() { broken_ = base::Lsn(); }

  base::Lsn broken() const { return broken_; }

 private:
  friend class Walsender;

  enum class Out { kNothing, kTable, kEverything };

  bool IsOut(std::uint32_t table) const {
    return taken_out_ == Out::kEverything || (taken_out_ == Out::kTable && table == out_);
  }

  // The state of its disk, without the events.
  struct Copy {
    std::size_t transactions = 0;
    base::Lsn wal_end;
    base::Lsn confirmed_flush;
    std::uint32_t next_xid = 0;
    std::uint32_t timeline = 0;
    std::vector<base::TimelineEnd> history;
  };

  void WriteRow(Transaction* transaction, std::uint32_t* ordinal);

  void SkipRow() { ++ids_given_; }

  std::string RowBytes(const Operation& operation) const;
  pgoutput::Relation RelationOf(std::uint32_t table, std::uint32_t version,
                                std::uint32_t oid) const;

  std::uint32_t NextXid();
  void GoBackToXid(std::uint32_t next_xid);

  const Plan plan_;
  Random random_;
  Random undeliverable_;
  Random foreign_;
  Random adopting_;
  Adoption adoption_ = Adoption::kDone;
  bool configured_ = true;
  bool prefix_configured_ = false;
  std::uint32_t adopted_at_xid_ = 0;
  // Set back to before an adoption, it does not come that far again before walpost has seen and
  // remembered it: nothing would show it.
  std::uint32_t held_below_ = 0;
  std::uint32_t adopted_from_ = 0;        // the first id whose rows of the table are events
  std::vector<std::uint32_t> open_xids_;  // of transactions that began long ago
  std::vector<Transaction> transactions_;
  std::vector<Event> events_;
  std::vector<std::uint32_t> lane_sizes_;
  std::vector<std::uint32_t> versions_;  // of tables; the last one is no outbox
  std::vector<std::uint32_t> oids_;      // the same
  std::vector<std::uint32_t> edits_;     // of the tables
  std::vector<std::uint32_t> memberships_;
  std::uint32_t publication_oid_ = 16'000;
  std::uint32_t publication_xmin_ = 500;
  Out taken_out_ = Out::kNothing;
  std::uint32_t out_ = 0;         // a table
  bool edit_unreported_ = false;  // put back, and no row since
  std::vector<bool> edited_;      // the tables that the edit was about
  std::optional<base::Lsn> edit_reported_at_;
  std::uint64_t written_ = 0;
  std::uint64_t ids_given_ = 0;  // rolled back ones, too
  std::uint32_t next_xid_ = 700;
  std::optional<Copy> copy_;
  std::vector<base::Lsn> used_lsns_;  // of transactions that are gone: used once more
  base::Lsn wal_end_;
  base::Lsn confirmed_flush_;
  base::Lsn persisted_;
  base::Lsn broken_;
  base::Lsn consistent_point_;
  std::uint64_t system_identifier_;
  bool elsewhere_ = false;
  std::uint32_t era_ = 0;
  bool in_recovery_ = false;
  std::uint32_t timeline_ = 1;
  std::vector<base::TimelineEnd> history_;
};

// One connection's walsender.
class Walsender {
 public:
  Walsender(const ModelPostgres* server, base::Lsn start, Random* random);

  // The next frame, sent at `now`; nullopt when everything was sent, or when it failed (see
  // failed()).
  std::optional<std::string> Next(base::WallTime now);

  std::string Keepalive(bool reply_requested, base::WallTime now) const;

  // Nothing that is written from here on is sent.
  void EndHere() { transactions_max_ = server_->transactions_.size(); }

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
  std::size_t transactions_max_ = SIZE_MAX;
  std::size_t transaction_ = 0;
  std::size_t operation_ = 0;
  bool in_transaction_ = false;
  bool origin_sent_ = false;
  bool failed_ = false;
  std::size_t fails_after_ = 0;  // operations of the broken transaction
  bool leaves_others_ = false;   // rows of the table that is no outbox, on this connection

  struct Announced {
    std::uint32_t version = 0;
    std::uint32_t oid = 0;
    std::uint32_t edits = 0;

    friend bool operator==(const Announced&, const Announced&) = default;
  };

  std::vector<Announced> announced_;  // by table; OID 0 = not yet
};

}  // namespace walpost::simulation
