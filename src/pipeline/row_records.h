// RowRecords - the records that rows of walpost.dead_letters are sent as.
// Thread: loop thread.   Lifetime: `schemas` must outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dead_letter.h"
#include "envelope/record.h"
#include "envelope/schema_table.h"
#include "pipeline/options.h"

namespace walpost::pipeline {

class RowRecords {
 public:
  // `schemas` may be null where nothing is framed.
  RowRecords(const PipelineOptions& options, envelope::SchemaTable* schemas);

  static bool HasRecord(const base::DeadLetter& row);

  // Of the row's own bytes, which must outlive it, as `headers` must. A schema it needs is looked up as for any
  // other record.
  envelope::Record Of(const base::DeadLetter& row, std::string_view topic,
                      std::vector<envelope::RecordHeader>* headers) const;

 private:
  std::uint32_t SourceOf(const std::string& source) const;

  envelope::SchemaTable* const schemas_;
  std::vector<std::string> tables_;  // of the outboxes, in their order
};

}  // namespace walpost::pipeline
