#include "runtime/helper.h"

#include <glog/logging.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace walpost::runtime {

struct Helper::Shared {
  struct Job {
    std::function<void()> work;
    std::function<void()> done;
  };

  struct Jobs {
    std::deque<Job> waiting;
    bool begun = false;  // has a thread
  };

  Shared() : event_fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { PCHECK(event_fd >= 0); }

  ~Shared() { close(event_fd); }

  void ThreadMain(Jobs* jobs) {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this, jobs] { return stopping || !jobs->waiting.empty(); });
      if (stopping) {
        break;
      }
      Job job = std::move(jobs->waiting.front());
      jobs->waiting.pop_front();
      lock.unlock();
      job.work();
      job.work = nullptr;
      lock.lock();
      if (!stopping) {
        finished.push_back(std::move(job.done));
        const std::uint64_t one = 1;
        PCHECK(write(event_fd, &one, sizeof(one)) == sizeof(one));
      }
    }
    --threads;
    changed.notify_all();
  }

  const int event_fd;
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  std::array<Jobs, kQueues> queues;
  std::vector<std::function<void()>> finished;
  int threads = 0;
  bool stopping = false;
};

Helper::Helper() : shared_(std::make_shared<Shared>()) {
  for (std::size_t i = 0; i < kQueues; ++i) {
    runners_[i].helper = this;
    runners_[i].queue = static_cast<Queue>(i);
  }
}

Helper::~Helper() {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, kPatience, [this] { return shared_->threads == 0; });
}

void Helper::Run(Queue queue, std::function<void()> work, std::function<void()> done) {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  Shared::Jobs& jobs = shared_->queues[static_cast<std::size_t>(queue)];
  jobs.waiting.push_back(Shared::Job{std::move(work), std::move(done)});
  if (!std::exchange(jobs.begun, true)) {
    ++shared_->threads;
    std::thread([shared = shared_, &jobs] { shared->ThreadMain(&jobs); }).detach();
  }
  shared_->changed.notify_all();
}

base::BlockingRunner* Helper::RunnerOf(Queue queue) {
  return &runners_[static_cast<std::size_t>(queue)];
}

int Helper::fd() const { return shared_->event_fd; }

void Helper::RunDone() {
  std::uint64_t count = 0;
  if (read(shared_->event_fd, &count, sizeof(count)) < 0) {
    return;
  }
  std::vector<std::function<void()>> finished;
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    finished.swap(shared_->finished);
  }
  for (const std::function<void()>& done : finished) {
    done();
  }
}

}  // namespace walpost::runtime
