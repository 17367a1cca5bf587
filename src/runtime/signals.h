// Signals - SIGTERM, SIGINT and SIGHUP as a file descriptor.
// Why: a handler may do next to nothing; the loop wants to read them like anything else.
// Thread: construct before other threads start, so that they inherit the blocked mask.
#pragma once

namespace walpost::runtime {

class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_; }

  // The next pending signal's number, 0 when there is none.
  int Take();

 private:
  int fd_ = -1;
};

}  // namespace walpost::runtime
