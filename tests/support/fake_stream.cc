#include "support/fake_stream.h"

#include <glog/logging.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace walpost::testing {

using postgres::StreamEnd;

FakeWire::FakeWire() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  CHECK_GE(descriptor_, 0);
}

FakeWire::~FakeWire() { close(descriptor_); }

void FakeWire::PushLocked(Item item) {
  unread_.push_back(std::move(item));
  const std::uint64_t one = 1;
  CHECK_EQ(write(descriptor_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
}

void FakeWire::Push(std::string frame) {
  const std::lock_guard<std::mutex> lock(mutex_);
  PushLocked(Item{std::move(frame), std::nullopt, std::nullopt});
}

void FakeWire::PushNotice(std::string notice) {
  const std::lock_guard<std::mutex> lock(mutex_);
  PushLocked(Item{"", std::move(notice), std::nullopt});
}

void FakeWire::End(StreamEnd end) {
  const std::lock_guard<std::mutex> lock(mutex_);
  PushLocked(Item{"", std::nullopt, std::move(end)});
}

std::vector<std::string> FakeWire::sent() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sent_;
}

bool FakeWire::copy_done() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return copy_done_;
}

bool FakeWire::closed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return closed_;
}

std::size_t FakeWire::unread() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return unread_.size();
}

void FakeWire::HoldWrites(bool hold) {
  const std::lock_guard<std::mutex> lock(mutex_);
  hold_ = hold;
}

void FakeWire::FailWrites(absl::Status failure) {
  const std::lock_guard<std::mutex> lock(mutex_);
  failure_ = std::move(failure);
}

void FakeWire::IgnoreCopyDone() {
  const std::lock_guard<std::mutex> lock(mutex_);
  answer_copy_done_ = false;
}

FakeStream::~FakeStream() {
  const std::lock_guard<std::mutex> lock(wire_->mutex_);
  wire_->closed_ = true;
}

int FakeStream::socket() const { return wire_->descriptor_; }

bool FakeStream::Receive() {
  const std::lock_guard<std::mutex> lock(wire_->mutex_);
  std::uint64_t ignored = 0;
  (void)!read(wire_->descriptor_, &ignored, sizeof(ignored));
  const bool any = !wire_->unread_.empty();
  while (!wire_->unread_.empty()) {
    received_.push_back(std::move(wire_->unread_.front()));
    wire_->unread_.pop_front();
  }
  return any;
}

postgres::ReplicationStream::Next FakeStream::Take(std::string_view* frame) {
  // Frames of before are overwritten, so that a test sees a view kept for too long.
  frame_.assign(frame_.size(), '\xdd');
  while (!ended_ && !received_.empty()) {
    FakeWire::Item item = std::move(received_.front());
    received_.pop_front();
    if (item.notice.has_value()) {
      notices_.push_back(*std::move(item.notice));
    } else if (item.end.has_value()) {
      end_ = *std::move(item.end);
      ended_ = true;
    } else {
      frame_ = std::move(item.frame);
      *frame = frame_;
      return Next::kFrame;
    }
  }
  return ended_ ? Next::kEnded : Next::kNothing;
}

absl::Status FakeStream::Send(std::string_view payload) {
  {
    const std::lock_guard<std::mutex> lock(wire_->mutex_);
    if (ended_ || wire_->copy_done_) {
      return absl::UnavailableError("sending a status failed: the stream has ended");
    }
    if (!wire_->failure_.ok()) {
      return wire_->failure_;
    }
    wire_->held_.emplace_back(payload);
  }
  return Flush();
}

bool FakeStream::wants_write() const {
  const std::lock_guard<std::mutex> lock(wire_->mutex_);
  return !wire_->held_.empty();
}

absl::Status FakeStream::Flush() {
  const std::lock_guard<std::mutex> lock(wire_->mutex_);
  if (!wire_->failure_.ok()) {
    return wire_->failure_;
  }
  if (!wire_->hold_) {
    for (std::string& payload : wire_->held_) {
      wire_->sent_.push_back(std::move(payload));
    }
    wire_->held_.clear();
  }
  return absl::OkStatus();
}

absl::Status FakeStream::SendCopyDone() {
  const std::lock_guard<std::mutex> lock(wire_->mutex_);
  if (!wire_->failure_.ok()) {
    return wire_->failure_;
  }
  if (ended_ || wire_->copy_done_) {
    return absl::UnavailableError("sending CopyDone failed: the stream has ended");
  }
  wire_->copy_done_ = true;
  if (wire_->answer_copy_done_) {
    StreamEnd end;
    end.kind = StreamEnd::Kind::kFinished;
    wire_->PushLocked(FakeWire::Item{"", std::nullopt, std::move(end)});
  }
  return absl::OkStatus();
}

std::optional<std::string> FakeStream::TakeNotice() {
  if (notices_.empty()) {
    return std::nullopt;
  }
  std::string notice = std::move(notices_.front());
  notices_.pop_front();
  return notice;
}

}  // namespace walpost::testing
