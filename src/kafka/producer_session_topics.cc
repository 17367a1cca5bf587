// The part of ProducerSession that knows topics: look-ups on the helper thread, partition counts,
// the choice of a partition.
#include <glog/logging.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "kafka/held_rejections.h"
#include "kafka/producer_session.h"

namespace walpost::kafka {

using base::LogEvent;
using delivery::Failure;
using delivery::FailureKind;
using delivery::SubmitResult;

ProducerSession::TopicState* ProducerSession::StateOf(std::string_view name) {
  if (last_topic_ != nullptr && last_topic_->name == name) {
    return last_topic_;
  }
  auto found = topics_.find(name);
  if (found == topics_.end()) {
    found = topics_.emplace(name, std::make_unique<TopicState>()).first;
    found->second->name = std::string(name);
  }
  last_topic_ = found->second.get();
  return last_topic_;
}

void ProducerSession::WantLookUp(TopicState* topic) {
  if (topic->phase != TopicState::Phase::kLookingUp) {
    topic->phase = TopicState::Phase::kLookingUp;
    (now_.mono < topic->ask_from ? to_look_up_soon_ : to_look_up_).push_back(topic->name);
    StartLookUps();
  }
}

SubmitResult ProducerSession::FindTopic(std::string_view name) {
  if (closing_ || failed_ || outgrown_) {
    return SubmitResult{SubmitResult::Outcome::kNotNow, {}};
  }
  TopicState* topic = StateOf(name);
  return topic->phase == TopicState::Phase::kReady ? SubmitResult{} : AwaitTopic(topic);
}

SubmitResult ProducerSession::AwaitTopic(TopicState* topic) {
  const bool rejected = topic->phase == TopicState::Phase::kRejected;
  return rejected && now_.mono < topic->answered_at + kAnswerKept ? ReportRejection(topic)
                                                                  : LookUpFirst(topic);
}

SubmitResult ProducerSession::LookUpFirst(TopicState* topic) {
  WantLookUp(topic);
  return SubmitResult{SubmitResult::Outcome::kTopicPending, {}};
}

// Once: who wants to know it again has it looked up again. So what does not exist is not kept.
SubmitResult ProducerSession::ReportRejection(TopicState* topic) {
  SubmitResult rejected{SubmitResult::Outcome::kRejected, std::move(topic->rejection)};
  topic->phase = TopicState::Phase::kNew;
  if (!topic->kept) {
    last_topic_ = nullptr;
    topics_.erase(topics_.find(topic->name));
  }
  return rejected;
}

// At most one job at a time; what comes meanwhile is asked for together.
void ProducerSession::StartLookUps() {
  while (!to_look_up_soon_.empty() && now_.mono >= topics_.at(to_look_up_soon_.front())->ask_from) {
    to_look_up_.push_back(std::move(to_look_up_soon_.front()));
    to_look_up_soon_.pop_front();
  }
  if (looking_up_ || to_look_up_.empty() || now_.mono < memory_->look_up_from) {
    return;
  }
  looking_up_ = true;
  const bool together = rejected_topics_ >= kRejectedMany;
  // Shared by the two halves of the job.
  auto questions = std::make_shared<TopicQuestions>();
  if (now_.mono < memory_->silent_until) {
    questions->silent_brokers = memory_->silent_brokers;
  }
  while (!to_look_up_.empty() &&
         questions->each.size() < (together ? kQuestionsTogether : kQuestions)) {
    TopicQuestion& question = questions->each.emplace_back();
    question.name = std::move(to_look_up_.front());
    TopicState* topic = topics_.at(question.name).get();
    question.opaque = topic;
    question.received_below = received_below_;
    if (topic->partition_wanted) {
      question.partitions_wanted = std::numeric_limits<std::int32_t>::max();
    } else if (const auto known = memory_->partitions.find(question.name);
               known != memory_->partitions.end() && !known->second.made_anew) {
      question.partitions_wanted = known->second.count;
    }
    to_look_up_.pop_front();
  }
  runner_->Run(
      [producer = producer_, options = options_, questions, together,
       describe = now_.mono >= memory_->describe_from] {
        if (together) {
          AskWhichTopicsAreRejected(options, questions.get());
        }
        AskAboutTopics(options, producer.get(), describe, questions.get());
      },
      [this, alive = alive_, questions] {
        if (*alive) {
          FinishLookUps(*questions);
        }
      });
}

void ProducerSession::FinishLookUps(const TopicQuestions& questions) {
  looking_up_ = false;
  if (questions.answered != Answered::kNotAsked) {
    memory_->look_up_from = now_.mono + kAskEachAfter;
  }
  if (questions.answered == Answered::kSome && now_.mono >= memory_->silent_until) {
    memory_->silent_brokers = questions.silent_brokers;
    memory_->silent_until = now_.mono + kSilentKept;
  }
  for (const TopicQuestion& found : questions.each) {
    TopicState* topic = topics_.at(found.name).get();
    topic->kept = topic->kept || found.producer_asked;
    if (!found.asked) {
      to_look_up_.push_front(topic->name);
    } else if (TakeAnswer(found, topic)) {
      topic->asked_below = found.received_below;
      topic->asked_each_broker =
          found.partitions_wanted == std::numeric_limits<std::int32_t>::max();
      topic->each_answered = questions.answered == Answered::kEach;
      topic->rejection.silent = !topic->each_answered;
      topic->partition_wanted = false;
      topic->answered_at = now_.mono;
      answered_.push_back(topic->name);
    } else {
      topic->ask_from = now_.mono + kAskAgainAfter;
      to_look_up_soon_.push_back(topic->name);
    }
  }
}

bool ProducerSession::TakeAnswer(const TopicQuestion& found, TopicState* topic) {
  if (found.error != RD_KAFKA_RESP_ERR_NO_ERROR || found.alone) {
    const char* const why = found.alone ? "a broker rejects it, and none answers on a new "
                                          "connection: walpost asks until one does"
                                        : rd_kafka_err2str(found.error);
    facts_->OnError(absl::StrFormat("topic '%s' cannot be looked up: %s", topic->name, why),
                    now_.wall);
    (*notify_)(
        {KafkaNotice::Severity::kDebug, LogEvent::kKafkaTopicLookupFailed, facts_->last_error});
    return false;
  }
  facts_->OnAnswer();
  if (found.disputed()) {
    OnContradicted(found);
    OnStaleBroker(absl::StrFormat("brokers do not agree about topic '%s'", topic->name));
    return false;
  }
  if (Classify(found.topic_error) != FailureKind::kNone) {
    return TakeRejection(found, topic);
  }
  if (found.partitions == 0) {
    return false;
  }
  if (topic->handle == nullptr) {
    topic->handle = NewTopic(producer_.get(), topic->name, topic);
    CHECK(topic->handle != nullptr) << topic->name;
  }
  if (!TakePartitionCount(topic, found.partitions)) {
    return false;
  }
  topic->leaders = found.leaders;
  memory_->rejections.OnLimit(topic->name, FailureKind::kPartitionUnknown, topic->partition_count);
  TakeLimits(found, topic);
  const auto rejected = memory_->rejected_times.find(topic->name);
  topic->dated_now = rejected != memory_->rejected_times.end() &&
                     rejected->second.age_max == topic->limits.age_max &&
                     rejected->second.ahead_max == topic->limits.ahead_max;
  if (!topic->dated_now && rejected != memory_->rejected_times.end()) {
    memory_->rejected_times.erase(rejected);
  }
  topic->phase = TopicState::Phase::kReady;
  return true;
}

// A broker knows more of the topic than the one that was asked: nothing from before counts.
void ProducerSession::OnContradicted(const TopicQuestion& found) {
  memory_->OnContradicted(found.name, now_.mono);
  memory_->rejections.OnLimit(found.name, FailureKind::kPartitionUnknown,
                              found.partitions_elsewhere);
  if (const auto known = memory_->partitions.find(found.name); known != memory_->partitions.end()) {
    known->second.fewer_since.reset();
  }
}

bool ProducerSession::TakeRejection(const TopicQuestion& found, TopicState* topic) {
  const FailureKind kind = Classify(found.topic_error);
  std::string why;
  switch (kind) {
    case FailureKind::kTopicUnknown:
      ++rejected_topics_;
      OnMadeAnew(topic);
      why = absl::StrFormat("topic '%s' does not exist: create it, or correct the `topic` template",
                            topic->name);
      break;
    case FailureKind::kTopicNotAuthorized:
      ++rejected_topics_;
      why = absl::StrFormat(
          "topic '%s': not authorized: grant walpost's Kafka user DESCRIBE and WRITE on it",
          topic->name);
      break;
    case FailureKind::kTopicInvalid:
      why = absl::StrFormat("topic '%s' is not a legal name", topic->name);
      break;
    default:  // leader election and the like
      return false;
  }
  topic->rejection = Failure{kind, std::move(why)};
  topic->rejection.contradicted_at = memory_->ContradictedAt(topic->name);
  topic->phase = TopicState::Phase::kRejected;
  return true;
}

// Without the right to describe the topic's configuration, or in time, it goes on without limits.
void ProducerSession::TakeLimits(const TopicQuestion& found, TopicState* topic) {
  topic->limits_read_at = now_.mono;
  if (!found.limits.ok()) {
    topic->limits = {};
    if (found.limits.status().code() == absl::StatusCode::kDeadlineExceeded) {
      memory_->describe_from = now_.mono + kDescribeAgainAfter;
    }
    if (memory_->reported_unlimited.insert(topic->name).second) {
      (*notify_)({KafkaNotice::Severity::kWarning, LogEvent::kKafkaTopicLimitsUnknown,
                  absl::StrFormat(
                      "the configuration of topic '%s' cannot be read: %s; so no record is "
                      "dated back by more than %d s, and only Kafka's answer shows whether "
                      "one is too large",
                      topic->name, std::string(found.limits.status().message()),
                      std::chrono::duration_cast<std::chrono::seconds>(kUnknownAgeMax).count())});
    }
    return;
  }
  topic->limits = *found.limits;
  memory_->read_limits.insert_or_assign(topic->name, topic->limits);
  for (const FailureKind kind : {FailureKind::kRecordTooLarge, FailureKind::kRecordInvalid}) {
    memory_->rejections.OnLimit(topic->name, kind, LimitOf(kind, topic->limits));
  }
}

// Whether a record of long ago stays long enough to be read depends on what the topic's limits are
// now.
bool ProducerSession::DateNeedsLimits(const envelope::Record& record,
                                      const TopicState& topic) const {
  return now_.mono >= topic.limits_read_at + kLimitsDate &&
         SafeTimestampMs(record.timestamp_ms, TopicLimits(), now_.wall) > record.timestamp_ms;
}

// What the topic does not take is rejected here, where it harms no other record. Nothing = go on.
std::optional<SubmitResult> ProducerSession::CheckLimits(const envelope::Record& record,
                                                         delivery::Sequence sequence,
                                                         TopicState* topic) {
  const TopicLimits& limits = topic->limits;
  const bool lacks_key = LacksKey(record, limits);
  if (!lacks_key && !IsTooLarge(record, limits, compressed_).value_or(false)) {
    return DateNeedsLimits(record, *topic) ? std::optional(LookUpFirst(topic)) : std::nullopt;
  }
  const FailureKind kind = lacks_key ? FailureKind::kRecordInvalid : FailureKind::kRecordTooLarge;
  const delivery::Rejection rejection{.kind = kind,
                                      .limit = LimitOf(kind, limits),
                                      .limit_wanted = LimitWantedBy(record, kind),
                                      .contradicted_at = memory_->ContradictedAt(topic->name)};
  if (!HasLasted(rejection, sequence, topic)) {
    return LookUpFirst(topic);  // they may have been changed meanwhile
  }
  if (lacks_key) {
    return SubmitResult::Rejected(
        FailureKind::kRecordInvalid,
        absl::StrFormat("topic '%s' is compacted, and Kafka takes no record without a "
                        "key for it (INVALID_RECORD): change its cleanup.policy, or give "
                        "the row a key",
                        topic->name));
  }
  return SubmitResult::Rejected(
      FailureKind::kRecordTooLarge,
      absl::StrFormat("the record of %d bytes is larger than topic '%s' takes: raise its "
                      "max.message.bytes, which is %d",
                      BatchBytesOf(record), topic->name, *limits.message_bytes_max));
}

SubmitResult ProducerSession::OnMissingPartition(std::int32_t partition,
                                                 delivery::Sequence sequence, TopicState* topic) {
  const delivery::Rejection rejection{.kind = FailureKind::kPartitionUnknown,
                                      .limit = static_cast<std::int64_t>(topic->partition_count),
                                      .limit_wanted = std::int64_t{partition} + 1,
                                      .silent = !topic->each_answered,
                                      .contradicted_at = memory_->ContradictedAt(topic->name)};
  if (!topic->asked_each_broker || !HasLasted(rejection, sequence, topic)) {
    topic->partition_wanted = true;
    return LookUpFirst(topic);  // they may have been added meanwhile
  }
  return SubmitResult::Rejected(
      FailureKind::kPartitionUnknown,
      absl::StrFormat("topic '%s' has no partition %d, only %u: correct the row's "
                      "partition, or add partitions",
                      topic->name, partition, topic->partition_count));
}

// Whether what was looked up may reject a record: by a look-up that began after the record was
// received, and by every look-up of some time, since one broker learns of a change later than
// another. Look-ups speak of all records alike.
bool ProducerSession::HasLasted(const delivery::Rejection& rejection, delivery::Sequence sequence,
                                TopicState* topic) {
  const std::chrono::milliseconds left =
      memory_->rejections.Count(topic->name, rejection, /*counted_max=*/kAnswerKept, now_.mono);
  if (left.count() > 0) {
    topic->ask_from = topic->answered_at + kAskAgainAfter;
    return false;
  }
  return now_.mono < topic->limits_read_at + kLimitsKept &&
         (sequence < topic->asked_below || sequence >= delivery::kFirstOwnSequence);
}

// It was away, or its offsets begin anew.
void ProducerSession::OnMadeAnew(TopicState* topic) {
  if (const auto known = memory_->partitions.find(topic->name);
      known != memory_->partitions.end()) {
    known->second.made_anew = true;
  }
  memory_->rejections.ForgetTopic(topic->name);
  CloseGates(topic);
}

void ProducerSession::OnOffsetWentBack(TopicState* topic, const rd_kafka_message_t& message) {
  (*notify_)(
      {KafkaNotice::Severity::kWarning, LogEvent::kTopicMadeAnew,
       absl::StrFormat("topic '%s' gave offset %d of partition %d after a higher one: it was "
                       "deleted and made anew, or has lost records. `walpost replay "
                       "--missing` sends what is not there and is in the tables",
                       topic->name, message.offset, message.partition)});
  OnMadeAnew(topic);
}

// Its brokers do not know this producer.
void ProducerSession::CloseGates(TopicState* topic) {
  for (Partition& partition : topic->partitions) {
    partition.gate.OnMadeAnew();
  }
}

std::int32_t ProducerSession::ChoosePartition(const envelope::Record& record,
                                              TopicState* topic) const {
  if (record.partition >= 0) {
    return record.partition;
  }
  const auto count = static_cast<std::int32_t>(topic->partition_count);
  if (!record.key) {
    return static_cast<std::int32_t>(topic->round_robin++ % static_cast<std::uint32_t>(count));
  }
  return PartitionForKey(*record.key, count);
}

std::int32_t PartitionForKey(std::string_view key, std::int32_t partition_count) {
  return rd_kafka_msg_partitioner_murmur2(nullptr, key.data(), key.size(), partition_count, nullptr,
                                          nullptr);
}

std::int32_t KeyHash(std::string_view key) {
  // librdkafka shows it by its modulo only. By the largest count that is the hash, or 0 for that
  // count itself.
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::int32_t hash = PartitionForKey(key, kMost);
  return hash == 0 && PartitionForKey(key, kMost - 1) == 1 ? kMost : hash;
}

}  // namespace walpost::kafka
