// BlockingRunner - how a module that owns no thread gets blocking work done without blocking the
// loop.
// Why: librdkafka's metadata calls and libpq's connect block up to their time-out; the runtime owns
//   helper threads that may, and posts results back to the loop.
// Thread: Run is called on the loop thread; `work` runs on a helper thread, `done` on the loop
//   thread afterwards. `done` is not called when the runner stops first, so whatever `work` refers
//   to must be owned by it.
#pragma once

#include <functional>

namespace walpost::base {

class BlockingRunner {
 public:
  virtual ~BlockingRunner() = default;

  // `work` must bound its own time. Jobs run one at a time, in order.
  virtual void Run(std::function<void()> work, std::function<void()> done) = 0;
};

}  // namespace walpost::base
