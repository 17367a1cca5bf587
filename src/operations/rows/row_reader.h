// RowReader - the rows of one outbox table, read with SQL, as the records that the stream would make
// of them.
// Why: who sends rows again, or compares them with what is in Kafka, reads them all in one snapshot
//   and in the order in which they were made.
// Thread: one owner; blocking.
// Lifetime: a row and its record until the callback returns. `outbox` and `schemas` must outlive it.
// Errors: those of RowEncoder and SqlConnection.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envelope/position.h"
#include "envelope/schema_table.h"
#include "operations/pipeline_settings.h"
#include "operations/rows/row_encoder.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

struct ReadRow {
  std::uint64_t number = 0;  // from 0, the same in each reading
  const postgres::Cell& seq;
  // The number of the first row with this seq, of a reading in order; none where seq is NULL or no column
  // is one: the order in which rows lie in a table shows nothing.
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

  // Begins the transaction in whose snapshot rows are to be read (BeginReadOnly); `snapshot` as there.
  static absl::StatusOr<RowReader> Create(postgres::SqlConnection connection,
                                          const std::string& publication,
                                          const envelope::OutboxOptions& outbox,
                                          std::uint32_t source, envelope::SchemaTable* schemas,
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

  // False when a row names a transaction that had not begun when it was written, as in the table of a copy.
  absl::StatusOr<bool> TransactionsAreOurs();

  // Since when the table has rows: its oldest partition's begin, or its oldest row; nothing = its rows
  // have no times, or it is empty.
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

}  // namespace walpost::operations
