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

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/stream_end.h"

namespace walpost::postgres {

using base::StreamEnd;

class ReplicationStream {
 public:
  enum class Next { kFrame, kNothing, kEnded };

  virtual ~ReplicationStream() = default;

  virtual int socket() const = 0;

  // Reads what the socket holds into memory. Not calling it is back-pressure. True: there was something.
  virtual bool Receive() = 0;

  // The next complete CopyData payload already in memory.
  virtual Next Take(std::string_view* frame) = 0;

  // Valid after kEnded.
  virtual const StreamEnd& end() const = 0;

  // Queues one CopyData payload (a standby status) and tries to send it. Not after CopyDone. After a
  // failure of this or the next two do not wait for the socket: Receive and Take until kEnded.
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

}  // namespace walpost::postgres
