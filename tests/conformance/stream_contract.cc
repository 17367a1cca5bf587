#include "conformance/stream_contract.h"

#include <gmock/gmock.h>
#include <poll.h>

#include <chrono>
#include <numeric>

namespace walpost::testing {
namespace {

using postgres::ReplicationStream;
using postgres::StreamEnd;
using Next = ReplicationStream::Next;

constexpr int kPatienceMs = 30'000;

std::vector<int> UpTo(int count, int first = 0) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

bool Readable(const ReplicationStream& stream, int timeout_ms) {
  pollfd descriptor{stream.socket(), POLLIN, 0};
  return poll(&descriptor, 1, timeout_ms) == 1;
}

}  // namespace

void StreamContract::SetUp() {
  harness_ = GetParam().make();
  stream_ = harness_->Open();
  ASSERT_NE(stream_, nullptr);
}

Next StreamContract::Await(std::string_view* frame) {
  Next next = stream_->Take(frame);
  while (next == Next::kNothing && Readable(*stream_, kPatienceMs)) {
    stream_->Receive();
    next = stream_->Take(frame);
  }
  return next;
}

std::vector<int> StreamContract::AwaitNumbers(std::size_t count) {
  std::vector<int> numbers;
  std::string_view frame;
  while (numbers.size() < count && Await(&frame) == Next::kFrame) {
    if (const int number = harness_->NumberIn(frame); number >= 0) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

const StreamEnd& StreamContract::AwaitEnd() {
  std::string_view frame;
  Next next = Await(&frame);
  while (next == Next::kFrame) {
    if (const std::string answer = harness_->Answer(frame); answers_ && !answer.empty()) {
      // When it fails, Take reports the end; there may be nothing left to wait for.
      if (!stream_->Send(answer).ok()) {
        while ((next = stream_->Take(&frame)) == Next::kFrame) {
        }
        break;
      }
    }
    next = Await(&frame);
  }
  EXPECT_EQ(next, Next::kEnded);
  return stream_->end();
}

TEST_P(StreamContract, FramesComeWholeAndInOrder) {
  harness_->Produce(500, 10);
  harness_->Produce(5, 300'000);
  harness_->Produce(500, 100);
  EXPECT_EQ(AwaitNumbers(1005), UpTo(1005));
}

TEST_P(StreamContract, FrameLargerThanAnyBufferComesWhole) {
  constexpr std::size_t kSize = 5'000'000;
  harness_->Produce(1, kSize);
  std::string_view frame;
  while (Await(&frame) == Next::kFrame && harness_->NumberIn(frame) < 0) {
  }
  EXPECT_EQ(harness_->NumberIn(frame), 0);
  EXPECT_GE(frame.size(), kSize);
}

TEST_P(StreamContract, NothingComesWithoutReceive) {
  std::string_view frame;
  while (Readable(*stream_, 0)) {  // greetings of a real server
    stream_->Receive();
  }
  while (stream_->Take(&frame) == Next::kFrame) {
  }
  harness_->Produce(1, 10);
  ASSERT_TRUE(Readable(*stream_, kPatienceMs));
  EXPECT_EQ(stream_->Take(&frame), Next::kNothing);
  EXPECT_EQ(AwaitNumbers(1), UpTo(1));
}

// Failure 6.
TEST_P(StreamContract, UnreadStreamHoldsTheServerBackWhileStatusesKeepItAlive) {
  harness_->Produce(4'000, 10'000);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(harness_->ServerTimeoutMs() * 2);
  while (std::chrono::steady_clock::now() < end) {
    ASSERT_TRUE(stream_->Send(harness_->Status()).ok());
    EXPECT_FALSE(stream_->wants_write());
    poll(nullptr, 0, harness_->ServerTimeoutMs() / 8);  // stands for a Kafka that is down
  }
  EXPECT_TRUE(harness_->ServerIsHeldBack());
  EXPECT_TRUE(harness_->StatusArrived());
  EXPECT_EQ(AwaitNumbers(4'000), UpTo(4'000));
}

TEST_P(StreamContract, CopyDoneEndsWithFinished) {
  harness_->Produce(3, 10);
  EXPECT_EQ(AwaitNumbers(3), UpTo(3));
  ASSERT_TRUE(stream_->SendCopyDone().ok());
  answers_ = false;  // nothing may follow CopyDone
  EXPECT_EQ(AwaitEnd().kind, StreamEnd::Kind::kFinished);
  EXPECT_FALSE(stream_->Send(harness_->Status()).ok());
}

// Failure 2.
TEST_P(StreamContract, ShutdownEndsWithFinished) {
  // Between its answer to START and its loop, a walsender takes a shutdown for its own end
  // (replication_active in walsender.c).
  harness_->Produce(1, 10);
  EXPECT_EQ(AwaitNumbers(1), UpTo(1));
  harness_->Shutdown();
  EXPECT_EQ(AwaitEnd().kind, StreamEnd::Kind::kFinished) << stream_->end().status;
}

// Failure 7.
TEST_P(StreamContract, FramesBeforeAKillArriveAndTheEndIsFinal) {
  harness_->Produce(20, 10);
  EXPECT_EQ(AwaitNumbers(10), UpTo(10));
  harness_->Kill();
  EXPECT_EQ(AwaitEnd().kind, StreamEnd::Kind::kLost);
  const std::string before = stream_->end().status.ToString();
  EXPECT_NE(before, "OK");
  std::string_view frame;
  stream_->Receive();
  EXPECT_EQ(stream_->Take(&frame), Next::kEnded);
  EXPECT_EQ(stream_->Take(&frame), Next::kEnded);
  EXPECT_EQ(stream_->end().status.ToString(), before);
  EXPECT_FALSE(stream_->Send(harness_->Status()).ok());
  EXPECT_FALSE(stream_->SendCopyDone().ok());
  EXPECT_FALSE(stream_->wants_write());
}

}  // namespace walpost::testing
