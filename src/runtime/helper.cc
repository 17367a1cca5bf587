#include "runtime/helper.h"

#include <glog/logging.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace walpost::runtime {

using base::State;
using std::chrono::microseconds;

namespace {

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

std::int64_t NumberOf(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

bool IsReady(State state, bool waits) {
  return state == State::kStreaming || state == State::kBackpressured || state == State::kStandby ||
         (state == State::kHalted && waits);
}

}  // namespace

Notifier Notifier::FromEnvironment() {
  Notifier notifier;
  const std::string_view path = Variable("NOTIFY_SOCKET");
  if (path.empty() || (path[0] != '/' && path[0] != '@') ||
      path.size() >= sizeof(notifier.address_.sun_path)) {
    return notifier;
  }
  notifier.address_.sun_family = AF_UNIX;
  std::memcpy(notifier.address_.sun_path, path.data(), path.size());
  if (path[0] == '@') {
    notifier.address_.sun_path[0] = '\0';  // a name in no file system
  }
  notifier.address_length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  notifier.socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  PCHECK(notifier.socket_ >= 0);
  const std::int64_t pid = NumberOf(Variable("WATCHDOG_PID"));
  if (pid == 0 || pid == getpid()) {
    notifier.watchdog_every_ = microseconds(NumberOf(Variable("WATCHDOG_USEC"))) / 3;
  }
  return notifier;
}

Notifier::~Notifier() {
  if (socket_ >= 0) {
    close(socket_);
  }
}

Notifier::Notifier(Notifier&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      address_(other.address_),
      address_length_(other.address_length_),
      watchdog_every_(other.watchdog_every_) {}

bool Notifier::Turn(State state, base::Now now) {
  if (!enabled()) {
    return false;
  }
  if (watchdog_every_.count() > 0 && now.mono >= next_watchdog_ && Send("WATCHDOG=1")) {
    next_watchdog_ = now.mono + watchdog_every_;
  }
  return state != reported_ || now.mono >= next_report_;
}

void Notifier::Report(State state, std::string_view status, bool waits, base::Now now) {
  std::string message = absl::StrFormat("STATUS=%s\n", status);
  // A line is a message of its own.
  std::replace_if(
      message.begin(), message.end() - 1, [](char c) { return c == '\n'; }, ' ');
  const bool ready = !ready_ && !stopping_ && IsReady(state, waits);
  if (ready) {
    message += "READY=1\n";
  }
  if ((!ready_ && !ready) || stopping_) {
    message += absl::StrFormat("EXTEND_TIMEOUT_USEC=%d\n", microseconds(kExtendBy).count());
  }
  if (Send(message)) {
    reported_ = state;
    next_report_ = now.mono + kReportEvery;
    ready_ = ready_ || ready;
  }
}

void Notifier::Reloading(base::Now now) {
  if (ready_) {
    const auto since = std::chrono::duration_cast<microseconds>(now.mono.time_since_epoch());
    Send(absl::StrFormat("RELOADING=1\nMONOTONIC_USEC=%d\n", since.count()));
  }
}

void Notifier::Reloaded() {
  if (ready_) {
    Send("READY=1");
  }
}

void Notifier::Stopping() {
  stopping_ = true;
  Send("STOPPING=1");
}

bool Notifier::Send(const std::string& message) const {
  if (!enabled()) {
    return true;
  }
  const ssize_t sent = sendto(socket_, message.data(), message.size(), MSG_NOSIGNAL,
                              reinterpret_cast<const sockaddr*>(&address_), address_length_);
  return sent == static_cast<ssize_t>(message.size());
}

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
