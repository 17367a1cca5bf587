// TruncatedRow - a truncated dead letter made whole from its row in the outbox table.
// Why: it has neither value nor headers, because they did not fit, or because the row became no
//   record; the row may have been corrected since, or the topic's limit raised.
// Thread: one owner; blocking.   Lifetime: `options` must outlive it.
// Errors: kNotFound (no such row, or its table is no outbox any more), kFailedPrecondition (several
//   rows, or a table that does not fit its mapping), kInvalidArgument (the row still becomes no
//   record; says why), and SqlConnection's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dead_letter.h"
#include "operations/dlq.h"
#include "operations/row_encoder.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

class TruncatedRow {
 public:
  explicit TruncatedRow(const DlqOptions& options) : options_(options) {}

  // The same with its record. Its schema is looked up when it is sent.
  absl::StatusOr<base::DeadLetter> Read(const base::DeadLetter& row);

 private:
  absl::StatusOr<base::DeadLetter> ReadFrom(const DlqOutbox& outbox, std::uint32_t source,
                                            const base::DeadLetter& row);
  absl::StatusOr<postgres::Row> Fetch(const outbox::TableOptions& table, const std::string& id);

  const DlqOptions& options_;
  std::optional<postgres::SqlConnection> connection_;
  // Of the last row.
  postgres::Row row_;
  std::optional<RowEncoder> encoder_;
  envelope::SchemaTable schemas_;
};

}  // namespace walpost::operations
