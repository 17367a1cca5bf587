// Slots - list, create and drop logical replication slots, for the verbs.
// Why: creating by the replication command alone gives the consistent point together with a
//   snapshot of exactly that moment, which later shows which rows the stream will not bring.
// Thread: one owner; blocking.
// Units/limits: creating waits for every transaction that runs at that moment; after `timeout` it
//   is cancelled, nothing is left behind, and the error names who was waited for.
// Errors: kInvalidArgument (no slot can have that name), kDeadlineExceeded (creation waited too
//   long), kAlreadyExists, kNotFound, else as SqlConnection.
// Source: PostgreSQL manual, "pg_replication_slots", "Streaming Replication Protocol",
//   CREATE_REPLICATION_SLOT.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "postgres/connect.h"
#include "postgres/server_watch.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {

// A row of pg_replication_slots. What a version does not have is empty or false.
struct SlotInfo {
  std::string name;
  std::string plugin;    // empty for a physical slot
  std::string type;      // logical, physical
  std::string database;  // empty for a physical slot
  bool temporary = false;
  bool active = false;
  std::int64_t active_pid = 0;
  base::Lsn restart_lsn;
  base::Lsn confirmed_flush_lsn;
  std::string wal_status;                      // reserved, extended, unreserved, lost
  std::optional<std::int64_t> safe_wal_size;   // bytes until `lost` is possible; absent = no limit
  std::optional<std::int64_t> retained_bytes;  // WAL the server keeps for it
  std::string invalidation_reason;             // 16 and newer
  std::string inactive_since;                  // 17 and newer
  bool failover = false;                       // 17 and newer
  bool synced = false;                         // 17 and newer

  bool lost() const { return wal_status == "lost" || !invalidation_reason.empty(); }
};

// What to select of pg_replication_slots s: text, NULL when the server gives no reason.
std::string InvalidationReasonColumn(int version);

// All slots of the cluster, by name.
absl::StatusOr<std::vector<SlotInfo>> ListSlots(SqlConnection* connection);

// nullopt when there is none of that name.
absl::StatusOr<std::optional<SlotInfo>> FindSlot(SqlConnection* connection,
                                                 const std::string& name);

struct CreateSlotOptions {
  std::string conninfo;
  std::string slot = "walpost";
  std::string application_name = "walpost";
  bool failover = false;  // needs 17
  std::chrono::milliseconds timeout{30'000};
  // Called once, with the name of a snapshot of exactly that moment, for SET TRANSACTION SNAPSHOT
  // on other connections while it runs. An error drops the slot again.
  std::function<absl::Status(const std::string&)> on_snapshot;
  // In place of a slot of that name, which this drops. Called when nothing can be waited for any
  // more; an error before it, or its own, changes nothing. Needs one slot more than there are, for
  // a moment.
  std::function<absl::Status()> drop_old;
};

struct CreatedSlot {
  base::Lsn consistent_point;
  // pg_current_snapshot() at the consistent point, "xmin:xmax:xip,...": what it sees is not in the
  // stream.
  std::string snapshot;
};

// A logical slot with pgoutput.
absl::StatusOr<CreatedSlot> CreateSlot(const CreateSlotOptions& options);

absl::Status DropSlot(SqlConnection* connection, const std::string& name);

// SlotHold - keeps a slot in use, so that nobody can begin to stream from it or move it. Takes
// nothing out of it.
// Why: an operator's decision about a slot consists of several writes, and `run` must not begin to
//   stream between two of them, or between a look at the slot and what is recorded by it.
// Thread: one owner; blocking.   Lifetime: the slot is free again when it ends.
// Units/limits: the end waits 2 s at most for the server to let go.
// Errors: kFailedPrecondition (somebody else uses it, or it cannot be streamed from), kUnavailable.
class SlotHold {
 public:
  static absl::StatusOr<SlotHold> Take(const ConnectOptions& options);

  // Whether it still has the slot, by `connection`: a server may have ended it. Asked in the
  // transaction that writes, before its commit. kFailedPrecondition: it has not.
  absl::Status Check(SqlConnection* connection) const;

  ~SlotHold();
  SlotHold(SlotHold&&) = default;
  SlotHold& operator=(SlotHold&&) = delete;

 private:
  SlotHold(std::string slot, int pid, std::unique_ptr<ReplicationStream> stream,
           std::unique_ptr<Pinger> pinger)
      : slot_(std::move(slot)),
        pid_(pid),
        stream_(std::move(stream)),
        pinger_(std::move(pinger)),
        keep_alive_(std::make_unique<KeepAlive>(stream_.get(), pinger_.get())) {}

  std::string slot_;
  int pid_;  // of the server's process
  std::unique_ptr<ReplicationStream> stream_;
  std::unique_ptr<Pinger> pinger_;
  std::unique_ptr<KeepAlive> keep_alive_;
};

// ConnectTemporarySlot - a second replication stream, from a temporary slot that ends with the
// connection.
// Why: to look at events as they come, without consuming any from the production slot.
// Thread: any one thread; blocking, as Connect.
// Units/limits: creating the slot waits for the transactions that run at that moment, up to
//   ConnectOptions::statement_timeout. The configured slot is read at most.
// Errors: as Connect.
// Source: PostgreSQL manual, "Streaming Replication Protocol"; pg_copy_logical_replication_slot.

// `from_slot`: with what the configured slot has not confirmed; else from this moment on. Without a
// pinger.
std::variant<Connected, StreamEnd> ConnectTemporarySlot(const ConnectOptions& options,
                                                        bool from_slot);

}  // namespace walpost::postgres
