// KeptRow - a row that became no record, as its dead letter keeps it: what the stream had of it.
// Why: its table may not have it any more when an operator decides: ephemeral tables never do, and
//   applications delete rows, too. The names, types and values are there, so the mapper makes an
//   event of them under a configuration that was corrected meanwhile.
// Form: a mark, the length of a pgoutput Relation message in four bytes, that message, and the
//   Insert message as it came. The types are built-in ones: what a domain is, no later reader has
//   to know.
// Thread: values.   Lifetime: a parsed row's values point into the bytes that were given.
// Limits: DeadLetter::kRecordBytesMax.
// Errors: Parse: kDataLoss for bytes that are no such row, since operators may write there, too.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "outbox/table_mapper.h"
#include "pgoutput/decoder.h"

namespace walpost::outbox {

// Of a row that is being taken from the stream.
struct StreamedRow {
  const TableMapper* mapper = nullptr;           // knows the types that the stream described
  const pgoutput::Relation* relation = nullptr;  // in force
  std::string_view insert;                       // the message
};

// Nothing where it is larger than a dead letter keeps.
std::optional<std::string> KeepRow(const StreamedRow& row);

class KeptRow {
 public:
  static absl::StatusOr<KeptRow> Parse(std::string_view bytes);

  const pgoutput::Relation& relation() const { return relation_; }

  // One for each column.
  std::span<const pgoutput::Value> values() const { return values_; }

 private:
  KeptRow() = default;

  pgoutput::Relation relation_;
  std::vector<pgoutput::Value> values_;
};

}  // namespace walpost::outbox
