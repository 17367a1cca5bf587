// The stream contract on the fake, and what only the fake can do.
#include "support/fake_stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "conformance/stream_contract.h"

namespace walpost::testing {
namespace {

using postgres::StreamEnd;
using Next = postgres::ReplicationStream::Next;

class FakeHarness final : public StreamHarness {
 public:
  std::unique_ptr<postgres::ReplicationStream> Open() override {
    return std::make_unique<FakeStream>(wire_);
  }

  void Produce(int count, std::size_t size) override {
    for (int i = 0; i < count; ++i) {
      wire_->Push(std::to_string(next_++) + ":" + std::string(size, 'x'));
    }
  }

  int NumberIn(std::string_view frame) const override {
    const std::size_t colon = frame.find(':');
    return colon == std::string_view::npos ? -1 : std::stoi(std::string(frame.substr(0, colon)));
  }

  std::string Status() const override { return "status"; }

  std::string Answer(std::string_view /*frame*/) const override { return ""; }

  bool ServerIsHeldBack() override { return wire_->unread() > 0; }

  bool StatusArrived() override { return !wire_->sent().empty(); }

  int ServerTimeoutMs() const override { return 8; }

  void Kill() override {
    StreamEnd end;
    end.status = absl::UnavailableError("killed");
    wire_->End(std::move(end));
  }

  void Shutdown() override {
    StreamEnd end;
    end.kind = StreamEnd::Kind::kFinished;
    wire_->End(std::move(end));
  }

 private:
  const std::shared_ptr<FakeWire> wire_ = std::make_shared<FakeWire>();
  int next_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Fake, StreamContract,
                         ::testing::Values(HarnessCase{
                             "Fake", [] { return std::make_unique<FakeHarness>(); }}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(FakeStreamTest, HeldWritesArriveAfterTheyAreReleased) {
  const auto wire = std::make_shared<FakeWire>();
  FakeStream stream(wire);
  wire->HoldWrites(true);
  ASSERT_TRUE(stream.Send("one").ok());
  EXPECT_TRUE(stream.wants_write());
  EXPECT_TRUE(wire->sent().empty());
  wire->HoldWrites(false);
  ASSERT_TRUE(stream.Flush().ok());
  EXPECT_FALSE(stream.wants_write());
  EXPECT_EQ(wire->sent(), std::vector<std::string>{"one"});
}

TEST(FakeStreamTest, NoticesAndFailuresComeAsScripted) {
  const auto wire = std::make_shared<FakeWire>();
  auto stream = std::make_unique<FakeStream>(wire);
  wire->PushNotice("55000: skipped");
  EXPECT_EQ(stream->TakeNotice(), std::nullopt);
  stream->Receive();
  std::string_view frame;
  EXPECT_EQ(stream->Take(&frame), Next::kNothing);
  EXPECT_EQ(stream->TakeNotice(), "55000: skipped");
  wire->FailWrites(absl::UnavailableError("broken pipe"));
  EXPECT_FALSE(stream->Send("status").ok());
  EXPECT_FALSE(wire->closed());
  stream.reset();
  EXPECT_TRUE(wire->closed());
}

}  // namespace
}  // namespace walpost::testing
