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
    : stream_(stream), pinger_(pinger), thread_([this] { ThreadMain(); }) {}

KeepAlive::~KeepAlive() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void KeepAlive::ThreadMain() {
  const std::string status = NeutralStatus();
  auto ping_at = std::chrono::steady_clock::now() + kPingEvery;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kAnswerEvery, [this] { return stopping_; })) {
    if (!stream_->Send(status).ok()) {
      return;
    }
    if (std::chrono::steady_clock::now() < ping_at) {
      continue;
    }
    if (pinger_->Ping(base::PingQuestion::kServes) == base::PingAnswer::kStopping) {
      shutdown(stream_->socket(), SHUT_RDWR);
      return;
    }
    ping_at = std::chrono::steady_clock::now() + kPingEvery;
  }
}

}  // namespace walpost::postgres
