// Pipeline - the policy between one replication stream and one sink: states, back-pressure,
// reconnects, halts, and when to confirm what.
// Why: every decision is made here, from frames, reports and ticks, without I/O, clock or thread;
//   the runtime only carries out what it asks for. That lets a simulator drive the real thing
//   through millions of failures.
// Thread: loop thread.
// Lifetime: `sink` must outlive it. Use: call inputs as things happen, then carry out what the
//   commands say; repeat. Poll and Tick are cheap.
// Errors: none; what goes wrong becomes a state. CHECK-fails on misuse (a frame while want_frame()
//   is false).
// Source: docs/design.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/source_facts.h"
#include "base/state.h"
#include "base/time.h"
#include "delivery/sink.h"
#include "delivery/tracker.h"
#include "pgoutput/decoder.h"
#include "pipeline/counters.h"
#include "pipeline/dead_letters.h"
#include "pipeline/dispatcher.h"
#include "pipeline/halt.h"
#include "pipeline/intake.h"
#include "pipeline/options.h"
#include "pipeline/progress_keeper.h"
#include "pipeline/schema_look_ups.h"
#include "pipeline/server_errors.h"
#include "pipeline/source_timers.h"
#include "pipeline/status_clock.h"
#include "pipeline/undeliverables.h"

namespace walpost::pipeline {

// What the runtime shall do with the stream it holds.
enum class StreamCommand {
  kNone,
  kFinish,  // send CopyDone, wait a bounded time for the end, then drop it and report nothing
  kClose,   // drop it at once and report nothing
};

class Pipeline {
 public:
  // Reading paused this long is shown as `backpressured`.
  static constexpr std::chrono::milliseconds kShowPausedAfter{1'000};
  // Before reconnecting to a server that is shutting down; a new walsender would hold it again.
  static constexpr std::chrono::milliseconds kAfterServerStop{5'000};
  // A planned reconnect that takes longer is shown as one.
  static constexpr std::chrono::milliseconds kShowReconnectAfter{5'000};
  // A planned reconnect waits this long for a moment with nothing in flight.
  static constexpr std::chrono::milliseconds kReconnectPatience{60'000};
  // On a stop inside a transaction: how long its rest is waited for.
  static constexpr std::chrono::milliseconds kCompleteWithin{250};
  // After it has streamed once, a rejected login is tried this often: passwords are rotated.
  static constexpr int kAuthFailuresMax = 5;

  Pipeline(PipelineOptions options, delivery::Sink* sink, base::Now now);

  // --- Inputs ---
  void OnConnected(const base::SourceFacts& facts, base::Now now);
  // A connect attempt failed, or the stream ended by itself.
  void OnStreamEnd(const base::StreamEnd& end, base::Now now);
  void OnFrame(std::string_view frame, base::Now now);
  // A part of a frame arrived: the server is not silent.
  void OnBytes(base::Now now);
  // No further frame is waiting: what was gathered goes out.
  void OnQuiet(base::Now now);
  // A warning the server sent beside the stream.
  void OnNotice(const std::string& notice);
  // What the ping that TakePing asked for at `asked_at` came to, while the same connection stands.
  void OnPing(base::PingAnswer answer, base::MonotonicTime asked_at, base::Now now);
  void Tick(base::Now now);  // serves the sink and every timer
  // SIGTERM: drain, confirm, finish.
  void Stop(base::Now now);
  // SIGHUP: when halted, or as soon as it is, begin anew.
  void Resume(base::Now now);
  // What TakeLook asked for; `look` is what it gave.
  void OnLooked(std::uint64_t look, const std::variant<base::SourceFacts, base::StreamEnd>& seen,
                base::Now now);
  void OnDeadLetterReply(DeadLetterReply reply, base::Now now);
  // What TakeSchemaLookUp asked for.
  void OnSchemaAnswers(const SchemaLookUp& look_up, const SchemaAnswers& answers, base::Now now);

  // --- Commands ---
  // The position to connect at (0/0 = the slot's), once per attempt.
  std::optional<base::Lsn> TakeConnect(base::Now now);
  base::Lsn text_until() const;  // a stream that begins up to here gets values as text
  bool want_frame() const;
  std::optional<pgoutput::StandbyStatus> TakeStatus(base::Now now);
  StreamCommand TakeStreamCommand();
  // Of the connection that was left, to be sent before CopyDone.
  pgoutput::StandbyStatus FinalStatus(base::Now now);
  std::optional<base::PingQuestion> TakePing(base::Now now);
  // Catalogs and timeline are to be read on another connection; the look's number.
  std::optional<std::uint64_t> TakeLook(base::Now now);
  // Of the table of dead letters, one at a time.
  std::optional<DeadLetterRequest> TakeDeadLetterRequest(base::Now now);
  bool dead_letters_idle() const;  // its connection is not needed until the next request
  // Of the Schema Registry, one at a time.
  std::optional<SchemaLookUp> TakeSchemaLookUp(base::Now now);
  base::MonotonicTime NextDeadline() const;

  // Nothing is left to do after Stop, or to wind up after a halt.
  bool finished() const;
  bool halted() const;

  // For the next guard.
  std::optional<base::Progress> known_progress() const;

  // --- What is shown ---
  base::State state() const;
  const std::optional<Halt>& halt() const;
  const Counters& counters() const;
  const delivery::Tracker& tracker() const;
  const std::optional<base::SourceFacts>& facts() const;
  std::size_t parked_keys() const;
  std::uint64_t open_dead_letters() const;
  bool adopting() const;  // what holds events from here on is not remembered yet

  const DeadLetters& dead_letters() const { return dead_letters_; }

  const SchemaLookUps& schemas() const;

  // What Kafka has acknowledged of our progress, in this process or before it.
  const std::optional<base::Progress>& remembered_progress() const { return keeper_.remembered(); }

  base::Lsn received_lsn() const;
  base::Lsn confirmed_lsn() const;
  base::Lsn server_wal_lsn() const;
  base::WallTime last_frame_at() const;
  bool connected() const;

  // What was decided about undeliverable events, for the log; each once.
  std::optional<Decision> TakeDecision();
  // CHECK-fails when nothing is in flight.
  EventReference OldestInFlight() const;

  // The newest trouble that was not a halt, one line; empty = none yet.
  const std::string& last_error() const { return last_error_; }

 private:
  enum class Phase {
    kIdle,        // not connected; connect_at_ says when to try
    kConnecting,  // an attempt is under way
    kStreaming,
    kYielding,  // another instance went on: giving up what is in memory, then connecting anew
    kHalting,   // what came before the halt is still being delivered, bounded
    kStopping,  // halted or stopped, waiting for the sink to close
    kHalted,
    kDraining,
    kFinished,
  };

  void Disconnect(StreamCommand command);
  void ReconnectAfter(std::chrono::milliseconds delay, ReconnectReason reason, base::Now now);
  void BeginHalt(Halt halt, base::Now now);
  void HaltNow();
  void HaltAtOnce(Halt halt);
  void OnSourceHalt(Halt halt, base::Now now);
  void LeaveServer(const std::string& why, base::Now now);
  void OnPassed(base::Now now);
  bool TakenOver(const base::SourceFacts& facts) const;
  void ForgetAll();
  void CheckSilence(base::Now now);
  void OnSilence(base::Now now);
  void CheckAlone(base::Now now);
  void CheckDispatcherHalt(base::Now now);
  bool Drained() const;
  void CheckProgress(base::Now now);
  void CheckEnd(base::Now now);
  void CheckInvariants() const;
  void CheckClosed(base::Now now);
  void CheckPlannedReconnect(base::Now now);
  void ConnectAnew(ReconnectReason reason, base::Now now);
  void EndConnection(const std::string& why, base::Now now);
  void AccountPause(base::Now now);
  void CheckStall(base::Now now);

  bool stalled() const;
  std::optional<base::MonotonicTime> look_due() const;
  std::optional<Halt> CheckEnd(const base::StreamEnd& end, int losses);

  // Never what this very connection has not passed: it may turn out to be another history.
  base::Lsn confirmable() const;
  pgoutput::StandbyStatus MakeStatus(base::Lsn flush, base::Now now);

  const PipelineOptions options_;
  Counters counters_;
  delivery::Tracker tracker_;
  SchemaLookUps schemas_;
  DeadLetters dead_letters_;
  Undeliverables undeliverables_;
  Intake intake_;
  ProgressKeeper keeper_;
  Dispatcher dispatcher_;
  StatusClock status_clock_;
  SourceTimers timers_;
  ServerPings pings_;
  base::Backoff source_backoff_;
  base::Backoff standby_backoff_;

  Phase phase_ = Phase::kIdle;
  bool attempt_unanswered_ = false;  // of TakeConnect, also when nobody wants it any more
  bool stop_requested_ = false;
  bool connected_ = false;
  bool ever_streamed_ = false;
  bool standby_ = false;
  bool reconnecting_as_planned_ = false;  // between the streams of a planned reconnect
  bool resume_wanted_ = false;            // SIGHUP, before the halt has come to its end
  bool reply_wanted_ = false;  // the server asked, and may be waiting for us to shut down
  StreamCommand stream_command_ = StreamCommand::kNone;
  base::MonotonicTime connect_at_;
  base::MonotonicTime deadline_;  // of halting and draining
  bool completing_ = false;       // draining, but the rest of an open transaction is still read
  base::MonotonicTime complete_by_;
  std::optional<Halt> halt_;
  delivery::Sequence halt_boundary_ = 0;  // everything below it is delivered before the halt

  std::optional<base::SourceFacts> facts_;
  base::Lsn safe_at_connect_;
  base::Lsn confirmed_lsn_;
  base::Lsn confirmed_max_;  // by us, or found so
  base::Lsn final_lsn_;      // could be confirmed when the last connection was left
  base::Lsn server_wal_lsn_;
  base::WallTime last_frame_at_;
  std::string last_error_;
  bool silence_shown_ = false;  // it is what last_error_ says

  ServerErrors server_errors_;
  int auth_failures_ = 0;

  Looks looks_;

  bool paused_ = false;
  base::MonotonicTime paused_since_;
  base::MonotonicTime paused_accounted_;
};

}  // namespace walpost::pipeline
