#include "operations/status/tail.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <variant>

#include "base/status.h"
#include "operations/status/tail_reader.h"
#include "pgoutput/frame.h"
#include "postgres/temporary_slot.h"

namespace walpost::operations {
namespace {

using postgres::ReplicationStream;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kStatusEvery{5'000};
constexpr milliseconds kEndWithin{3'000};

class TailRun {
 public:
  TailRun(const TailOptions& options, postgres::Connected connected)
      : options_(options),
        stream_(std::move(connected.stream)),
        reader_(options, std::move(connected.facts)) {}

  absl::Status Run() {
    while (!ended_) {
      if (steady_clock::now() >= next_status_) {
        RETURN_IF_ERROR(SendStatus());
      }
      RETURN_IF_ERROR(Await(next_status_));
      stream_->Receive();
      RETURN_IF_ERROR(TakeFrames());
    }
    End();
    return absl::OkStatus();
  }

 private:
  // Until there is something to read, or to write, or `until`; or it is to end.
  absl::Status Await(steady_clock::time_point until) {
    const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
    const short events = static_cast<short>(POLLIN | (stream_->wants_write() ? POLLOUT : 0));
    std::array<pollfd, 2> fds = {pollfd{stream_->socket(), events, 0},
                                 pollfd{options_.stop_fd, POLLIN, 0}};
    poll(fds.data(), fds.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    ended_ = ended_ || (fds[1].revents & POLLIN) != 0;
    return stream_->wants_write() ? stream_->Flush() : absl::OkStatus();
  }

  absl::Status TakeFrames() {
    std::string_view bytes;
    for (auto next = stream_->Take(&bytes); next != ReplicationStream::Next::kNothing;
         next = stream_->Take(&bytes)) {
      if (next == ReplicationStream::Next::kEnded) {
        ended_ = true;
        return stream_->end().status;
      }
      ASSIGN_OR_RETURN(const pgoutput::Frame frame, pgoutput::DecodeFrame(bytes));
      RETURN_IF_ERROR(TakeFrame(frame));
      if (ended_) {
        break;
      }
    }
    return absl::OkStatus();
  }

  absl::Status TakeFrame(const pgoutput::Frame& frame) {
    if (const auto* keepalive = std::get_if<pgoutput::Keepalive>(&frame)) {
      reader_.TakePosition(keepalive->wal_end);
      return keepalive->reply_requested ? SendStatus() : absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const std::optional<std::string> line,
                     reader_.Take(std::get<pgoutput::XLogData>(frame).payload));
    if (line) {
      ++shown_;
      const absl::Status printed = options_.print(*line);
      ended_ = !printed.ok() || shown_ == options_.limit;
      return absl::IsDeadlineExceeded(printed) ? printed : absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status SendStatus() {
    next_status_ = steady_clock::now() + kStatusEvery;
    const base::Lsn taken = reader_.taken_lsn();
    pgoutput::StandbyStatus status;
    status.write = status.flush = status.apply = taken;
    status.client_time =
        std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
    return stream_->Send(pgoutput::EncodeStandbyStatus(status));
  }

  // So that the server drops the slot now and not when it next writes.
  void End() {
    const auto until = steady_clock::now() + kEndWithin;
    absl::Status going = stream_->SendCopyDone();
    while (going.ok() && steady_clock::now() < until) {
      std::string_view bytes;
      ReplicationStream::Next next = stream_->Take(&bytes);
      while (next == ReplicationStream::Next::kFrame) {
        next = stream_->Take(&bytes);
      }
      if (next == ReplicationStream::Next::kEnded) {
        return;
      }
      pollfd readable{stream_->socket(), POLLIN, 0};
      poll(&readable, 1, 100);
      stream_->Receive();
      going = stream_->Flush();
    }
  }

  const TailOptions& options_;
  const std::unique_ptr<ReplicationStream> stream_;
  TailReader reader_;
  steady_clock::time_point next_status_;
  std::uint64_t shown_ = 0;
  bool ended_ = false;
};

}  // namespace

Outcome Tail(const TailOptions& options) {
  postgres::ConnectOptions source = options.pipeline.source;
  source.application_name = "walpost-tail";
  auto connected = postgres::ConnectTemporarySlot(source, !options.from_now);
  if (const auto* end = std::get_if<postgres::StreamEnd>(&connected)) {
    return Failed(end->status);
  }
  TailRun run(options, std::get<postgres::Connected>(std::move(connected)));
  const absl::Status status = run.Run();
  return status.ok() ? Outcome() : Failed(status);
}

}  // namespace walpost::operations
