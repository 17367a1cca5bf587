#include "support/fake_sink.h"

#include <glog/logging.h>

#include <algorithm>

namespace walpost::testing {

using delivery::Failure;
using delivery::FailureKind;
using delivery::Sequence;
using delivery::SubmitResult;

namespace {

std::optional<std::string> Copy(const std::optional<std::string_view>& bytes) {
  return bytes ? std::optional<std::string>(*bytes) : std::nullopt;
}

}  // namespace

void FakeSink::Deliver(Sequence sequence) {
  Outstanding* const found = Find(sequence);
  CHECK(found != nullptr && !found->commanded) << "record " << sequence << " awaits no report";
  found->commanded = true;
  commands_.push_back(Command{Command::Kind::kDeliver, sequence, {}});
}

void FakeSink::DeliverAll() {
  for (const Outstanding& waiting : outstanding_) {
    if (!waiting.commanded) {
      Deliver(waiting.submission.sequence);
    }
  }
}

void FakeSink::Fail(Sequence sequence, FailureKind kind, std::string detail) {
  Outstanding* const found = Find(sequence);
  CHECK(found != nullptr && !found->commanded) << "record " << sequence << " awaits no report";
  found->commanded = true;
  const bool must_last = kind == FailureKind::kTopicNotAuthorized;  // as with the real one
  commands_.push_back(
      Command{Command::Kind::kFail, sequence, Failure{kind, std::move(detail), must_last}});
}

void FakeSink::FailSession(std::string detail) {
  CHECK(open_);
  commands_.push_back(Command{Command::Kind::kFailSession, 0,
                              Failure{FailureKind::kSessionEnded, std::move(detail)}});
}

void FakeSink::OutgrowProducer() {
  CHECK(open_);
  commands_.push_back(Command{Command::Kind::kOutgrow, 0, {}});
}

const FakeSink::Session& FakeSink::session() const {
  CHECK(!sessions_.empty());
  return sessions_.back();
}

std::vector<Sequence> FakeSink::accepted() const {
  std::vector<Sequence> sequences;
  for (const Submission& submission : session().accepted) {
    sequences.push_back(submission.sequence);
  }
  return sequences;
}

std::vector<Sequence> FakeSink::outstanding() const {
  std::vector<Sequence> sequences;
  for (const Outstanding& waiting : outstanding_) {
    sequences.push_back(waiting.submission.sequence);
  }
  return sequences;
}

std::int32_t FakeSink::PartitionOf(const envelope::Record& record) {
  if (record.partition >= 0) {
    return record.partition;
  }
  return record.key && !record.key->empty()
             ? static_cast<unsigned char>(record.key->back()) % kPartitions
             : 0;
}

void FakeSink::SetPending(const std::string& topic, bool pending) {
  if (pending) {
    pending_topics_.insert(topic);
  } else if (pending_topics_.erase(topic) != 0) {
    answered_topics_.push_back(topic);
  }
}

void FakeSink::Open(Mode mode) {
  CHECK(!open_) << "Open of a sink that is open";
  open_ = true;
  closing_ = false;
  failed_ = false;
  failed_partitions_.clear();
  sessions_.push_back(Session{mode, {}, false});
}

void FakeSink::Close() {
  CHECK(open_) << "Close of a sink that is closed";
  closing_ = true;
}

SubmitResult FakeSink::FindTopic(const envelope::Record& record) {
  CHECK(open_) << "a question to a sink that is closed";
  if (closing_ || failed_ || not_now_) {
    return SubmitResult{SubmitResult::Outcome::kNotNow, {}};
  }
  if (pending_topics_.contains(record.topic)) {
    return SubmitResult{SubmitResult::Outcome::kTopicPending, {}};
  }
  if (const auto rejected = rejected_topics_.find(record.topic);
      rejected != rejected_topics_.end()) {
    ++rejections_of_topic_[rejected->first];
    return SubmitResult{SubmitResult::Outcome::kRejected, rejected->second};
  }
  return SubmitResult{};
}

SubmitResult FakeSink::Submit(const envelope::Record& record, Sequence sequence) {
  CHECK(open_) << "Submit to a sink that is closed";
  Session& current = sessions_.back();
  if (closing_ || failed_ || not_now_ || outstanding_.size() >= capacity_) {
    return SubmitResult{SubmitResult::Outcome::kNotNow, {}};
  }
  if (const auto rejected = rejections_.find(sequence); rejected != rejections_.end()) {
    const auto& [topic, failure] = rejected->second;
    if (topic.empty() || topic == record.topic) {
      return SubmitResult{SubmitResult::Outcome::kRejected, failure};
    }
  }
  if (SubmitResult topic = FindTopic(record); topic.outcome != SubmitResult::Outcome::kAccepted) {
    return topic;
  }
  if (sequence >= delivery::kFirstOwnSequence && record.topic == looked_up_for_own_) {
    SetPending(looked_up_for_own_, true);
    return SubmitResult{SubmitResult::Outcome::kTopicPending, {}};
  }
  Submission submission{sequence,           std::string(record.topic), Copy(record.key),
                        Copy(record.value), PartitionOf(record),       {}};
  for (const envelope::RecordHeader& header : record.headers) {
    submission.headers.emplace_back(header.name, header.value);
  }
  current.accepted.push_back(submission);
  outstanding_.push_back(Outstanding{submission, record, false});
  return SubmitResult{};
}

void FakeSink::Poll(base::Now /*now*/, delivery::SinkListener* listener) {
  const bool was_closing = closing_;
  SetPending(looked_up_for_own_, false);
  while (!commands_.empty()) {
    Command command = std::move(commands_.front());
    commands_.pop_front();
    Serve(std::move(command), listener);
  }
  for (const std::string& topic : std::exchange(answered_topics_, {})) {
    listener->OnTopicAnswered(topic, !rejected_topics_.contains(topic));
  }
  if (!closing_ || hold_close_ || (!was_closing && !outstanding_.empty())) {
    return;
  }
  while (!outstanding_.empty()) {
    const Sequence sequence = outstanding_.front().submission.sequence;
    Report(sequence);
    if (!close_silently_) {
      listener->OnFailed(sequence, Failure{FailureKind::kSessionEnded, "purged"});
    }
  }
  open_ = false;
  closing_ = false;
  sessions_.back().closed = true;
  listener->OnClosed();
}

FakeSink::Outstanding* FakeSink::Find(Sequence sequence) {
  const auto found = std::find_if(
      outstanding_.begin(), outstanding_.end(),
      [sequence](const Outstanding& each) { return each.submission.sequence == sequence; });
  return found == outstanding_.end() ? nullptr : &*found;
}

void FakeSink::Serve(Command command, delivery::SinkListener* listener) {
  if (command.kind == Command::Kind::kFailSession) {
    failed_ = true;
    if (!closing_) {
      listener->OnSessionFailed(command.failure);
    }
    return;
  }
  if (command.kind == Command::Kind::kOutgrow) {
    failed_ = true;
    if (!closing_) {
      listener->OnProducerOutgrown();
    }
    return;
  }
  const Submission& submission = Find(command.sequence)->submission;
  const std::pair<std::string, std::int32_t> partition(submission.topic, submission.partition);
  if (command.kind == Command::Kind::kFail) {
    if (session().mode == Mode::kOneAtATime) {
      CheckFirst(command.sequence);
    }
    Report(command.sequence);
    failed_partitions_.insert(partition);
    if (closing_) {
      command.failure.kind = FailureKind::kSessionEnded;
    }
    listener->OnFailed(command.sequence, command.failure);
    return;
  }
  CHECK(!failed_partitions_.contains(partition))
      << "record " << command.sequence << " would become visible behind one that failed";
  CheckFirst(command.sequence);
  std::vector<Submission>& log = logs_[partition];
  log.push_back(Report(command.sequence));
  listener->OnDelivered(command.sequence,
                        {partition.second, static_cast<std::int64_t>(log.size()) - 1});
}

void FakeSink::CheckFirst(Sequence sequence) {
  const Submission& first = Find(sequence)->submission;
  for (const Outstanding& waiting : outstanding_) {
    if (waiting.submission.sequence == sequence) {
      return;
    }
    CHECK(waiting.submission.topic != first.topic ||
          waiting.submission.partition != first.partition)
        << "record " << sequence << " would overtake " << waiting.submission.sequence;
  }
}

FakeSink::Submission FakeSink::Report(Sequence sequence) {
  const auto found = std::find_if(
      outstanding_.begin(), outstanding_.end(),
      [sequence](const Outstanding& each) { return each.submission.sequence == sequence; });
  CHECK(found != outstanding_.end());
  Submission submission = found->submission;
  CHECK(Copy(found->record.key) == submission.key && Copy(found->record.value) == submission.value)
      << "the bytes of record " << sequence << " changed before its report";
  outstanding_.erase(found);
  return submission;
}

}  // namespace walpost::testing
