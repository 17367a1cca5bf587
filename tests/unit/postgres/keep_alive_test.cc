// What a server hears while something else is asked behind START_REPLICATION.
#include "postgres/server_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace walpost::postgres {
namespace {

using base::PingAnswer;
using std::chrono::seconds;

class CountingStream : public ReplicationStream {
 public:
  int socket() const override { return -1; }

  bool Receive() override { return false; }

  Next Take(std::string_view* /*frame*/) override { return Next::kNothing; }

  const StreamEnd& end() const override { return end_; }

  bool wants_write() const override { return false; }

  absl::Status Flush() override { return absl::OkStatus(); }

  absl::Status SendCopyDone() override { return absl::OkStatus(); }

  std::optional<std::string> TakeNotice() override { return std::nullopt; }

  absl::Status Send(std::string_view /*payload*/) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++sent_;
    changed_.notify_all();
    return absl::OkStatus();
  }

  // Whether so many more are sent soon.
  bool AwaitMore(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int before = sent_;
    return changed_.wait_for(lock, seconds(10), [&] { return sent_ >= before + count; });
  }

 private:
  StreamEnd end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int sent_ = 0;
};

// Answers when the stream has sent two statuses after the end of the KeepAlive began.
class BlockingPinger : public Pinger {
 public:
  explicit BlockingPinger(CountingStream* stream) : stream_(stream) {}

  PingAnswer Ping(base::PingQuestion /*question*/) override {
    std::unique_lock<std::mutex> lock(mutex_);
    asked_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return ending_; });
    answered_ = stream_->AwaitMore(2);
    return PingAnswer::kServes;
  }

  void AwaitQuestion() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return asked_; });
  }

  void End() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }

  bool answered() const { return answered_; }

 private:
  CountingStream* const stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool asked_ = false;
  bool ending_ = false;
  bool answered_ = false;
};

TEST(KeepAliveTest, PingThatBlocksKeepsNoAnswerFromTheServerUntilTheEnd) {
  CountingStream stream;
  BlockingPinger pinger(&stream);
  auto keep_alive = std::make_unique<KeepAlive>(&stream, &pinger);
  pinger.AwaitQuestion();
  EXPECT_TRUE(stream.AwaitMore(2));
  std::thread ending([&] { keep_alive.reset(); });
  pinger.End();
  ending.join();
  EXPECT_TRUE(pinger.answered());
}

}  // namespace
}  // namespace walpost::postgres
