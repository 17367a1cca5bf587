// KeepAlive - answers the server on a stream that nobody reads yet, until it is destroyed.
// Why: behind START_REPLICATION the server drops a connection that says nothing for wal_sender_timeout,
//   and what must be looked at before the first row may take longer, where Kafka is slow.
// Thread: has two of its own. Meanwhile nobody else may use the stream.
// Lifetime: within that of the stream. The end waits for both threads: a ping may take 2 s.
// Units/limits: one status every 300 ms, with no position: it confirms nothing. Every 2 s the server is asked
//   whether it is stopping: that waits for its walsenders, and would wait for this one.
// Errors: a stream that is lost is answered no more; whoever reads it next sees why. That of a server that
//   is stopping is ended.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "postgres/connect.h"
#include "postgres/replication_stream.h"

namespace walpost::postgres {

class KeepAlive {
 public:
  // `pinger` asks the stream's server.
  KeepAlive(ReplicationStream* stream, Pinger* pinger);
  ~KeepAlive();
  KeepAlive(const KeepAlive&) = delete;
  KeepAlive& operator=(const KeepAlive&) = delete;

 private:
  void Answer();
  void WatchServer();

  ReplicationStream* const stream_;
  Pinger* const pinger_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_watch_ = false;    // guarded by mutex_
  bool stopping_answers_ = false;  // guarded by mutex_
  std::thread answers_;
  std::thread watch_;
};

}  // namespace walpost::postgres
