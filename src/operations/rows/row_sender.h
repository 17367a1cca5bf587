// RowSender - writes records of rows beside the live stream, marked as such.
// Why: a consumer that drops repeats by position must not drop them, and must see that they are repeats.
// Thread: one owner; blocking.
// Errors: those of BulkWriter and Framer.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "envelope/record.h"
#include "envelope/schema_table.h"
#include "kafka/bulk_writer.h"
#include "kafka/kafka_sink.h"
#include "operations/deadletters/dlq.h"
#include "operations/outcome.h"
#include "operations/rows/framer.h"
#include "operations/rows/row_reader.h"
#include "registry/options.h"

namespace walpost::operations {

class RowSender {
 public:
  // `kind`: of the header walpost-redelivery. `on_warning` names each row that is left out; none = nobody.
  RowSender(const kafka::KafkaOptions& kafka, const registry::RegistryOptions& registry,
            const std::vector<envelope::OutboxOptions>& outboxes, std::string_view kind,
            std::chrono::milliseconds patience, OnWarning on_warning);

  RowSender(const RowSender&) = delete;  // the writer calls it back
  RowSender& operator=(const RowSender&) = delete;

  // From here on rows are of this table, and what has a parked key becomes a dead letter behind those
  // of its key instead of a record that overtakes them; until half of what may be open is, since the rest
  // is for events of the stream.
  absl::Status FollowParkedKeys(const PipelineSettings& options, const std::string& source);

  void KnowUnseen(const kafka::UnseenTopics& topics) { writer_.KnowUnseen(topics); }

  // A row of a RowReader that was made with `schemas`. Copied before it returns. kInvalidArgument names
  // a row that makes no record, or none that its topic takes; it may have been given earlier. With
  // `leave_out` it is counted instead.
  absl::Status SendRow(const ReadRow& row, const envelope::SchemaTable& schemas, bool leave_out);

  // Since the last call: how much was sent, and left out, in words.
  std::string TakeAccount();

  // Rows that were left out since their topics take nothing at all: other than a row that can be no
  // record, they are still missing there.
  std::uint64_t closed_out() const { return closed_out_; }

  // Since the last account, whatever the reason.
  std::uint64_t left_out() const { return left_out_; }

  // Until everything is acknowledged.
  absl::Status Flush() { return writer_.Flush(); }

 private:
  absl::Status Send(envelope::Record record, const envelope::SchemaTable& schemas);
  absl::Status Reject(const std::string& id, const absl::Status& why);
  // False: its key is not parked.
  absl::StatusOr<bool> Follow(const envelope::Record& record, const envelope::SchemaTable& schemas);

  std::string source_;
  std::optional<postgres::DeadLetterTable> dead_letters_;
  std::set<base::ParkedKeyId> parked_;
  std::uint64_t dead_letters_max_ = 0;
  std::uint64_t room_ = 0;  // for dead letters
  std::uint64_t followed_ = 0;
  Framer framer_;
  kafka::BulkWriter writer_;
  const std::string kind_;
  const OnWarning on_warning_;
  bool leave_out_ = false;
  std::uint64_t left_out_ = 0;
  std::uint64_t closed_out_ = 0;
};

}  // namespace walpost::operations
