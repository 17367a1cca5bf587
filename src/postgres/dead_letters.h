// DeadLetterTable - walpost.dead_letters: what `run` writes there and reads back, and what the
// verbs decide.
// Why: one table is all that is remembered of dead letters and parked keys, so `run` and the verbs
//   cannot read different things out of it.
// Thread: one owner; blocking.
// Units/limits: texts are cut at base::DeadLetter::kTextBytesMax.
// Errors: SqlConnection's. Open: kNotFound where the table is missing, kFailedPrecondition where it
//   belongs to another cluster or database than the source, kUnavailable on an earlier timeline.
// Rules: pipeline, position and event id identify a row of the stream, so writing it again changes
//   nothing; what has no position is another row each time. Rows of another cluster, which came
//   with a dump, count for nothing but CountForeign.
// Source: sql/V1__walpost.up.sql, docs/dead-letters.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dead_letter.h"
#include "base/lsn.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {

// How long a statement may take whose parameters or rows have so many bytes on the line. A time for
// all of them would never be enough for the largest on a slow line; one without end would hold up
// the thread.
std::chrono::seconds StatementTimeFor(std::size_t bytes);

class DeadLetterTable {
 public:
  // Beyond it a reading ends early.
  static constexpr std::size_t kReadBytesMax = std::size_t{1} << 20U;

  // What is streamed from; 0 and empty = any.
  struct Source {
    std::uint64_t system_identifier = 0;
    std::string database = {};  // in another one outbox.maintain would not see that a row is needed
    std::uint32_t timeline = 0;  // a primary on an earlier one was replaced, and came back
  };

  // `server`: of several in the conninfo, this one. No statement waits for a lock for more than 5
  // s: kUnavailable.
  static absl::StatusOr<DeadLetterTable> Open(
      const std::string& conninfo, const std::string& application_name, std::string pipeline,
      const Source& source, const std::optional<ServerAddress>& server = std::nullopt);

  // From here on each statement has StatementTimeFor its bytes.
  absl::Status LimitStatements();

  struct Inserted {
    std::vector<base::DeadLetterState> states;  // of each row, as it is now
    std::uint64_t written = 0;                  // as Written::rows
  };

  // --- What `run` does ---
  // In this order, in one statement where the database has all their characters.
  // `only_known`: rows that are only looked for; empty = none.
  absl::StatusOr<Inserted> Insert(const std::vector<base::DeadLetter>& rows,
                                  const std::vector<bool>& only_known = {});

  struct Written {
    std::uint64_t rows = 0;  // that the pipeline ever wrote: never less than before in one history
    bool in_recovery = false;  // some may still be on their way from the primary
  };

  absl::StatusOr<Written> CountWritten();
  // The next open rows of parked keys behind `after`, about kReadBytesMax; none = these were all.
  absl::StatusOr<std::vector<base::ParkedKey>> ReadParked(std::int64_t after);
  // The next rows, but those of ReadSent, whose event commits at `from` and their number is behind
  // `after`, or commits later: seq, position, event_id, in this order. None = these were all.
  absl::StatusOr<std::vector<base::DeadLetter>> ReadRowsFrom(base::Lsn from, std::int64_t after);
  // The next rows that were parked and sent, behind this position, whole, about kReadBytesMax. None
  // = these were all.
  absl::StatusOr<std::vector<base::DeadLetter>> ReadSent(const std::string& after,
                                                         std::size_t limit);
  // Of the rows that were sent and whose events commit before `lsn`, about kReadBytesMax: how many.
  absl::StatusOr<std::size_t> DeleteSentBefore(base::Lsn lsn);
  absl::StatusOr<std::uint64_t> CountOpen();
  absl::StatusOr<std::uint64_t> CountForeign();

  struct Decided {
    std::optional<base::DeadLetter> row;  // without the record
    std::string waits_for;                // empty = none of the decisions waits for the stream
  };

  // The oldest decision that `run` can carry out. A retry of a parked key waits until its row is
  // before `streamed_to`: where there is no other decision, the position of the first that waits.
  absl::StatusOr<Decided> NextDecision(const std::string& streamed_to, bool retries_only = false);
  // The oldest discard that is about neither this parked key nor the row `seq`; without a key: that
  // row.
  absl::StatusOr<std::optional<base::DeadLetter>> NextDiscardBeside(
      std::int64_t seq, const std::string& topic, const std::optional<std::string>& key);
  // The first open rows of a parked key, by place and seq, that stand before `place`; or the row
  // `seq` alone. Whole, about kReadBytesMax.
  absl::StatusOr<std::vector<base::DeadLetter>> ReadKey(const std::string& topic,
                                                        const std::string& key,
                                                        const std::string& place,
                                                        std::size_t limit);
  // None: it is closed. Not `whole`: without the record.
  absl::StatusOr<std::vector<base::DeadLetter>> ReadRow(std::int64_t seq, bool whole);
  // `keep`: it stays, closed.
  // True: it was open until now.
  absl::StatusOr<bool> Delivered(std::int64_t seq, bool keep);
  // False: it is to be discarded no more, or was closed.
  absl::StatusOr<bool> Discarded(std::int64_t seq);
  // Those rows that a decision about the key is about. Later ones are to be sent: those behind the
  // last of them, or behind `after` where it is closed; also one that is just being added behind
  // them. False: there were none.
  absl::StatusOr<bool> KeyDiscarded(const std::string& topic, const std::string& key,
                                    std::int64_t after);
  // The decision to send the row, and others of its key, is taken back; none to discard is.
  // `unpark`: only that about the row, which is of no parked key any more.
  absl::Status RetryFailed(std::int64_t seq, const std::string& detail, bool unpark = false);
  absl::StatusOr<bool> KeyIsOpen(const std::string& topic, const std::string& key);
  // Rows of the key behind `after` about which nobody has ever decided are to be sent.
  absl::Status RetryBehind(const std::string& topic, const std::string& key, std::int64_t after);

  // Of an event that is sent beside the stream. False: its key is not parked, and nothing was
  // written. A release of the key either sees the row or has ended before.
  absl::StatusOr<bool> InsertBehindParked(base::DeadLetter row);

  // --- What verbs do ---
  using OnRow = std::function<absl::Status(const base::DeadLetter&)>;
  // Of the pipeline, in their order, in pieces of about kReadBytesMax. `where`: over the columns,
  // with parameters from $2 on.
  absl::Status ForEach(const std::string& where, const std::vector<Cell>& parameters, bool whole,
                       const OnRow& on_row);
  // About these rows, which may have been closed meanwhile: how many were open.
  absl::StatusOr<std::uint64_t> Decide(const std::vector<std::int64_t>& rows,
                                       base::DeadLetter::Decision decision, bool of_key,
                                       const std::string& send_to);
  // The row holds a record again. False: it is closed.
  absl::StatusOr<bool> Restore(const base::DeadLetter& row);

  SqlConnection* connection() { return &connection_; }

 private:
  DeadLetterTable(SqlConnection connection, std::string pipeline)
      : connection_(std::move(connection)), pipeline_(std::move(pipeline)) {}

  bool LacksCharacter() const;  // why the last statement failed
  absl::StatusOr<bool> DiscardKey(const std::string& topic, const std::string& key,
                                  std::int64_t after);
  absl::StatusOr<std::uint64_t> InsertOneByOne(const std::vector<base::DeadLetter>& rows);
  absl::StatusOr<std::uint64_t> Write(const std::vector<base::DeadLetter>& rows);
  absl::StatusOr<std::uint64_t> InsertAs(const std::vector<base::DeadLetter>& rows, bool ascii);
  absl::StatusOr<std::vector<base::DeadLetter>> Select(const std::string& rest,
                                                       const std::vector<Cell>& parameters,
                                                       bool whole);
  // With the time that it needs. `bytes_back`: of the rows, where they may be many.
  absl::StatusOr<std::vector<Row>> Query(const std::string& sql,
                                         const std::vector<Cell>& parameters,
                                         std::size_t bytes_back = 0);
  absl::Status AllowFor(std::size_t bytes);

  SqlConnection connection_;
  std::string pipeline_;
  std::optional<std::chrono::seconds> statement_for_;  // in force
};

}  // namespace walpost::postgres
