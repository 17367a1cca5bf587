// Helper - the threads that may block: connecting, topic metadata, pings.
// Why: the loop must never wait for a server; whatever may is a job here, and its result comes back
//   by event fd. A peer that does not answer holds up its own queue and no other.
// Thread: Run, RunDone and the destructor on the loop thread; the work of a queue on its own
//   thread, which begins with the first job.
// Lifetime: jobs still running when the helper is destroyed are given kPatience; after that their
//   threads are left behind, holding only what the jobs themselves own, and no `done` is called.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/blocking_runner.h"
#include "base/state.h"
#include "base/time.h"

namespace walpost::runtime {

// Notifier - reports the loop to systemd: READY=1, STATUS=, WATCHDOG=1, RELOADING=1, STOPPING=1.
// Why: fed by the loop itself, so that the watchdog ends a process whose loop hangs, whatever its
//   other threads do. And without libsystemd, which would bring compressors and ciphers into a
//   process that holds passwords: the protocol is a datagram, and stable by its manual, which says
//   to write it so.
// Thread: loop thread; never blocks. Without NOTIFY_SOCKET it does nothing.
// Units/limits: READY=1 once, on first leaving `starting` for a state that needs no more waiting:
//   streaming, backpressured, standby, or halted when that does not end the process. Before, and
//   while draining, EXTEND_TIMEOUT_USEC keeps the service manager from giving up, as long as the
//   loop turns. WATCHDOG=1 at a third of WATCHDOG_USEC.
// Source: sd_notify(3), sd_watchdog_enabled(3).
class Notifier {
 public:
  // The figures of the status line are as old as this at most.
  static constexpr std::chrono::seconds kReportEvery{10};
  static constexpr std::chrono::seconds kExtendBy{60};

  // By NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
  static Notifier FromEnvironment();

  Notifier() = default;
  ~Notifier();
  Notifier(Notifier&& other) noexcept;
  Notifier& operator=(Notifier&&) = delete;

  bool enabled() const { return socket_ >= 0; }

  // Each turn of the loop. True when the status line is due: then call Report.
  bool Turn(base::State state, base::Now now);

  // `waits` = a halt is a state to stay in.
  void Report(base::State state, std::string_view status, bool waits, base::Now now);

  void Reloading(base::Now now);
  void Reloaded();
  void Stopping();

 private:
  // False when it has to be sent again: the manager's socket is full.
  bool Send(const std::string& message) const;

  int socket_ = -1;
  sockaddr_un address_{};
  socklen_t address_length_ = 0;
  std::chrono::microseconds watchdog_every_{0};  // 0 = no watchdog
  base::MonotonicTime next_watchdog_;
  base::MonotonicTime next_report_;
  base::State reported_ = base::State::kStarting;
  bool ready_ = false;
  bool stopping_ = false;
};

class Helper {
 public:
  static constexpr std::chrono::milliseconds kPatience{2'000};

  // Whom its jobs wait for.
  enum class Queue { kSource, kLook, kPing, kKafka, kDeadLetters, kSchemas, kMonitor };
  static constexpr std::size_t kQueues = static_cast<std::size_t>(Queue::kMonitor) + 1;

  Helper();
  ~Helper();
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  // `work` must bound its own time. Jobs of one queue run one at a time, in order.
  void Run(Queue queue, std::function<void()> work, std::function<void()> done);

  // For a module that knows no helper; as long as this.
  base::BlockingRunner* RunnerOf(Queue queue);

  // Readable when RunDone has something to do.
  int fd() const;

  // Calls `done` of every job that finished since.
  void RunDone();

 private:
  class Runner final : public base::BlockingRunner {
   public:
    void Run(std::function<void()> work, std::function<void()> done) override {
      helper->Run(queue, std::move(work), std::move(done));
    }

    Helper* helper = nullptr;
    Queue queue = Queue::kSource;
  };

  struct Shared;  // outlives the helper when a thread is left behind
  std::shared_ptr<Shared> shared_;
  std::array<Runner, kQueues> runners_;
};

}  // namespace walpost::runtime
