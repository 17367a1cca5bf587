#include "runtime/loop.h"

#include <glog/logging.h>
#include <poll.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "observe/log.h"
#include "pgoutput/decoder.h"
#include "pipeline/history.h"
#include "postgres/conninfo.h"

namespace walpost::runtime {

using observe::LogEvent;
using observe::Severity;
using std::chrono::milliseconds;

namespace {

constexpr int kExitRetryLater = 75;
constexpr milliseconds kSchemasFor{1'000};  // a job takes; the next one asks for the rest

void LogAdopted(const std::string& table) {
  observe::Log(
      Severity::kWarning, LogEvent::kOutboxAdopted,
      absl::StrFormat("%s is an outbox from here on. What transactions write to it that began "
                      "before is not sent: when they have ended, `walpost replay --missing "
                      "--in-place --table %s` sends it",
                      table, table),
      {{"table", table}});
}

// Reads what has come, which comes again on the next connection. True: the stream has ended.
bool SkipFrames(postgres::ReplicationStream* stream) {
  using Next = postgres::ReplicationStream::Next;
  std::string_view frame;
  stream->Receive();
  Next next = stream->Take(&frame);
  while (next == Next::kFrame) {
    next = stream->Take(&frame);
  }
  return next == Next::kEnded;
}

}  // namespace

base::Now ReadClocks() {
  return base::Now{
      std::chrono::steady_clock::now(),
      std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now())};
}

Loop::Loop(const RunOptions& options, Signals* signals, Helper* helper, Dependencies dependencies,
           observe::SnapshotBoard* board)
    : options_(options),
      signals_(signals),
      helper_(helper),
      dependencies_(std::move(dependencies)),
      board_(board),
      now_(ReadClocks()),
      pipeline_(options.pipeline, dependencies_.sink, now_),
      status_reporter_(options, now_),
      monitor_(options, helper),
      next_publish_(now_.mono) {}

int Loop::Run() {
  for (;;) {
    now_ = ReadClocks();
    HandleSignals();
    if (stop_signals_ >= 2) {
      observe::Log(Severity::kWarning, LogEvent::kStoppedAtOnce,
                   "second signal: leaving without draining; nothing is lost");
      return kExitRetryLater;
    }
    helper_->RunDone();
    pipeline_.Tick(now_);
    HandleCommands();
    const int frames = ReadFrames();
    if (frames == 0) {
      pipeline_.OnQuiet(now_);
    }
    HandleCommands();
    status_reporter_.Observe(pipeline_, *dependencies_.kafka, now_);
    status_reporter_.ReportDecisions(&pipeline_, now_);
    ReportAdopted();
    ReportToServiceManager();
    Publish();
    if (pipeline_.finished() && finishing_ == nullptr) {
      return 0;
    }
    if (options_.on_halt == OnHalt::kExit && pipeline_.halted() && finishing_ == nullptr) {
      return base::HaltExitCode(pipeline_.halt()->reason);
    }
    Wait(frames);
  }
}

void Loop::HandleSignals() {
  for (int signal = signals_->Take(); signal != 0; signal = signals_->Take()) {
    if (signal == SIGHUP) {
      Reload();
      continue;
    }
    ++stop_signals_;
    notifier_.Stopping();
    observe::Log(Severity::kInfo, LogEvent::kStopping, "draining what is in flight, then stopping");
    pipeline_.Stop(now_);
  }
}

void Loop::Reload() {
  notifier_.Reloading(now_);
  if (!options_.reload) {
    OnReloaded(Reloaded{options_, {}, {}}, nullptr);
    return;
  }

  struct Job {
    absl::StatusOr<Reloaded> reloaded;
    std::function<void()> apply;
  };

  auto job = std::make_shared<Job>();  // shared by its two halves
  helper_->Run(
      Helper::Queue::kSchemas,  // whose jobs use what this replaces
      [job, reload = options_.reload, reconfigure = dependencies_.reconfigure] {
        job->reloaded = reload();
        if (job->reloaded.ok()) {
          absl::StatusOr<std::function<void()>> apply = reconfigure(job->reloaded->options);
          if (apply.ok()) {
            job->apply = *std::move(apply);
          } else {
            job->reloaded = apply.status();
          }
        }
      },
      [this, job] {
        now_ = ReadClocks();
        OnReloaded(job->reloaded, job->apply);
      });
}

void Loop::OnReloaded(const absl::StatusOr<Reloaded>& reloaded,
                      const std::function<void()>& apply) {
  if (!reloaded.ok()) {
    observe::Log(
        Severity::kError, LogEvent::kReloadRejected,
        absl::StrFormat("SIGHUP: the configuration is not usable, nothing of it is taken: %s",
                        std::string(reloaded.status().message())));
  } else if (apply) {
    options_.source.conninfo = reloaded->options.source.conninfo;
    options_.dead_letter_conninfo = reloaded->options.dead_letter_conninfo;
    options_.kafka = reloaded->options.kafka;
    observe::SetLogLevel(reloaded->log_level);
    apply();
    observe::Log(
        Severity::kInfo, LogEvent::kReloaded,
        "SIGHUP: the configuration was read anew: log.level, source.conninfo from the next "
        "connection on, delivery.dead_letter_conninfo, Kafka and the Schema Registry with new "
        "producers and requests, http.token");
    if (!reloaded->needs_restart.empty()) {
      observe::Log(Severity::kWarning, LogEvent::kReloadNeedsRestart,
                   absl::StrFormat("changed, but taken only by a restart: %s",
                                   absl::StrJoin(reloaded->needs_restart, ", ")));
    }
  }
  observe::Log(Severity::kInfo, LogEvent::kResume, "SIGHUP: resuming");
  pipeline_.Resume(now_);
  notifier_.Reloaded();
}

void Loop::ReportToServiceManager() {
  if (notifier_.Turn(pipeline_.state(), now_)) {
    notifier_.Report(pipeline_.state(), status_reporter_.StatusLine(pipeline_),
                     options_.on_halt == OnHalt::kWait, now_);
  }
}

void Loop::HandleCommands() {
  CloseFinishing();
  switch (pipeline_.TakeStreamCommand()) {
    case pipeline::StreamCommand::kNone:
      break;
    case pipeline::StreamCommand::kFinish:
      FinishStream();
      break;
    case pipeline::StreamCommand::kClose:
      DropStream();
      break;
  }
  HandleConnect();
  HandleStatus();
  HandlePing();
  HandleLook();
  HandleDeadLetters();
  HandleSchemas();
}

void Loop::HandleConnect() {
  if (finishing_ != nullptr) {
    return;  // the slot is still ours on the old connection
  }
  const std::optional<base::Lsn> start = pipeline_.TakeConnect(now_);
  if (!start) {
    return;
  }
  streamed_from_ = options_.source;
  streamed_from_.text_until = pipeline_.text_until();
  using Result = std::optional<std::variant<postgres::Connected, postgres::StreamEnd>>;
  auto result = std::make_shared<Result>();  // shared by the two halves of the job
  helper_->Run(
      Helper::Queue::kSource,
      [result, connect = dependencies_.connect, options = streamed_from_, start,
       guard = MakeGuard(options_, pipeline_.known_progress(), guard_history_)] {
        result->emplace(connect(options, *start, guard));
      },
      [this, result] { OnConnectResult(*std::move(*result)); });
}

void Loop::OnConnectResult(std::variant<postgres::Connected, postgres::StreamEnd> result) {
  now_ = ReadClocks();
  if (auto* end = std::get_if<postgres::StreamEnd>(&result)) {
    pipeline_.OnStreamEnd(*end, now_);
    return;
  }
  auto& connected = std::get<postgres::Connected>(result);
  stream_ = std::move(connected.stream);
  pinger_ = std::move(connected.pinger);
  // For looks: another server may not answer, or know other catalogs.
  streamed_from_.server = connected.server;
  if (std::exchange(clear_text_peer_, connected.clear_text_peer) != connected.clear_text_peer &&
      !clear_text_peer_.empty()) {
    observe::Log(Severity::kWarning, LogEvent::kClearText,
                 postgres::ClearTextWarning(clear_text_peer_), {{"peer", "postgresql"}});
  }
  if (!connected.delivered_not_noted.empty()) {
    observe::Log(Severity::kWarning, LogEvent::kDeliveredNotNoted, connected.delivered_not_noted,
                 {});
  }
  if (const auto& progress = connected.facts.progress) {
    const auto adopted = pipeline::AdoptedTables(*progress, connected.facts);
    adopted_.insert(adopted.begin(), adopted.end());
  }
  pipeline_.OnConnected(connected.facts, now_);
}

// Once it is remembered: before that, a process that dies, or begins anew, adopts it later.
void Loop::ReportAdopted() {
  if (adopted_.empty() || pipeline_.adopting() || !pipeline_.remembered_progress()) {
    return;
  }
  for (const base::PublishedTable& table : pipeline_.remembered_progress()->tables) {
    const std::string name = absl::StrFormat("%s.%s", table.schema, table.name);
    if (adopted_.erase(name) > 0) {
      LogAdopted(name);
    }
  }
}

void Loop::HandleStatus() {
  if (stream_ == nullptr) {
    return;
  }
  absl::Status sent;
  if (const auto status = pipeline_.TakeStatus(now_)) {
    sent = stream_->Send(pgoutput::EncodeStandbyStatus(*status));
  }
  if (sent.ok() && stream_->wants_write()) {
    sent = stream_->Flush();
  }
  if (!sent.ok()) {
    SourceLost(sent);
  }
}

void Loop::HandlePing() {
  // Taken also while one is under way: what is due but not taken would keep the loop from waiting.
  const std::optional<base::PingQuestion> question =
      stream_ == nullptr ? std::nullopt : pipeline_.TakePing(now_);
  if (!question || pinging_) {
    return;
  }
  pinging_ = true;
  auto answer = std::make_shared<base::PingAnswer>(base::PingAnswer::kServes);
  helper_->Run(
      Helper::Queue::kPing,
      [answer, pinger = pinger_, question = *question] { *answer = pinger->Ping(question); },
      [this, answer, asked_at = now_.mono,
       pinger = pinger_] {  // kept, so that no later one has its address
        pinging_ = false;
        if (pinger == pinger_) {
          now_ = ReadClocks();
          pipeline_.OnPing(*answer, asked_at, now_);
        }
      });
}

void Loop::HandleLook() {
  const std::optional<std::uint64_t> wanted = pipeline_.TakeLook(now_);
  if (!wanted) {
    return;
  }
  using Seen = std::variant<base::SourceFacts, postgres::StreamEnd>;
  auto seen = std::make_shared<Seen>();  // shared by the two halves of the job
  helper_->Run(
      Helper::Queue::kLook,
      [seen, look = dependencies_.look, options = streamed_from_] { *seen = look(options); },
      [this, seen, wanted = *wanted] {
        now_ = ReadClocks();
        pipeline_.OnLooked(wanted, *seen, now_);
      });
}

void Loop::HandleDeadLetters() {
  if (dead_letters_in_use_ &&
      (pipeline_.dead_letters_idle() || now_.mono >= dead_letters_since_ + kDeadLettersConnected)) {
    dead_letters_in_use_ = false;
    helper_->Run(
        Helper::Queue::kDeadLetters, [close = dependencies_.close_dead_letters] { close(); },
        [] {});
  }
  const std::optional<pipeline::DeadLetterRequest> wanted = pipeline_.TakeDeadLetterRequest(now_);
  if (!wanted) {
    return;
  }
  if (!std::exchange(dead_letters_in_use_, true)) {
    dead_letters_since_ = now_.mono;
  }
  auto reply =
      std::make_shared<pipeline::DeadLetterReply>();  // shared by the two halves of the job
  helper_->Run(
      Helper::Queue::kDeadLetters,
      [reply, wanted = *wanted, carry_out = dependencies_.dead_letters,
       store = DeadLetterStoreOf(options_, streamed_from_, *pipeline_.facts())] {
        *reply = carry_out(store, wanted);
      },
      [this, reply] {
        now_ = ReadClocks();
        pipeline_.OnDeadLetterReply(std::move(*reply), now_);
      });
}

void Loop::HandleSchemas() {
  const std::optional<pipeline::SchemaLookUp> wanted = pipeline_.TakeSchemaLookUp(now_);
  if (!wanted) {
    return;
  }
  auto answers = std::make_shared<pipeline::SchemaAnswers>();  // shared by the job's halves
  helper_->Run(
      Helper::Queue::kSchemas,
      [answers, wanted = *wanted, resolve = dependencies_.resolve_schema] {
        const base::MonotonicTime until = ReadClocks().mono + kSchemasFor;
        for (const auto& [ref, need] : wanted.needs) {
          answers->push_back(resolve(need));
          if (absl::IsUnavailable(answers->back().status()) || ReadClocks().mono >= until) {
            return;  // the others would only wait for the same, or for too long
          }
        }
      },
      [this, answers, wanted = *wanted] {
        now_ = ReadClocks();
        pipeline_.OnSchemaAnswers(wanted, *answers, now_);
      });
}

void Loop::FinishStream() {
  if (stream_ == nullptr) {
    return;
  }
  absl::Status sent = stream_->Send(pgoutput::EncodeStandbyStatus(pipeline_.FinalStatus(now_)));
  if (sent.ok()) {
    sent = stream_->SendCopyDone();
  }
  finishing_ = std::move(stream_);
  finish_by_ = now_.mono + (sent.ok() ? kFinishWithin : milliseconds(0));
  CloseFinishing();
}

void Loop::CloseFinishing() {
  if (finishing_ == nullptr) {
    return;
  }
  if (SkipFrames(finishing_.get()) || now_.mono >= finish_by_ || !finishing_->Flush().ok()) {
    finishing_.reset();
  }
}

void Loop::DropStream() {
  stream_.reset();
  pinger_.reset();
}

int Loop::ReadFrames() {
  if (stream_ == nullptr) {
    return 0;
  }
  int frames = 0;
  bool received = false;
  std::string_view frame;
  while (frames < kFramesPerTurn && pipeline_.want_frame()) {
    const postgres::ReplicationStream::Next next = stream_->Take(&frame);
    if (next == postgres::ReplicationStream::Next::kFrame) {
      pipeline_.OnFrame(frame, now_);
      ++frames;
    } else if (next == postgres::ReplicationStream::Next::kEnded) {
      EndStream(stream_->end());
      return frames;
    } else if (received) {
      break;
    } else {
      if (stream_->Receive()) {
        pipeline_.OnBytes(now_);
      }
      received = true;
    }
  }
  TakeNotices();
  return frames;
}

// Before any status goes out: what the server warned about beside the stream.
void Loop::TakeNotices() {
  while (const std::optional<std::string> notice = stream_->TakeNotice()) {
    pipeline_.OnNotice(*notice);
  }
}

void Loop::SourceLost(const absl::Status& status) {
  // The server's last words may still be in the socket, and say more than "broken pipe".
  postgres::StreamEnd end;
  end.status = status;
  if (SkipFrames(stream_.get())) {
    end = stream_->end();
  }
  EndStream(end);
}

void Loop::EndStream(postgres::StreamEnd end) {
  TakeNotices();
  DropStream();
  pipeline_.OnStreamEnd(end, now_);
}

void Loop::Publish() {
  snapshot_is_old_ = now_.mono < next_publish_;
  if (snapshot_is_old_) {
    return;
  }
  next_publish_ = now_.mono + kPublishEvery;
  monitor_.Tick(now_);
  auto snapshot = std::make_shared<observe::Snapshot>(
      status_reporter_.TakeSnapshot(pipeline_, *dependencies_.kafka, now_));
  server_view_.Complete(pipeline_.facts(), monitor_.Newest(), now_, snapshot.get());
  board_->Publish(std::move(snapshot));
}

void Loop::Wait(int frames) {
  if (frames > 0) {
    // The next turn looks at everything, so there is nothing to ask poll for.
    const timespec pause{0, std::chrono::nanoseconds(kGatherPause).count()};
    nanosleep(&pause, nullptr);
    return;
  }
  base::MonotonicTime deadline =
      std::min(pipeline_.NextDeadline(),
               snapshot_is_old_ ? next_publish_ : now_.mono + kPublishWhenIdleEvery);
  if (finishing_ != nullptr) {
    // The next connection may be due already, but waits for the end of this one.
    deadline = std::min(std::max(deadline, now_.mono + kFinishLook), finish_by_);
  }
  const milliseconds timeout =
      std::max(milliseconds(0), std::chrono::ceil<milliseconds>(deadline - now_.mono));
  std::array<pollfd, 5> fds;
  fds.fill({-1, 0, 0});
  fds[0] = {signals_->fd(), POLLIN, 0};
  fds[1] = {helper_->fd(), POLLIN, 0};
  fds[2] = {dependencies_.sink->wake_fd(), POLLIN, 0};
  if (stream_ != nullptr) {
    const int events =
        (pipeline_.want_frame() ? POLLIN : 0) | (stream_->wants_write() ? POLLOUT : 0);
    // A paused socket stays out of the set: its hang-up would be reported without end.
    fds[3] = {events == 0 ? -1 : stream_->socket(), static_cast<short>(events), 0};
  }
  if (finishing_ != nullptr) {
    fds[4] = {finishing_->socket(), POLLIN, 0};
  }
  if (poll(fds.data(), fds.size(), static_cast<int>(timeout.count())) < 0) {
    PCHECK(errno == EINTR);
  }
}

}  // namespace walpost::runtime
