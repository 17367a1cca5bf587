// Connect - opens a replication connection, runs preflight on it, and starts streaming; blocking,
// for a helper thread.
// Why: only the simple query protocol works on a replication connection, and one connection must do
//   both: what preflight saw is then what is streamed, and between START and the end no SQL is
//   sent.
// Thread: any one thread at a time; the stream returned belongs to the loop.
// Units/limits: the whole attempt is bounded by connect_timeout (conninfo, default 10 s) for the
//   connect and `statement_timeout` for the rest.
// Errors: StreamEnd, see replication_stream.h. kOperator names the HaltReason; the status line says
//   what, where, what to do.
// Source: PostgreSQL manual "Streaming Replication Protocol", libpq "Connection Parameters".
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/figures.h"
#include "base/lsn.h"
#include "base/source_facts.h"
#include "postgres/connection.h"
#include "postgres/replication_stream.h"

namespace walpost::postgres {

struct SourceTable {
  std::string schema;
  std::string table;
  // Those that are mapped, as far as the table has them: a column list of the publication must hold
  // them.
  std::vector<std::string> columns = {};
};

struct ConnectOptions {
  std::string conninfo;  // libpq: URI or key=value; PG*, service and password files apply
  std::string slot = "walpost";
  std::string publication = "walpost";
  std::string application_name = "walpost";
  std::vector<SourceTable> tables;  // each must be in the publication
  // Of logical messages that are events: then they are asked for (14+; below it is an operator
  // error), and each that walpost.pipeline records must be among them.
  std::vector<std::string> message_prefixes;
  std::string pipeline;  // whose record and dead letters are looked for; empty = of whatever name
  // Whether preflight asks that dead letters can be written, and whether they stand on another
  // server.
  bool writes_dead_letters = false;
  bool dead_letters_elsewhere = false;
  base::Lsn text_until;  // a stream that begins up to here gets no values in their binary form
  std::chrono::milliseconds statement_timeout{10'000};
  std::chrono::milliseconds lock_timeout{3'000};  // of statements before START
  std::optional<ServerAddress> server = {};  // for LookAgain: absent = any of those in conninfo
};

// Asks exactly the server that a stream talks to: PQping, or about the slot on a second connection.
// Blocking. A copy of what is needed for that: to be used from another thread, while the stream is
// in use.
class Pinger {
 public:
  virtual ~Pinger() = default;
  virtual base::PingAnswer Ping(base::PingQuestion question) = 0;
};

struct Connected {
  std::unique_ptr<ReplicationStream> stream;
  base::SourceFacts facts;
  std::unique_ptr<Pinger> pinger;
  std::string clear_text_peer = {};      // as ClearTextPeer
  std::string delivered_not_noted = {};  // as NoteDelivered
  ServerAddress server = {};
};

// Asked between preflight and START, when the slot is known to be free: may add what is remembered
// to the facts (its position counts for where streaming starts), or end the attempt. Asked once
// more behind START, when nobody else can use the slot any more. May block.
using Guard = std::function<std::optional<StreamEnd>(base::SourceFacts* facts)>;

// Streaming starts at max(start_lsn, the slot's confirmed_flush_lsn, the commit LSN of the last
// transaction that `guard` remembers); 0/0 = the slot's. Preflight, in this order: server version
// >= 13; IDENTIFY_SYSTEM; a primary (or, from 16, a standby); the slot exists (slot_missing), is
// logical, pgoutput and of this database (slot_foreign), is not lost (slot_invalidated), not in use
// (kSlotInUse); the publication exists (publication_missing), publishes inserts and holds every
// table, each whole: no row filter, no column list that lacks a mapped column, no partition that
// writes no log (publication_missing, naming it); where walpost.pipeline records this slot with
// another system identifier: cluster_changed; where it records a message prefix that is not among
// ours: init_incomplete. Where all that holds, how far was delivered is noted there: NoteDelivered.
// Until START others may move the slot, or decide where streaming goes on. So behind START the slot
// is read again on another connection, and `guard` is asked again: kLost when either has changed.
std::variant<Connected, StreamEnd> Connect(const ConnectOptions& options, base::Lsn start_lsn,
                                           const Guard& guard = nullptr);

}  // namespace walpost::postgres
