#include "runtime/notifier.h"

#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

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

}  // namespace walpost::runtime
