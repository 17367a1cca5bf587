// StreamContract - what every ReplicationStream must do, whatever is behind it.
// Why: the loop is tested against the fake and runs against libpq; both must keep the same
// promises. How: derive a harness, hand its factory to INSTANTIATE_TEST_SUITE_P, link
// stream_contract.cc.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "postgres/replication_stream.h"

namespace walpost::testing {

// The other end of one stream.
class StreamHarness {
 public:
  virtual ~StreamHarness() = default;

  // A stream from the first event that was not committed as received.
  virtual std::unique_ptr<postgres::ReplicationStream> Open() = 0;

  // Makes `count` frames that hold "<number>:" with number counting up from the last call, and
  // `size` bytes of filling.
  virtual void Produce(int count, std::size_t size) = 0;

  // The number in a frame that Produce made, -1 in any other.
  virtual int NumberIn(std::string_view frame) const = 0;

  // A well-formed standby status.
  virtual std::string Status() const = 0;

  // True when what was produced waits at the server because nobody reads.
  virtual bool ServerIsHeldBack() = 0;

  // Statuses that reached the other end.
  virtual bool StatusArrived() = 0;

  // How long a server waits for a status before it gives up; the contract keeps a stream unread for
  // longer.
  virtual int ServerTimeoutMs() const = 0;

  // The server ends the stream abruptly.
  virtual void Kill() = 0;

  // What a client must send when it gets this frame so that a stop goes on; empty = nothing.
  virtual std::string Answer(std::string_view frame) const = 0;

  // The server begins an orderly stop.
  virtual void Shutdown() = 0;
};

struct HarnessCase {
  const char* name;
  std::function<std::unique_ptr<StreamHarness>()> make;
};

class StreamContract : public ::testing::TestWithParam<HarnessCase> {
 protected:
  void SetUp() override;

  // Reads as the loop does: Take until kNothing, wait, Receive.
  postgres::ReplicationStream::Next Await(std::string_view* frame);
  // The numbers of the next `count` produced frames.
  std::vector<int> AwaitNumbers(std::size_t count);
  // Reads on, and answers keepalives, until kEnded.
  const postgres::StreamEnd& AwaitEnd();

  std::unique_ptr<StreamHarness> harness_;
  std::unique_ptr<postgres::ReplicationStream> stream_;
  bool answers_ = true;
};

}  // namespace walpost::testing
