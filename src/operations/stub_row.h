// StubRow - the event of a stub, made anew from its row in the outbox table.
// Why: a stub has neither value nor headers, because they did not fit, or because the row became no
//   record; the row may have been mended since, or the topic's limit raised.
// Thread: one owner; blocking.   Lifetime: a record's views until the next Read.
// Errors: kNotFound (no such row, or its table is no outbox any more), kFailedPrecondition (several
//   rows, or a table that does not fit its mapping), kInvalidArgument (the row still becomes no
//   record; says why), and SqlConnection's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "envelope/letter.h"
#include "operations/dlq.h"
#include "operations/row_encoder.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

class StubRow {
 public:
  explicit StubRow(const DlqOptions& options) : options_(options) {}

  // `commit_time_ms` is told where the letter knows none; `to_topic` replaces the row's, when given.
  absl::StatusOr<envelope::Record> Read(const envelope::Letter& letter, std::int64_t commit_time_ms,
                                        const std::string& to_topic);

  // Where Record::schema points.
  const envelope::SchemaTable& schemas() const { return schemas_; }

 private:
  absl::StatusOr<postgres::Row> Fetch(const outbox::TableOptions& table, const std::string& id);

  const DlqOptions& options_;
  std::optional<postgres::SqlConnection> connection_;
  // Of the last row.
  postgres::Row row_;
  std::optional<RowEncoder> encoder_;
  envelope::SchemaTable schemas_;
};

}  // namespace walpost::operations
