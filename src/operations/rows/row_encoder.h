// RowEncoder - a row of an outbox table, read with SQL, as the record that the stream makes of it.
// Why: what is sent again, or for the first time from the table, must be what `run` would send; so
//   the same mapper and the same encoder read it, from the same text that the stream carries.
// Thread: one owner; blocking only in Create.
// Lifetime: a record's views and its schema until the next Encode. `outbox` and `schemas` must
// outlive it.
// Errors: Create: kNotFound (no such table), kFailedPrecondition (it does not fit its mapping, or
//   is no plain table), and SqlConnection's. Encode: kInvalidArgument (the row is no event, or no
//   record; says why).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dead_letter.h"
#include "envelope/encoder.h"
#include "envelope/schema.h"
#include "operations/deadletters/dlq.h"
#include "operations/outcome.h"
#include "operations/rows/table_columns.h"
#include "outbox/kept_row.h"
#include "outbox/table_mapper.h"
#include "postgres/sql_connection.h"
#include "registry/resolver.h"

namespace walpost::operations {

// Framer - gives a record that a verb sends the bytes of its schema, as the stream would.
// Why: no dead letter and no row holds them, and the registry may know another schema by now.
// Thread: one owner; blocking.
// Errors: kInvalidArgument (it can have no schema), kNotFound (there is none, or a wrong one; asked
//   once), kAborted (the registry answers, but not about that schema), kUnavailable,
//   kFailedPrecondition (no registry is configured, or a descriptor set cannot be used).
class Framer {
 public:
  // `framings` by the numbers in SchemaNeed::source.
  Framer(registry::RegistryOptions options, std::vector<envelope::FramingOptions> framings)
      : options_(std::move(options)), framings_(std::move(framings)) {}

  // Reads the descriptor sets, where a registry is configured.
  absl::Status Open();

  // A record with room, as an encoder makes them; one that needs nothing stays as it is. `decide`:
  // what would be kAborted is asked for again until it is kNotFound, as in the stream.
  absl::StatusOr<envelope::Record> Frame(const envelope::Record& record,
                                         const envelope::SchemaTable& schemas, bool decide);

 private:
  absl::StatusOr<std::string> FrameFor(const envelope::SchemaNeed& need, bool decide);
  absl::StatusOr<envelope::Schema> Ask(const envelope::SchemaNeed& need, bool decide);

  const registry::RegistryOptions options_;
  const std::vector<envelope::FramingOptions> framings_;
  std::shared_ptr<registry::Resolver> resolver_;  // null until needed
  // Of one table of schemas; or why there is none.
  std::map<envelope::SchemaTable::Ref, absl::StatusOr<std::string>> frames_;
  std::uint64_t epoch_ = 0;  // of the table

  struct Patience {
    std::chrono::milliseconds waited{0};
    std::chrono::steady_clock::time_point at;  // the last unclear answer
  };

  std::map<std::uint32_t, Patience> patience_;  // by SchemaNeed::source
};

// Of outbox.events, and of other tables that have one: the transaction that made the row.
inline constexpr char kTransactionColumn[] = "tx";
inline constexpr std::uint32_t kTransactionType = 5069;  // xid8

class RowEncoder {
 public:
  // Begins the transaction in which the rows are to be read (BeginReadOnly); `snapshot` as there.
  // `source`: as SchemaNeed::source.
  static absl::StatusOr<RowEncoder> Create(postgres::SqlConnection* connection,
                                           const std::string& publication,
                                           const envelope::OutboxOptions& outbox,
                                           std::uint32_t source, envelope::SchemaTable* schemas,
                                           const std::string& snapshot = "");

  // For the rows that dead letters keep, under their columns: no table is read.
  static absl::StatusOr<RowEncoder> CreateForKept(const pgoutput::Relation& relation,
                                                  std::string database,
                                                  const envelope::OutboxOptions& outbox,
                                                  std::uint32_t source,
                                                  envelope::SchemaTable* schemas);

  // `"schema"."table"`.
  const std::string& table() const { return table_; }

  // What is to be selected, in this order: as the columns' output functions write them.
  std::string Columns() const;

  // The column that the mapping reads a field from, the first that the table has; empty = none.
  std::string ColumnOf(const outbox::ColumnNames& names) const { return columns_.Find(names); }

  bool HasColumn(const std::string& name, std::uint32_t type_oid) const {
    return columns_.Has(name, type_oid);
  }

  std::size_t width() const { return columns_.relation.columns.size(); }

  // `row` begins with the columns; what follows is not looked at. Views of it.
  std::vector<pgoutput::Value> ValuesOf(const postgres::Row& row) const;

  absl::StatusOr<envelope::Record> Encode(std::span<const pgoutput::Value> values,
                                          const envelope::Position& position,
                                          const envelope::TransactionInfo& transaction);

  // Of the last row, as far as it was read: also where it became no record. Views as a record's.
  std::string_view topic() const { return event_.topic; }

  const std::optional<std::string_view>& key() const { return event_.key; }

 private:
  RowEncoder() = default;
  absl::Status Bind(outbox::TableOptions table, std::string database,
                    const envelope::OutboxOptions& outbox, std::uint32_t source,
                    envelope::SchemaTable* schemas);

  std::string table_;
  TableColumns columns_;
  std::optional<outbox::TableMapper> mapper_;
  std::optional<envelope::Encoder> encoder_;
  outbox::Event event_;
  envelope::SchemaTable* schemas_ = nullptr;
  std::unique_ptr<base::ChunkArena> arena_;
  std::optional<base::ChunkArena::Block> last_;
};

// TruncatedRow - a truncated dead letter made whole from its row: the one in the outbox table or
// the one that the dead letter keeps.
// Why: it has no record, because that did not fit, or because the row became none. The row in the
//   table may have been corrected since; or the configuration, under which the kept one is read
//   anew; or the topic's limit was raised.
// Rule: whoever may insert may give a row any id. So with the id alone a row of the table is not
//   the one that is meant. It has the transaction (column tx) of the kept row; then it comes first,
//   whatever was corrected. Where that is not known it has the dead letter's key and topic, and the
//   kept row comes first.
// Thread: one owner; blocking.   Lifetime: `options` and `dead_letters` must outlive it.
// Errors: kNotFound (no such row, nor a kept one; or its table is no outbox any more),
//   kFailedPrecondition (several rows, or one with another topic or key, a table that does not fit
//   its mapping, or a parked row that has another topic or key now), kInvalidArgument (the row
//   still becomes no record; says why), and SqlConnection's.
class TruncatedRow {
 public:
  TruncatedRow(const PipelineSettings& options, postgres::DeadLetterTable* dead_letters)
      : options_(options), dead_letters_(dead_letters) {}

  // The same with its record. Its schema is looked up when it is sent. `row` may be without what it
  // keeps.
  absl::StatusOr<base::DeadLetter> Read(const base::DeadLetter& row);

 private:
  // `tx`: of its row; empty = not known.
  absl::StatusOr<base::DeadLetter> FromTable(const envelope::OutboxOptions& outbox,
                                             std::uint32_t source, const base::DeadLetter& row,
                                             const std::string& tx);
  absl::StatusOr<base::DeadLetter> FromTableLocked(const envelope::OutboxOptions& outbox,
                                                   std::uint32_t source,
                                                   const base::DeadLetter& row,
                                                   const std::string& tx);
  // Its bytes.
  absl::StatusOr<std::string> ReadKept(const base::DeadLetter& row);
  absl::StatusOr<base::DeadLetter> FromKept(const envelope::OutboxOptions& outbox,
                                            std::uint32_t source, const base::DeadLetter& row,
                                            const outbox::KeptRow& kept);
  absl::StatusOr<base::DeadLetter> Whole(const base::DeadLetter& row,
                                         std::span<const pgoutput::Value> values);
  absl::StatusOr<postgres::Row> Fetch(const outbox::TableOptions& table,
                                      const base::DeadLetter& row, const std::string& tx);

  const PipelineSettings& options_;
  postgres::DeadLetterTable* const dead_letters_;
  std::optional<postgres::SqlConnection> connection_;
  // Of the last row.
  postgres::Row row_;
  std::optional<RowEncoder> encoder_;
  envelope::SchemaTable schemas_;
};

}  // namespace walpost::operations
