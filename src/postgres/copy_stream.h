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
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "postgres/connection.h"
#include "postgres/replication_stream.h"

namespace walpost::postgres {

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
