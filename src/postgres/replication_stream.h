// ReplicationStream - the seam to PostgreSQL: a replication connection on which START_REPLICATION
// has succeeded.
// Why: the loop and the tests need the same few verbs of it, whether libpq or a fake is behind
//   them.
// Thread: one owner (the loop); nothing blocks.
// Lifetime: a frame's bytes live until the next call of any method. Contract
//   (tests/conformance/stream_contract.h, run on fake and real server): frames come whole and in
//   the server's order; kEnded is final and end() then says why; after not calling Receive nothing
//   is read from the socket, so the server is held back, while Send still works.
// Source: PostgreSQL manual, "Streaming Replication Protocol", libpq "COPY" chapter.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "base/source_facts.h"
#include "base/state.h"
#include "postgres/connection.h"

namespace walpost::postgres {

using base::StreamEnd;

class ReplicationStream {
 public:
  enum class Next { kFrame, kNothing, kEnded };

  virtual ~ReplicationStream() = default;

  virtual int socket() const = 0;

  // Reads what the socket holds into memory. Not calling it is back-pressure. True: there was
  // something.
  virtual bool Receive() = 0;

  // The next complete CopyData payload already in memory.
  virtual Next Take(std::string_view* frame) = 0;

  // Valid after kEnded.
  virtual const StreamEnd& end() const = 0;

  // Queues one CopyData payload (a standby status) and tries to send it. Not after CopyDone. After
  // a failure of this or the next two do not wait for the socket: Receive and Take until kEnded.
  virtual absl::Status Send(std::string_view payload) = 0;

  // True while queued bytes wait for the socket to become writable; then call Flush.
  virtual bool wants_write() const = 0;
  virtual absl::Status Flush() = 0;

  // Sends CopyDone. Take goes on until kEnded; the caller bounds the time and then just destroys
  // the stream.
  virtual absl::Status SendCopyDone() = 0;

  // A WARNING or worse that arrived as a notice since the last call, as "SQLSTATE function:
  // message". Lost publications of PostgreSQL 18 show only here.
  virtual std::optional<std::string> TakeNotice() = 0;
};

// The START_REPLICATION command and the timeline history file: the two replication texts we write
// and read.
// Thread: any; pure.
// Source: PostgreSQL manual, "Streaming Replication Protocol", "Logical Streaming Replication
//   Parameters".
struct StartOptions {
  std::string slot;
  std::string publication;
  base::Lsn start_lsn;
  int server_version = 0;
  bool messages = false;
  bool text_values = false;
};

// An option the server does not know is an error, so they follow from its version: `binary` and
// `messages` exist from 14; before, values are text. proto_version 1 serves on every version while
// streaming is off.
std::string StartReplicationCommand(const StartOptions& options);

// Lines of "<timeline> TAB <end LSN> TAB <reason>"; '#' starts a comment. kDataLoss otherwise.
absl::StatusOr<std::vector<base::TimelineEnd>> ParseTimelineHistory(std::string_view content);

// CopyStream - ReplicationStream over libpq. Why PQgetCopyData: it is libpq's only public way; it
// allocates and copies each frame (about 40 ns), which is small beside the receive call that
// Receive saves by reading much at once.
// Thread: one owner.   Lifetime: a frame lives until the next Take or the end of the stream.
// Units/limits: one Receive reads at most what fits libpq's buffer (see GrowReceiveBuffer), which
//   the caller must drain by Take first, or the buffer grows. Sending may read too, but only while
//   the socket rejects a status frame. At most 16 notices are kept; of later ones only that about a
//   publication, which means lost rows.
// Source: PostgreSQL manual, libpq "Functions Associated with the COPY Command", "Notice
//   Processing".
class CopyStream final : public ReplicationStream {
 public:
  // `connection` is in COPY BOTH.
  CopyStream(Connection connection, std::string slot, std::string publication);
  ~CopyStream() override;
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  int socket() const override { return PQsocket(connection_.get()); }

  bool Receive() override;
  Next Take(std::string_view* frame) override;

  const StreamEnd& end() const override { return end_; }

  absl::Status Send(std::string_view payload) override;

  bool wants_write() const override { return wants_write_; }

  absl::Status Flush() override;
  absl::Status SendCopyDone() override;
  std::optional<std::string> TakeNotice() override;

 private:
  // kResult: the COPY is over and the server's last word is awaited.
  enum class Phase { kCopy, kResult, kEnded };

  static void OnNotice(void* stream, const PGresult* notice);

  void ReceiveEncrypted();
  int BytesWaiting() const;
  void FreeFrame();
  Next TakeResult();
  Next End(StreamEnd end);
  Next EndLost();
  absl::Status SendFailure(std::string_view what);

  Connection connection_;
  const std::string slot_;
  const std::string publication_;
  const bool encrypted_;
  Phase phase_ = Phase::kCopy;
  bool lost_ = false;  // nothing more can be read
  bool wants_write_ = false;
  char* frame_ = nullptr;
  std::deque<std::string> notices_;
  StreamEnd end_;
};

// libpq reads at most the free part of its buffer in one call, and enlarges the buffer (16 kB) only
// for a message that does not fit. One big answer before START makes it large for the life of the
// connection.
void GrowReceiveBuffer(Connection* connection, Deadline deadline);

}  // namespace walpost::postgres
