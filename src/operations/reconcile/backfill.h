// Backfill - sends the rows that the stream will not bring: those that were in the outbox tables
// before the slot was made.
// Why: the stream brings exactly what the slot's snapshot does not see; what it sees is in the
//   tables and nowhere else. For a first slot (`init --backfill`) that is every row. For one in
//   place of a slot that was lost (`slot recreate`) it is those of the gap that Kafka does not
//   hold. What is to be done and how far it is stands in walpost.pipeline, so it goes on after an
//   interruption.
// Thread: one owner; blocking.
// Limits: repeats nothing after an interruption: what is in the topics is looked for. Goes on only
//   in tables with a column `tx` of type xid8; of another one it begins again with a new slot.
//   PostgreSQL keeps the rows that are left in temporary files until they are sent.
// Errors: those of reading and writing; kInvalidArgument names the row that cannot be sent.
// Source: docs/database.md, "Start with a table that has rows" and "After a lost slot".
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "envelope/schema.h"
#include "operations/deadletters/dlq.h"
#include "operations/outcome.h"
#include "operations/reconcile/retention_note.h"
#include "operations/reconcile/settled_rows.h"
#include "operations/rows/row_reader.h"
#include "operations/rows/row_sender.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

// What lies between a slot that was lost and the one in its place.
struct Gap {
  std::string cluster;  // system identifier: whose positions these are
  base::Lsn from;       // everything before it is in Kafka; 0/0 = not known
  // Notes of outbox.maintain count up to here: as far as the database itself knows to be delivered.
  // By `from` alone they must not be chosen, which may be of another history of the server. 0/0 =
  // none.
  base::Lsn notes;
  std::optional<std::int64_t> since_ms;  // instead: an operator says so, of created_at

  std::string ToJson() const;
  // On cluster `here`.
  static absl::StatusOr<Gap> FromJson(const std::string& json, const std::string& here);
};

struct BackfillOptions {
  PipelineSettings pipeline;
  std::optional<Gap> gap;           // absent = all rows, unless walpost.pipeline says otherwise
  bool skip_undeliverable = false;  // leave out rows that can be no records, and name them
  bool send_unproven = false;       // also rows of which it is not known whether Kafka has them
  std::string temp_folder;
  std::chrono::milliseconds patience{60'000};
  std::uint64_t note_every = 10'000;  // rows
  OnProgress on_progress;
  OnWarning on_warning;
};

class Backfill {
 public:
  explicit Backfill(const BackfillOptions& options);

  // Of a gap, before anything is changed: whether it is known what Kafka lacks.
  // kFailedPrecondition: it is not, and nobody has said that such rows are to be sent.
  absl::Status CheckGap();
  // Also whether each row can be sent in its order. It reads all of them, and the topics.
  absl::Status CheckRows();

  // Before the slot is made: begins a transaction of `connection`. Until it ends, nobody drops a
  // table or partition whose rows the slot will see, and no outbox.maintain runs. The one that
  // writes the record of the slot, so that neither begins before the record is there. `timeout`:
  // for each lock. kDeadlineExceeded: somebody holds a table for longer.
  absl::Status HoldTables(postgres::SqlConnection* connection,
                          std::chrono::milliseconds timeout) const;

  // While the slot is made: opens what is to be sent in the slot's own snapshot.
  absl::Status OpenIn(const std::string& snapshot);

  // Everything that is left, and the note that nothing is. Lines, in words.
  absl::StatusOr<std::string> Run(RowsLock* lock);

  // Of Run, and of those that it goes on with: as RowSender counts them.
  std::uint64_t curable_out() const { return curable_out_; }

 private:
  struct Left {
    bool begun = false;
    bool done = false;
    std::string seq;                // all rows before it were sent, and one with it; empty = none
    std::uint64_t curable_out = 0;  // of those: left out, as RowSender counts them
  };

  struct Table {
    Left left;
    SettledRows settled_rows;
  };

  // Its transaction reads in `snapshot`, where one is named.
  absl::StatusOr<RowReader> NewReader(std::uint32_t source, const std::string& snapshot = "");
  absl::Status CheckIds();
  absl::Status CheckRest();
  absl::Status CheckTopics();
  // Of all tables that are open.
  absl::Status CheckKeys();
  absl::StatusOr<std::set<std::string>> TopicsOfGap();
  // kFailedPrecondition with `doubt`, unless it is empty or such rows are to be sent anyway.
  absl::Status Judge(const std::string& doubt) const;
  absl::Status ReadPlace();
  // Of every table, before anything of one is sent.
  absl::Status Look(std::uint32_t source);
  absl::StatusOr<std::string> Send(std::uint32_t source);
  // Rows that were not in a snapshot that is known to be older than the gap.
  absl::StatusOr<std::string> Bound(std::uint32_t source, const RowReader& reader,
                                    postgres::SqlConnection* connection);
  absl::Status OpenLater(std::uint32_t source, const std::string& after);
  absl::Status FindSettled(std::uint32_t source);
  absl::Status SendAll(std::uint32_t source, Table* table);
  void CountLeftOut(Left* left);
  absl::Status NoteAt(std::uint32_t source, const ReadRow& row, Left* left);
  absl::StatusOr<Left> ReadNote(const std::string& table);
  absl::Status Note(const std::string& table, const Left& left);
  std::string NameAt(std::uint32_t source) const;
  void ReportProgress(const std::string& what, std::uint64_t done, std::uint64_t of) const;

  const BackfillOptions& options_;
  std::optional<Gap> gap_;
  RowsLock* lock_ = nullptr;
  std::optional<postgres::SqlConnection> connection_;
  std::map<std::uint32_t, RowReader> readers_;  // by source
  std::map<std::uint32_t, std::string> note_warnings_;
  std::string snapshot_;
  envelope::SchemaTable schemas_;
  std::optional<RowSender> sender_;
  std::uint64_t curable_out_ = 0;
  std::uint64_t curable_before_ = 0;   // of the sender, when they were counted last
  std::uint64_t others_left_out_ = 0;  // of the sender, in tables before the one that is sent
  bool left_out_noted_ = false;        // of the one that is sent
  SharedIds shared_ids_;
  std::map<std::uint32_t, Table> tables_;  // by source
};

}  // namespace walpost::operations
