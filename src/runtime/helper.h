// Helper - the threads that may block: connecting, topic metadata, pings.
// Why: the loop must never wait for a server; whatever may is a job here, and its result comes back
//   by event fd. A peer that does not answer holds up its own queue and no other.
// Thread: Run, RunDone and the destructor on the loop thread; the work of a queue on its own thread,
//   which begins with the first job.
// Lifetime: jobs still running when the helper is destroyed are given kPatience; after that their
//   threads are left behind, holding only what the jobs themselves own, and no `done` is called.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>

#include "base/blocking_runner.h"

namespace walpost::runtime {

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
