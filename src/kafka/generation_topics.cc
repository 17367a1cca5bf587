// The part of Generation that knows topics: look-ups on the helper thread, partition counts, the
// choice of a partition.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "kafka/classify.h"
#include "kafka/generation.h"

namespace walpost::kafka {

using base::LogEvent;
using delivery::Failure;
using delivery::FailureKind;

Generation::TopicState* Generation::FindTopic(std::string_view name) {
  if (last_topic_ != nullptr && last_topic_->name == name) {
    return last_topic_;
  }
  std::unique_ptr<TopicState>& topic = topics_[std::string(name)];
  if (topic == nullptr) {
    topic = std::make_unique<TopicState>();
    topic->name = std::string(name);
    topic->handle = NewTopic(producer_.get(), topic->name, topic.get());
    if (topic->handle == nullptr) {
      topic->phase = TopicState::Phase::kRefused;
      topic->retry_at = base::MonotonicTime::max();
      topic->refusal =
          Failure{FailureKind::kTopicInvalid,
                  absl::StrFormat("topic '%s': %s", name, rd_kafka_err2str(rd_kafka_last_error()))};
    }
  }
  last_topic_ = topic.get();
  return last_topic_;
}

void Generation::StartLookUp(TopicState* topic) {
  topic->phase = TopicState::Phase::kLookingUp;
  auto found = std::make_shared<LookUp>();  // shared by the two halves of the job
  // The topic's own handle dies with the generation, so the job makes one from the producer it
  // keeps alive.
  runner_->Run(
      [producer = producer_, name = topic->name, found,
       describe = now_.mono >= memory_->describe_from] {
        const Topic handle(rd_kafka_topic_new(producer.get(), name.c_str(), nullptr));
        const rd_kafka_metadata_t* raw = nullptr;
        found->error = rd_kafka_metadata(producer.get(), 0, handle.get(), &raw,
                                         static_cast<int>(kLookUpTimeout.count()));
        const Metadata metadata(raw);
        if (found->error == RD_KAFKA_RESP_ERR_NO_ERROR && metadata->topic_cnt == 1) {
          found->topic_error = metadata->topics[0].err;
          found->partitions = metadata->topics[0].partition_cnt;
        }
        if (found->partitions > 0 && describe) {
          found->limits = ReadTopicLimits(producer.get(), name, kLookUpTimeout);
        }
      },
      [this, alive = alive_, topic, found] {
        if (*alive) {
          FinishLookUp(topic, *found);
        }
      });
}

void Generation::FinishLookUp(TopicState* topic, const LookUp& found) {
  topic->retry_at = now_.mono + kRetryLookUpAfter;
  if (found.error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    topic->phase = TopicState::Phase::kNew;
    facts_->OnError(absl::StrFormat("topic '%s' cannot be looked up: %s", topic->name,
                                    rd_kafka_err2str(found.error)),
                    now_.wall);
    (*notify_)(
        {KafkaNotice::Severity::kDebug, LogEvent::kKafkaTopicLookupFailed, facts_->last_error});
    return;
  }
  facts_->OnAnswer();
  switch (Classify(found.topic_error)) {
    case FailureKind::kNone:
      if (found.partitions > 0) {
        SetPartitionCount(topic, found.partitions);
        TakeLimits(found, topic);
        topic->phase = TopicState::Phase::kReady;
        return;
      }
      topic->phase = TopicState::Phase::kNew;
      return;
    case FailureKind::kTopicUnknown:
      topic->refusal = Failure{
          FailureKind::kTopicUnknown,
          absl::StrFormat("topic '%s' does not exist: create it, or correct the `topic` template",
                          topic->name)};
      break;
    case FailureKind::kTopicNotAuthorized:
      topic->refusal = Failure{
          FailureKind::kTopicNotAuthorized,
          absl::StrFormat(
              "topic '%s': not authorized: grant walpost's Kafka user DESCRIBE and WRITE on it",
              topic->name)};
      break;
    case FailureKind::kTopicInvalid:
      topic->refusal = Failure{FailureKind::kTopicInvalid,
                               absl::StrFormat("topic '%s' is not a legal name", topic->name)};
      break;
    default:  // leader election and the like
      topic->phase = TopicState::Phase::kNew;
      return;
  }
  topic->phase = TopicState::Phase::kRefused;
  topic->retry_at = now_.mono + kRefusalKept;
}

// Without the right to describe the topic's configuration, or in time, it goes on without limits.
void Generation::TakeLimits(const LookUp& found, TopicState* topic) {
  topic->limits_read_at = now_.mono;
  if (!found.limits.ok()) {
    topic->limits = {};
    if (found.limits.status().code() == absl::StatusCode::kDeadlineExceeded) {
      memory_->describe_from = now_.mono + kDescribeAgainAfter;
    }
    if (memory_->told_unlimited.insert(topic->name).second) {
      (*notify_)(
          {KafkaNotice::Severity::kInfo, LogEvent::kKafkaTopicLimitsUnknown,
           absl::StrFormat("the configuration of topic '%s' cannot be read: %s; only Kafka's "
                           "answer will tell whether a record is too large",
                           topic->name, std::string(found.limits.status().message()))});
    }
    return;
  }
  topic->limits = *found.limits;
  if (!topic->limits.message_bytes_max) {
    return;
  }
  const std::int64_t batch_bytes = BatchBytesFor(*topic->limits.message_bytes_max);
  std::optional<std::int64_t>& smallest = memory_->limits.batch_bytes_max;
  smallest = std::min(smallest.value_or(batch_bytes), batch_bytes);
  // The careful producer sends no batches.
  if (mode_ == delivery::Sink::Mode::kFast && batch_bytes < batch_bytes_max_ && !outgrown_) {
    Outgrow(absl::StrFormat("batch.size %d instead of %d, because topic '%s' takes %d bytes",
                            batch_bytes, batch_bytes_max_, topic->name,
                            *topic->limits.message_bytes_max));
  }
}

// Looks all topics in use up again; a topic that grew gets its keys from here on where Java
// producers put them too.
void Generation::RefreshCounts() {
  if (next_refresh_ == base::MonotonicTime()) {
    next_refresh_ = now_.mono + refresh_every_;
    return;
  }
  next_refresh_ = now_.mono + refresh_every_;
  if (refreshing_ || topics_.empty()) {
    return;
  }
  refreshing_ = true;
  auto counts =
      std::make_shared<std::vector<std::pair<std::string, std::int32_t>>>();  // shared by the job's
                                                                              // halves
  runner_->Run(
      [producer = producer_, counts] {
        const rd_kafka_metadata_t* raw = nullptr;
        if (rd_kafka_metadata(producer.get(), 0, nullptr, &raw,
                              static_cast<int>(kLookUpTimeout.count())) !=
            RD_KAFKA_RESP_ERR_NO_ERROR) {
          return;
        }
        const Metadata metadata(raw);
        for (int i = 0; i < metadata->topic_cnt; ++i) {
          if (metadata->topics[i].err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            counts->emplace_back(metadata->topics[i].topic, metadata->topics[i].partition_cnt);
          }
        }
      },
      [this, alive = alive_, counts] {
        if (!*alive) {
          return;
        }
        refreshing_ = false;
        if (!counts->empty()) {
          facts_->OnAnswer();  // also while there is no event to deliver
        }
        for (const auto& [name, count] : *counts) {
          const auto found = topics_.find(name);
          if (found != topics_.end() && found->second->phase == TopicState::Phase::kReady &&
              count > 0) {
            SetPartitionCount(found->second.get(), count);
          }
        }
      });
}

void Generation::SetPartitionCount(TopicState* topic, std::int32_t count) {
  std::int32_t& known = memory_->partitions[topic->name];
  if (known != 0 && known != count) {
    (*notify_)({KafkaNotice::Severity::kWarning, LogEvent::kTopicPartitionsChanged,
                absl::StrFormat("topic '%s' has %d partitions instead of %d: from here on keys may "
                                "go to other partitions",
                                topic->name, count, known)});
  }
  known = count;
  topic->partitions.resize(static_cast<std::size_t>(count), TopicState::First::kNotSent);
}

std::int32_t Generation::ChoosePartition(const envelope::Record& record, TopicState* topic) const {
  if (record.partition >= 0) {
    return record.partition;
  }
  const auto count = static_cast<std::int32_t>(topic->partitions.size());
  if (!record.key) {
    return static_cast<std::int32_t>(topic->round_robin++ % static_cast<std::uint32_t>(count));
  }
  return PartitionForKey(*record.key, count);
}

void Generation::Prefetch(const std::string& topic) {
  TopicState* state = FindTopic(topic);
  if (state->phase == TopicState::Phase::kNew) {
    StartLookUp(state);
  }
}

std::int32_t PartitionForKey(std::string_view key, std::int32_t partition_count) {
  return rd_kafka_msg_partitioner_murmur2(nullptr, key.data(), key.size(), partition_count, nullptr,
                                          nullptr);
}

}  // namespace walpost::kafka
