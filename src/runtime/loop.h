// Loop - the one thread that carries out what the pipeline asks for: reads frames, sends statuses,
// connects, pings, publishes snapshots.
// Why: everything that could block is elsewhere, so a turn of the loop is short and replies are
//   always on time.
// Thread: the main thread.   Lifetime: everything given to it must outlive it.
// Source: docs/design.md, section 4; PostgreSQL's HandleCopyStream for the order of steps.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/time.h"
#include "observe/snapshot.h"
#include "pipeline/pipeline.h"
#include "postgres/connect.h"
#include "runtime/guard.h"
#include "runtime/helper.h"
#include "runtime/monitor.h"
#include "runtime/options.h"
#include "runtime/run.h"
#include "runtime/status_reporter.h"

namespace walpost::runtime {

base::Now ReadClocks();

class Loop {
 public:
  // After a turn that read something, bytes gather this long before the next read: fewer wake-ups
  // on both sides (a transaction of one row alone is three sends of the server). A pause in which
  // the socket's buffer fills would stop the server.
  static constexpr std::chrono::microseconds kGatherPause{300};
  // Frames taken before reports are served again.
  static constexpr int kFramesPerTurn = 4096;
  static constexpr std::chrono::milliseconds kFinishWithin{3'000};
  static constexpr std::chrono::milliseconds kFinishLook{10};
  // What is shown is no older than this; without anything new it is only shown to be alive.
  static constexpr std::chrono::milliseconds kPublishEvery{100};
  static constexpr std::chrono::milliseconds kPublishWhenIdleEvery{1'000};
  // So old becomes the connection for dead letters: a server that is to shut down "smart" waits for
  // its end. Not less, since a burst of jobs must not connect for each.
  static constexpr std::chrono::milliseconds kDeadLettersConnected{5'000};

  Loop(const RunOptions& options, Signals* signals, Helper* helper, Dependencies dependencies,
       observe::SnapshotBoard* board);

  // Returns the exit code.
  int Run();

 private:
  void HandleSignals();
  void Reload();
  void OnReloaded(const absl::StatusOr<Reloaded>& reloaded, const std::function<void()>& apply);
  void ReportToServiceManager();
  void HandleCommands();
  void HandleConnect();
  void ReportAdopted();
  void HandleStatus();
  void HandlePing();
  void HandleLook();
  void HandleDeadLetters();
  void HandleSchemas();
  void FinishStream();
  void CloseFinishing();
  void DropStream();
  int ReadFrames();
  void TakeNotices();
  void EndStream(postgres::StreamEnd end);  // a copy: it may be that of the stream
  void SourceLost(const absl::Status& status);
  void Publish();
  void Wait(int frames);
  void OnConnectResult(std::variant<postgres::Connected, postgres::StreamEnd> result);

  RunOptions options_;  // SIGHUP may change how the world is reached
  const std::shared_ptr<GuardHistory> guard_history_ = std::make_shared<GuardHistory>();
  postgres::ConnectOptions streamed_from_;  // those of the last connection, also after SIGHUP
  Signals* const signals_;
  Helper* const helper_;
  const Dependencies dependencies_;
  observe::SnapshotBoard* const board_;

  base::Now now_;
  pipeline::Pipeline pipeline_;
  StatusReporter status_reporter_;
  Notifier notifier_ = Notifier::FromEnvironment();
  Monitor monitor_;
  ServerView server_view_;
  std::unique_ptr<postgres::ReplicationStream> stream_;
  std::shared_ptr<postgres::Pinger> pinger_;  // shared with the job that uses it
  bool pinging_ = false;
  bool dead_letters_in_use_ = false;                        // their connection may be open
  base::MonotonicTime dead_letters_since_;                  // it may be, since then
  std::unique_ptr<postgres::ReplicationStream> finishing_;  // CopyDone sent, its end awaited
  base::MonotonicTime finish_by_;
  base::MonotonicTime next_publish_;
  bool snapshot_is_old_ = false;  // something happened since the last one
  int stop_signals_ = 0;
  std::string clear_text_peer_;    // of the last connection
  std::set<std::string> adopted_;  // outboxes, schema.table each, to be reported
};

}  // namespace walpost::runtime
