#include "runtime/signals.h"

#include <glog/logging.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace walpost::runtime {
namespace {

sigset_t Handled() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

Signals::Signals() {
  const sigset_t set = Handled();
  PCHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  PCHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
  fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  PCHECK(fd_ >= 0);
}

Signals::~Signals() { close(fd_); }

int Signals::Take() {
  signalfd_siginfo info{};
  if (read(fd_, &info, sizeof(info)) != sizeof(info)) {
    return 0;
  }
  return static_cast<int>(info.ssi_signo);
}

}  // namespace walpost::runtime
