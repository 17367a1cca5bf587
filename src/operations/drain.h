// Drain - sends the rows that were in the outbox tables before the slot, for `init --drain-existing`.
// Why: the stream brings exactly what the slot's snapshot does not see; what it sees is in the tables
//   and nowhere else. Who saw what stands in walpost.pipeline, so a drain that was interrupted goes
//   on, and no long transaction is needed for it.
// Thread: one owner; blocking.
// Limits: repeats nothing after a crash: what came after the last note is looked for in the topics.
//   A table without a column `tx` of type xid8 is read by the cursor that was opened in the slot's own
//   snapshot; an interrupted drain of one begins again with a new slot.
//   PostgreSQL keeps the rows that are left in temporary files until they are sent.
// Errors: those of reading and writing; kInvalidArgument names the row that cannot be sent.
// Source: docs/database.md, "Start with a table that has rows".
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envelope/schema_table.h"
#include "kafka/bulk_writer.h"
#include "kafka/kafka_sink.h"
#include "operations/dlq.h"
#include "operations/framer.h"
#include "operations/row_encoder.h"
#include "operations/sent_ids.h"
#include "postgres/sql_connection.h"
#include "registry/options.h"

namespace walpost::operations {

struct DrainOptions {
  std::string name;  // of the pipeline
  postgres::ConnectOptions source;
  kafka::KafkaOptions kafka;
  std::vector<DlqOutbox> outboxes;
  registry::RegistryOptions registry;
  std::chrono::milliseconds patience{60'000};
  std::uint64_t note_every = 10'000;  // rows
  // How far it is, for a terminal.
  std::function<void(const std::string& table, std::uint64_t sent, std::uint64_t of)> on_progress;
};

class Drain {
 public:
  explicit Drain(const DrainOptions& options);

  // While the slot is made: opens what can be read in its snapshot only.
  absl::Status OpenIn(const std::string& snapshot);

  // Everything that is left, and the note that nothing is. A line for each table, in words.
  absl::StatusOr<std::string> Run();

 private:
  struct Left {
    bool begun = false;
    bool done = false;
    std::string seq;         // sent up to and with it; empty = none
    std::int64_t at_ms = 0;  // what was sent behind it is not older
  };

  absl::StatusOr<std::string> Table(std::uint32_t place);
  absl::Status Open(const RowEncoder& encoder, const std::string& order, const std::string& where,
                    postgres::SqlConnection* connection);
  absl::Status OpenLater(std::uint32_t place, const RowEncoder& encoder, const std::string& order,
                         const std::string& after);
  absl::Status SendAll(const std::string& table, std::uint32_t place, RowEncoder* encoder,
                       bool has_order);
  absl::Status Send(const postgres::Row& row, RowEncoder* encoder, bool has_order);
  absl::StatusOr<Left> ReadNote(const std::string& table);
  absl::Status Note(const std::string& table, const Left& left);
  absl::Status ReadPlace();

  const DrainOptions& options_;
  std::optional<postgres::SqlConnection> connection_;
  std::map<std::uint32_t, postgres::SqlConnection> cursors_;  // by the outbox's place
  std::string snapshot_;
  envelope::Position position_;  // what all of them have in common
  envelope::SchemaTable schemas_;
  Framer framer_;
  std::optional<kafka::BulkWriter> writer_;
  std::optional<SentIds> sent_before_;  // of a drain that goes on
  std::uint64_t sent_ = 0;
  std::uint64_t found_ = 0;  // sent before
};

}  // namespace walpost::operations
