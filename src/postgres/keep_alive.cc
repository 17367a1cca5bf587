#include "postgres/keep_alive.h"

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace walpost::postgres {
namespace {

constexpr std::chrono::milliseconds kAnswerEvery{300};
constexpr std::chrono::milliseconds kPingEvery{2'000};

// A standby status update without any position: those of 0 change nothing.
std::string NeutralStatus() {
  constexpr std::size_t kPositionsTimeAndFlagBytes = 4 * sizeof(std::int64_t) + 1;
  return "r" + std::string(kPositionsTimeAndFlagBytes, '\0');
}

}  // namespace

KeepAlive::KeepAlive(ReplicationStream* stream, Pinger* pinger)
    : stream_(stream),
      pinger_(pinger),
      answers_([this] { Answer(); }),
      watch_([this] { WatchServer(); }) {}

KeepAlive::~KeepAlive() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_watch_ = true;
  }
  changed_.notify_all();
  watch_.join();  // a ping may take longer than the server waits for an answer
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_answers_ = true;
  }
  changed_.notify_all();
  answers_.join();
}

void KeepAlive::Answer() {
  const std::string status = NeutralStatus();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kAnswerEvery, [this] { return stopping_answers_; })) {
    if (!stream_->Send(status).ok()) {
      return;
    }
  }
}

void KeepAlive::WatchServer() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kPingEvery, [this] { return stopping_watch_; })) {
    lock.unlock();
    const base::PingAnswer answer = pinger_->Ping(base::PingQuestion::kServes);
    lock.lock();
    if (answer == base::PingAnswer::kStopping) {
      shutdown(stream_->socket(), SHUT_RDWR);
      return;
    }
  }
}

}  // namespace walpost::postgres
