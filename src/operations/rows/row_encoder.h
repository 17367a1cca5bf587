// RowEncoder - a row of an outbox table, read with SQL, as the record that the stream makes of it.
// Why: what is sent again, or for the first time from the table, must be what `run` would send; so the
//   same mapper and the same encoder read it, from the same text that the stream carries.
// Thread: one owner; blocking only in Create.
// Lifetime: a record's views and its schema until the next Encode. `outbox` and `schemas` must outlive it.
// Errors: Create: kNotFound (no such table), kFailedPrecondition (it does not fit its mapping, or is no
//   plain table), and
//   SqlConnection's. Encode: kInvalidArgument (the row is no event, or no record; says why).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/chunk_arena.h"
#include "envelope/encoder.h"
#include "operations/pipeline_settings.h"
#include "operations/rows/table_columns.h"
#include "outbox/table_mapper.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

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

}  // namespace walpost::operations
