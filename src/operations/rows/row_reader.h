// RowReader - the rows of one outbox table, read with SQL, as the records that the stream would
// make of them.
// Why: who sends rows again, or compares them with what is in Kafka, reads them all in one snapshot
//   and in the order in which they were made.
// Thread: one owner; blocking.
// Lifetime: a row and its record until the callback returns. `pipeline` and `schemas` must outlive
// it.
// Errors: those of RowEncoder and SqlConnection.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "envelope/control_records.h"
#include "envelope/schema.h"
#include "operations/outcome.h"
#include "operations/rows/row_encoder.h"
#include "postgres/connect.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

// The end of all that is visible to the transaction on `connection`, of a primary or of a standby.
absl::StatusOr<base::Lsn> EndOfSnapshot(postgres::SqlConnection* connection);

// AwaitConfirmed - until the pipeline's slot has confirmed a position: what was committed before it
// is in Kafka then. AwaitReplayed - until a standby has what its primary had.
// Why: an event that is sent again must not come before its first time, and what is not in Kafka
//   yet is not missing. Nobody would notice rows that a standby does not have yet.
// Thread: blocking.

// kDeadlineExceeded after `patience`, kNotFound without a slot: says how far it is and who reads
// it.
absl::Status AwaitConfirmed(const postgres::ConnectOptions& source, base::Lsn position,
                            std::chrono::milliseconds patience);

// Until the server of `standby`, which has no transaction open, has all that `source` has as of the
// call; that may be a standby itself. kAborted after `patience`: says how far behind it is.
absl::Status AwaitReplayed(postgres::SqlConnection* standby, const postgres::ConnectOptions& source,
                           std::chrono::milliseconds patience);

struct ReadRow {
  std::uint64_t number = 0;  // from 0, the same in each reading
  const postgres::Cell& seq;
  // The number of the first row with this seq, of a reading in order; none where seq is NULL or no
  // column is one: the order in which rows lie in a table shows nothing.
  std::optional<std::uint64_t> order;
  const std::string& id;
  // As far as they were read, of a row that is no record, too: its dead letter has them.
  std::string_view topic;
  const std::optional<std::string_view>& key;
  std::optional<std::int64_t> created_ms;    // nothing also where it cannot be true
  absl::StatusOr<envelope::Record>& record;  // or why it is none
};

class RowReader {
 public:
  enum class Reading {
    // Once, in no order, while the transaction is open.
    kAsTheyLie,
    kInOrder,  // once; the transaction ends before, and the server keeps the rows in temporary files
    kTwice,    // the same, any number of times
  };

  // Begins the transaction in whose snapshot rows are to be read (BeginReadOnly); `snapshot` as
  // there.
  static absl::StatusOr<RowReader> Create(postgres::SqlConnection connection,
                                          const PipelineSettings& pipeline, std::uint32_t source,
                                          envelope::SchemaTable* schemas,
                                          const std::string& snapshot = "");

  // Whether the rows hold the id of the transaction that made them, and when it began.
  bool HasTransactionIds() const;
  bool HasTimes() const;

  // Whether the ids are numbers or the like, which a server that was set back gives out again.
  bool IdsMayRepeat() const;

  bool HasOrder() const { return !order_.empty(); }

  // SQL for the column that the mapping reads a field from; empty = none.
  std::string Column(const outbox::ColumnNames& names) const;
  std::string OrderColumn() const;

  // For questions in the same transaction, before Open.
  postgres::SqlConnection* connection() { return &connection_; }

  // False when a row names a transaction that had not begun when it was written, as in the table of
  // a copy.
  absl::StatusOr<bool> TransactionsAreOurs();

  // Since when the table has rows: its oldest partition's begin, or its oldest row; nothing = its
  // rows have no times, or it is empty.
  absl::StatusOr<std::optional<std::int64_t>> BeginsMs();

  // `where`: SQL, about `t`. Whether there is such a row, before Open.
  absl::StatusOr<bool> HasAny(const std::string& where);

  absl::Status Open(const std::string& where, Reading reading);

  std::uint64_t count() const { return count_; }

  using OnRow = std::function<absl::Status(const ReadRow&)>;

  absl::Status ForEach(const OnRow& on_row);

 private:
  RowReader(postgres::SqlConnection connection, RowEncoder encoder,
            const outbox::TableOptions& table);
  absl::Status ReadOrigin();
  absl::Status Take(const postgres::Row& row, std::uint64_t number, const OnRow& on_row);

  postgres::SqlConnection connection_;
  RowEncoder encoder_;
  envelope::Position origin_;  // what all rows have in common: no row says where it was committed
  std::string id_;             // columns
  std::string order_;
  std::string fetch_;  // SQL
  std::uint64_t count_ = 0;
  bool in_order_ = false;
  bool begun_ = false;
  postgres::Cell last_seq_;
  std::uint64_t last_order_ = 0;
};

// RowFilter - which rows of the outbox tables a verb is about.
// Thread: values.
// Errors: kInvalidArgument, for the one who typed: no such table, or the table has no column for
//   what is asked.

// Empty = any.
struct RowFilter {
  std::optional<std::int64_t> from_ms;  // of created_at; included
  std::optional<std::int64_t> to_ms;    // not included
  std::vector<std::string> ids;
  std::string key;
  std::string type;
  std::string table;  // schema.table

  bool empty() const {
    return !from_ms && !to_ms && ids.empty() && key.empty() && type.empty() && table.empty();
  }

  // True if it can choose a row and leave out a newer one of its key.
  bool MayLeaveOutNewer() const { return to_ms || !ids.empty() || !type.empty(); }

  // SQL about `t`.
  absl::StatusOr<std::string> Where(const RowReader& reader,
                                    const outbox::TableOptions& options) const;
};

std::string NameOf(const envelope::OutboxOptions& outbox);

// By the order of the outboxes, those that a filter may find rows in.
absl::StatusOr<std::vector<std::uint32_t>> TablesOf(
    const RowFilter& filter, const std::vector<envelope::OutboxOptions>& outboxes);

// Another server with the same rows.
struct RowsElsewhere {
  std::string conninfo;            // empty = none
  std::chrono::milliseconds wait;  // until it has what the source has; else kAborted
};

// A row reader in a transaction of its own that only reads; `end`: behind all that it sees.
absl::StatusOr<RowReader> BeginReading(const RowsElsewhere& standby,
                                       const PipelineSettings& pipeline, std::uint32_t source,
                                       envelope::SchemaTable* schemas, base::Lsn* end);

}  // namespace walpost::operations
