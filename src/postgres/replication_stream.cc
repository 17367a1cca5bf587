#include "postgres/replication_stream.h"

#include <glog/logging.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/log_event.h"
#include "postgres/conninfo.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

constexpr int kBinaryAndMessagesSince = 140000;

std::string_view TakeField(std::string_view* line) {
  const std::size_t start = line->find_first_not_of(" \t");
  if (start == std::string_view::npos) {
    *line = std::string_view();
    return std::string_view();
  }
  line->remove_prefix(start);
  const std::size_t length = std::min(line->find_first_of(" \t"), line->size());
  const std::string_view field = line->substr(0, length);
  line->remove_prefix(length);
  return field;
}

}  // namespace

std::string StartReplicationCommand(const StartOptions& options) {
  // publication_names is a list of SQL identifiers inside a string of the replication grammar,
  // which knows doubled quotes and no escapes.
  std::string command = absl::StrFormat(
      "START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names %s",
      QuoteIdentifier(options.slot), options.start_lsn.ToString(),
      QuoteLiteral(QuoteIdentifier(options.publication)));
  if (options.server_version >= kBinaryAndMessagesSince) {
    command += options.text_values ? "" : ", binary 'true'";
    if (options.messages) {
      command += ", messages 'true'";
    }
  }
  return command + ")";
}

absl::StatusOr<std::vector<base::TimelineEnd>> ParseTimelineHistory(std::string_view content) {
  std::vector<base::TimelineEnd> history;
  while (!content.empty()) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    const std::string_view timeline = TakeField(&line);
    if (timeline.empty() || timeline.front() == '#') {
      continue;
    }
    base::TimelineEnd entry;
    const auto [stop, error] =
        std::from_chars(timeline.data(), timeline.data() + timeline.size(), entry.timeline);
    const absl::StatusOr<base::Lsn> lsn = base::Lsn::Parse(TakeField(&line));
    if (error != std::errc() || stop != timeline.data() + timeline.size() || !lsn.ok() ||
        (!history.empty() && entry.timeline <= history.back().timeline)) {
      return absl::DataLossError(
          absl::StrFormat("timeline history is unreadable after %d lines", history.size()));
    }
    entry.end = *lsn;
    history.push_back(entry);
  }
  return history;
}

namespace {

constexpr std::size_t kNoticesKept = 16;
constexpr int kReceiveBufferBytes = 256 * 1024;
constexpr int kEncryptedReadsMax = 16;

bool IsWarningOrWorse(std::string_view severity) {
  // Untranslated severities; what is not one of these is a warning or an error.
  for (const std::string_view harmless : {"NOTICE", "INFO", "LOG", "DEBUG"}) {
    if (severity == harmless) {
      return false;
    }
  }
  return true;
}

std::string NoticeField(const PGresult* notice, int code) {
  const char* value = PQresultErrorField(notice, code);
  return value == nullptr ? std::string() : OneLine(value);
}

}  // namespace

void GrowReceiveBuffer(Connection* connection, Deadline deadline) {
  // A failure shows again in what follows, with a better message.
  (void)connection->Query(
      absl::StrFormat("SELECT pg_catalog.repeat(' ', %d)", kReceiveBufferBytes - 4096), deadline);
}

CopyStream::CopyStream(Connection connection, std::string slot, std::string publication)
    : connection_(std::move(connection)),
      slot_(std::move(slot)),
      publication_(std::move(publication)),
      encrypted_(IsEncrypted(connection_.get())) {
  lost_ = PQsetnonblocking(connection_.get(), 1) != 0;
  PQsetNoticeReceiver(connection_.get(), &CopyStream::OnNotice, this);
}

CopyStream::~CopyStream() { FreeFrame(); }

void CopyStream::OnNotice(void* stream, const PGresult* notice) {
  auto* const self = static_cast<CopyStream*>(stream);
  if (!IsWarningOrWorse(NoticeField(notice, PG_DIAG_SEVERITY_NONLOCALIZED))) {
    return;
  }
  // The text comes in the server's language; where it was raised does not.
  const std::string function = NoticeField(notice, PG_DIAG_SOURCE_FUNCTION);
  std::string text = absl::StrFormat("%s%s%s: %s", NoticeField(notice, PG_DIAG_SQLSTATE),
                                     function.empty() ? "" : " ", function,
                                     NoticeField(notice, PG_DIAG_MESSAGE_PRIMARY));
  if (self->notices_.size() < kNoticesKept) {
    self->notices_.push_back(std::move(text));
  } else if (base::ReportsSkippedPublication(text)) {
    self->notices_.back() = std::move(text);
  }
}

void CopyStream::FreeFrame() {
  if (frame_ != nullptr) {
    PQfreemem(frame_);
    frame_ = nullptr;
  }
}

bool CopyStream::Receive() {
  if (phase_ == Phase::kEnded || lost_) {
    return false;
  }
  const bool any = BytesWaiting() > 0;
  if (encrypted_) {
    ReceiveEncrypted();
  } else {
    lost_ = PQconsumeInput(connection_.get()) == 0;
  }
  return any;
}

int CopyStream::BytesWaiting() const {
  int waiting = 0;
  return ioctl(socket(), FIONREAD, &waiting) == 0 ? waiting : 0;
}

// Decrypted bytes may stay inside the TLS library where poll() does not see them: up to one record
// (16 kB) of which libpq took at least 8 kB. So go on until a read began with an empty socket, or
// the socket still holds something that poll() will report.
void CopyStream::ReceiveEncrypted() {
  for (int reads = 1;; ++reads) {
    const int waiting = BytesWaiting();
    if (reads > kEncryptedReadsMax && waiting > 0) {
      return;
    }
    lost_ = PQconsumeInput(connection_.get()) == 0;
    if (lost_ || waiting == 0) {
      return;
    }
  }
}

ReplicationStream::Next CopyStream::Take(std::string_view* frame) {
  FreeFrame();
  if (phase_ == Phase::kCopy) {
    constexpr int kAsync = 1;
    const int size = PQgetCopyData(connection_.get(), &frame_, kAsync);
    if (size > 0) {
      *frame = std::string_view(frame_, static_cast<std::size_t>(size));
      return Next::kFrame;
    }
    if (size == 0) {
      return lost_ ? EndLost() : Next::kNothing;
    }
    if (size < -1) {
      return EndLost();
    }
    phase_ = Phase::kResult;
  }
  return phase_ == Phase::kResult ? TakeResult() : Next::kEnded;
}

ReplicationStream::Next CopyStream::TakeResult() {
  while (true) {
    if (PQisBusy(connection_.get()) == 1) {
      return lost_ ? EndLost() : Next::kNothing;
    }
    const ResultPtr result(PQgetResult(connection_.get()));
    if (result == nullptr) {
      return EndLost();
    }
    switch (PQresultStatus(result.get())) {
      case PGRES_COMMAND_OK: {
        StreamEnd end;
        end.kind = StreamEnd::Kind::kFinished;
        return End(std::move(end));
      }
      case PGRES_COPY_IN:
        // The server closed its direction first; it waits for ours.
        if (PQputCopyEnd(connection_.get(), nullptr) != 1) {
          return EndLost();
        }
        wants_write_ = PQflush(connection_.get()) == 1;
        break;
      case PGRES_FATAL_ERROR:
        return End(
            StreamFailure(ErrorOf(result.get()), slot_, publication_, connection_.endpoint()));
      default:
        return EndLost();
    }
  }
}

ReplicationStream::Next CopyStream::End(StreamEnd end) {
  end_ = std::move(end);
  phase_ = Phase::kEnded;
  wants_write_ = false;
  return Next::kEnded;
}

ReplicationStream::Next CopyStream::EndLost() {
  std::string text = OneLine(PQerrorMessage(connection_.get()));
  if (text.empty()) {
    text = "the server closed the connection";
  }
  return End(StreamFailure(ServerError{"", text, ""}, slot_, publication_, connection_.endpoint()));
}

absl::Status CopyStream::SendFailure(std::string_view what) {
  const std::string text = phase_ == Phase::kCopy ? OneLine(PQerrorMessage(connection_.get()))
                                                  : std::string("the stream has ended");
  return absl::UnavailableError(
      absl::StrFormat("%s to %s failed: %s", what, connection_.endpoint().ToString(), text));
}

absl::Status CopyStream::Send(std::string_view payload) {
  CHECK_LE(payload.size(), static_cast<std::size_t>(std::numeric_limits<int>::max()));
  if (phase_ != Phase::kCopy ||
      PQputCopyData(connection_.get(), payload.data(), static_cast<int>(payload.size())) != 1) {
    return SendFailure("sending a status");
  }
  return Flush();
}

absl::Status CopyStream::Flush() {
  if (phase_ == Phase::kEnded) {
    wants_write_ = false;
    return SendFailure("sending a status");
  }
  const int outcome = PQflush(connection_.get());
  wants_write_ = outcome == 1;
  // libpq hides a failed write until it has read what the server said last. When that reading found
  // the end, there is no descriptor any more, and so nothing would wake the caller.
  lost_ = lost_ || PQstatus(connection_.get()) != CONNECTION_OK;
  return outcome < 0 || lost_ ? SendFailure("sending a status") : absl::OkStatus();
}

absl::Status CopyStream::SendCopyDone() {
  if (phase_ != Phase::kCopy || PQputCopyEnd(connection_.get(), nullptr) != 1) {
    return SendFailure("sending CopyDone");
  }
  return Flush();
}

std::optional<std::string> CopyStream::TakeNotice() {
  if (notices_.empty()) {
    return std::nullopt;
  }
  std::string notice = std::move(notices_.front());
  notices_.pop_front();
  return notice;
}

}  // namespace walpost::postgres
