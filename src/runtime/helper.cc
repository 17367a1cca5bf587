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

  Shared() : event_fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { PCHECK(event_fd >= 0); }

  ~Shared() { close(event_fd); }

  void ThreadMain() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopping || !jobs.empty(); });
      if (stopping) {
        break;
      }
      Job job = std::move(jobs.front());
      jobs.pop_front();
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
    ended = true;
    changed.notify_all();
  }

  const int event_fd;
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  std::deque<Job> jobs;
  std::vector<std::function<void()>> finished;
  bool stopping = false;
  bool ended = false;
};

Helper::Helper() : shared_(std::make_shared<Shared>()) {
  std::thread([shared = shared_] { shared->ThreadMain(); }).detach();
}

Helper::~Helper() {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, kPatience, [this] { return shared_->ended; });
}

void Helper::Run(std::function<void()> work, std::function<void()> done) {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->jobs.push_back(Shared::Job{std::move(work), std::move(done)});
  shared_->changed.notify_all();
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
