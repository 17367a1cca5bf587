// FakeStream - a scripted ReplicationStream, and FakeWire, the end of it that the test holds.
// Why: what a test pushes stays on the wire until Receive, and Take gives only what Receive
// fetched, as with a socket; so
//   back-pressure can be seen, and a loop can poll the descriptor.
// Thread: the wire is locked: a test may push while a loop on another thread reads.
// Lifetime: wire and stream share the state; either may go first.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "postgres/replication_stream.h"

namespace walpost::testing {

class FakeWire {
 public:
  FakeWire();
  ~FakeWire();
  FakeWire(const FakeWire&) = delete;
  FakeWire& operator=(const FakeWire&) = delete;

  // Server to client, in this order.
  void Push(std::string frame);
  void PushNotice(std::string notice);  // "SQLSTATE: message"
  void End(postgres::StreamEnd end);

  // Client to server.
  std::vector<std::string> sent() const;
  bool copy_done() const;
  // The client destroyed its stream.
  bool closed() const;

  // How many frames Receive has not fetched yet.
  std::size_t unread() const;

  // Sent payloads stay queued at the client (wants_write) until released.
  void HoldWrites(bool hold);
  // Every later Send, Flush and SendCopyDone fails.
  void FailWrites(absl::Status failure);
  // By default CopyDone is answered by kFinished after all frames pushed so far.
  void IgnoreCopyDone();

 private:
  friend class FakeStream;

  struct Item {
    std::string frame;
    std::optional<std::string> notice;
    std::optional<postgres::StreamEnd> end;
  };

  void PushLocked(Item item);

  mutable std::mutex mutex_;
  int descriptor_;  // readable while `unread_` holds something
  std::deque<Item> unread_;
  std::vector<std::string> held_;
  std::vector<std::string> sent_;
  bool hold_ = false;
  bool answer_copy_done_ = true;
  bool copy_done_ = false;
  bool closed_ = false;
  absl::Status failure_;
};

class FakeStream : public postgres::ReplicationStream {
 public:
  explicit FakeStream(std::shared_ptr<FakeWire> wire) : wire_(std::move(wire)) {}

  ~FakeStream() override;

  int socket() const override;
  bool Receive() override;
  Next Take(std::string_view* frame) override;

  const postgres::StreamEnd& end() const override { return end_; }

  absl::Status Send(std::string_view payload) override;
  bool wants_write() const override;
  absl::Status Flush() override;
  absl::Status SendCopyDone() override;
  std::optional<std::string> TakeNotice() override;

 private:
  const std::shared_ptr<FakeWire> wire_;
  std::deque<FakeWire::Item> received_;
  std::deque<std::string> notices_;
  std::string frame_;
  bool ended_ = false;
  postgres::StreamEnd end_;
};

}  // namespace walpost::testing
