// Helper - the one thread that may block: connecting, topic metadata, pings.
// Why: the loop must never wait for a server; whatever may is a job here, and its result comes back
//   by event fd.
// Thread: Run, RunDone and the destructor on the loop thread.
// Lifetime: a job still running when the helper is destroyed is given kPatience; after that its
//   thread is left behind, holding only what the job itself owns, and its `done` is never called.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "base/blocking_runner.h"

namespace walpost::runtime {

class Helper : public base::BlockingRunner {
 public:
  static constexpr std::chrono::milliseconds kPatience{2'000};

  Helper();
  ~Helper() override;
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  void Run(std::function<void()> work, std::function<void()> done) override;

  // Readable when RunDone has something to do.
  int fd() const;

  // Calls `done` of every job that finished since.
  void RunDone();

 private:
  struct Shared;  // outlives the helper when its thread is left behind
  std::shared_ptr<Shared> shared_;
};

}  // namespace walpost::runtime
