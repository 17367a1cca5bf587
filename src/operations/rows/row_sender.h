// RowSender - writes records of rows beside the live stream, marked as such.
// Why: a consumer that drops repeats by position must not drop them, and must see that they are
// repeats.
// Thread: one owner; blocking.
// Errors: those of BulkWriter and Framer.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dead_letter.h"
#include "base/text.h"
#include "envelope/record.h"
#include "envelope/schema.h"
#include "kafka/bulk_writer.h"
#include "kafka/kafka_sink.h"
#include "operations/deadletters/dlq.h"
#include "operations/outcome.h"
#include "operations/rows/row_encoder.h"
#include "operations/rows/row_reader.h"
#include "outbox/event.h"
#include "outbox/event_router.h"
#include "postgres/dead_letter_cells.h"
#include "postgres/sql_connection.h"
#include "registry/http.h"

namespace walpost::operations {

class RowSender {
 public:
  // `kind`: of the header walpost-redelivery. `on_warning` names each row that is left out; none =
  // nobody.
  RowSender(const kafka::KafkaOptions& kafka, const registry::RegistryOptions& registry,
            const std::vector<envelope::OutboxOptions>& outboxes, std::string_view kind,
            std::chrono::milliseconds patience, OnWarning on_warning);

  RowSender(const RowSender&) = delete;  // the writer calls it back
  RowSender& operator=(const RowSender&) = delete;

  // From here on rows are of this table, and what has a parked key becomes a dead letter behind
  // those of its key instead of a record that overtakes them; until half of what may be open is,
  // since the rest is for events of the stream.
  absl::Status FollowParkedKeys(const PipelineSettings& options, const std::string& source);

  void KnowUnseen(const kafka::UnseenTopics& topics) { writer_.KnowUnseen(topics); }

  // A row of a RowReader that was made with `schemas`. Copied before it returns. kInvalidArgument
  // names a row that makes no record, or none that its topic takes; it may have been given earlier.
  // With `leave_out` it is counted instead.
  absl::Status SendRow(const ReadRow& row, const envelope::SchemaTable& schemas, bool leave_out);

  // Since the last call: how much was sent, and left out, in words.
  std::string TakeAccount();

  // Rows that were left out since their topics take nothing at all, or there is no schema for them:
  // other than a row that can be no record, they are still missing.
  std::uint64_t curable_out() const {
    return schemas_out_before_ + schemas_out_ + writer_.closed_out();
  }

  // Since the last account, whatever the reason.
  std::uint64_t left_out() const { return left_out_; }

  // Until everything is acknowledged.
  absl::Status Flush() { return writer_.Flush(); }

 private:
  absl::Status Send(envelope::Record record, const envelope::SchemaTable& schemas);
  absl::Status RejectSchema(const std::string& id, const absl::Status& why);
  absl::Status Reject(const std::string& id, const absl::Status& status);
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
  std::uint64_t schemas_out_ = 0;
  std::uint64_t schemas_out_before_ = 0;  // the last account
};

// Id - the id of an event as rows, records and dead letters have it, to find what is about the same
// event.
// Why: a record of another writer's, or a row, may have an id of any length; a dead letter has a
// longer one cut.

// Of an id that is longer than it may be, all of it: base::WideHash, in a form that has no
// constructor.
using WholeId = std::array<std::uint64_t, 2>;

struct Id {
  std::string text;  // as a dead letter has it: a longer one is cut
  WholeId whole{};   // 0 = `text` is
};

inline Id IdOf(std::string_view id) {
  if (id.size() <= outbox::kIdBytesMax) {
    return {std::string(id)};
  }
  const base::WideHash whole = base::WideHashOf(id);
  return {postgres::Text(id, base::DeadLetter::kTextBytesMax, /*ascii=*/false),
          {whole.first, whole.second}};
}

// SharedIds - outboxes whose events may have the same ids in the same topic.
// Why: a record does not name its table. A record with a row's id may then be about a row of
//   another table, so it does not show that this row is delivered. Such ids are called shared.
// Rule: both may give the topic, and neither table's ids are of type uuid.
// Thread: a value; reading it blocks.
// Errors: those of SqlConnection. A table that does not exist shares nothing.
// Source: docs/database.md, "Tables with the same ids".
class SharedIds {
 public:
  SharedIds() = default;  // none

  static absl::StatusOr<SharedIds> Read(const std::vector<outbox::TableOptions>& tables,
                                        const std::string& publication,
                                        postgres::SqlConnection* connection);
  static absl::StatusOr<SharedIds> Read(const PipelineSettings& pipeline);

  // Tables by their names, schema.table.
  using Pair = std::pair<std::string, std::string>;

  const std::vector<Pair>& pairs() const { return pairs_; }

  // Whether a record of `topic` with the id of a row of `table` may be about another table's.
  bool In(std::string_view table, std::string_view topic) const;

  // Names both.
  static std::string TextOf(const Pair& pair);

  // Why it is not known which rows of `tables` are missing, and what to do; empty = it is known.
  std::string TextAbout(const std::vector<std::string>& tables) const;

 private:
  struct Table {
    std::string name;
    outbox::TopicReach reach;
  };

  std::vector<Table> tables_;  // those in pairs
  std::vector<Pair> pairs_;
};

inline constexpr char kSharedIdsCure[] =
    "give the ids the type uuid, or each table a topic of its own";

}  // namespace walpost::operations
