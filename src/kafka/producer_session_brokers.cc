// What of ProducerSession follows a cluster while it streams: partitions, leaders, and waits for
// answers.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kafka/client.h"
#include "kafka/producer_session.h"

namespace walpost::kafka {

using base::LogEvent;

// Looks all topics in use up again; a topic that grew gets its keys from here on where Java
// producers put them too.
void ProducerSession::RefreshCounts() {
  const bool first = next_refresh_ == base::MonotonicTime();
  next_refresh_ = now_.mono + options_.metadata_refresh;
  if (first || refreshing_ || topics_.empty()) {
    return;
  }
  refreshing_ = true;

  // Shared by the job's halves; 0 = the topic is gone.
  struct Refreshed {
    std::string name;
    std::int32_t count = 0;
    std::vector<std::int32_t> leaders;
  };

  auto counts = std::make_shared<std::vector<Refreshed>>();
  runner_->Run(
      [producer = producer_, counts] {
        const rd_kafka_metadata_t* raw = nullptr;
        if (rd_kafka_metadata(producer.get(), 0, nullptr, &raw,
                              static_cast<int>(kAnswerTimeout.count())) !=
            RD_KAFKA_RESP_ERR_NO_ERROR) {
          return;
        }
        const Metadata metadata(raw);
        for (int i = 0; i < metadata->topic_cnt; ++i) {
          if (metadata->topics[i].err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            counts->push_back({metadata->topics[i].topic, metadata->topics[i].partition_cnt,
                               LeadersOf(metadata->topics[i])});
          } else if (metadata->topics[i].err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) {
            counts->push_back({metadata->topics[i].topic, 0, {}});
          }
        }
      },
      [this, alive = alive_, counts] {
        if (!*alive) {
          return;
        }
        refreshing_ = false;
        if (counts->empty()) {
          facts_->OnError("the topics could not be refreshed", now_.wall);
        } else {
          facts_->OnAnswer();  // also while there is no event to deliver
        }
        for (const auto& [name, count, leaders] : *counts) {
          const auto found = topics_.find(name);
          if (found == topics_.end() || found->second->phase != TopicState::Phase::kReady) {
            continue;
          }
          if (count == 0) {
            WantLookUp(found->second.get());  // which asks each broker
            continue;
          }
          found->second->leaders = leaders;
          if (!TakePartitionCount(found->second.get(), count)) {
            WantLookUp(found->second.get());
          }
        }
      });
}

// A producer whose broker was cut off from the controller goes on asking that one, and sending to a
// leader that is none any more. Another producer may begin with another broker.
void ProducerSession::OnStaleBroker(const std::string& what) {
  facts_->OnError(what + ": one may be cut off from the controller", now_.wall);
  memory_->compare_leaders = true;
  Replace(facts_->last_error);
}

void ProducerSession::Replace(const std::string& why) {
  if (!outgrown_ && now_.mono >= memory_->replace_from) {
    memory_->replace_from = now_.mono + kReplaceEvery;
    Outgrow(why);
  }
}

void ProducerSession::Outgrow(const std::string& why) {
  outgrown_ = true;
  outgrown_at_ = now_.mono;
  (*notify_)(
      {KafkaNotice::Severity::kInfo, LogEvent::kKafkaProducerReplaced, "a new producer: " + why});
}

void ProducerSession::ReportOutgrown(delivery::SinkListener* listener) {
  if (sent_ == 0 || now_.mono >= std::max(last_report_, outgrown_at_) + kOutgrownWait) {
    failed_ = true;
    listener->OnProducerOutgrown();
  }
}

// What waits for an answer for long keeps the date that it was sent with, and may wait for a leader
// that is none any more. Where a topic's limits are not known nothing shows that a date is too old,
// and another producer every few seconds would hold up all topics.
void ProducerSession::CheckWaits() {
  if (sent_ == 0 || now_.mono < next_wait_check_) {
    return;
  }
  next_wait_check_ = now_.mono + kCheckWaitsEvery;
  const auto leaders_after = memory_->compare_leaders ? kLeadersSoon : kLeadersAfter;
  std::map<std::string, std::vector<std::int32_t>> leaders;  // of topics that wait for long
  for (const auto& [name, topic] : topics_) {
    const base::MonotonicTime::duration waited = LongestWait(*topic);
    const TopicLimits& limits = topic->limits;
    if (limits.has_cleanup_policy && limits.age_max &&
        waited >= std::max(*limits.age_max / 2, kUnknownAgeMax)) {
      Replace(
          absl::StrFormat("records of topic '%s' have waited for Kafka until they are nearly "
                          "as old as the topic keeps them: they get other times",
                          name));
    }
    if (waited >= leaders_after) {
      leaders.emplace(name, topic->leaders);
    }
  }
  if (!leaders.empty()) {
    CheckLeaders(leaders);
  }
}

base::MonotonicTime::duration ProducerSession::LongestWait(const TopicState& topic) const {
  base::MonotonicTime::duration longest{0};
  for (const Partition& partition : topic.partitions) {
    if (partition.outstanding > 0) {
      longest = std::max(longest, now_.mono - partition.unanswered_since);
    }
  }
  return longest;
}

// Does some broker name other leaders than the producer knows?
void ProducerSession::CheckLeaders(
    const std::map<std::string, std::vector<std::int32_t>>& leaders) {
  if (checking_leaders_ || now_.mono < memory_->replace_from) {
    return;
  }
  checking_leaders_ = true;
  auto moved = std::make_shared<std::optional<bool>>();  // shared by the job's halves
  runner_->Run([options = options_, leaders, moved] { *moved = LeadersMoved(options, leaders); },
               [this, alive = alive_, moved] {
                 if (!*alive) {
                   return;
                 }
                 checking_leaders_ = false;
                 memory_->compare_leaders = memory_->compare_leaders && moved->value_or(true);
                 const bool still =
                     std::any_of(topics_.begin(), topics_.end(), [this](const auto& topic) {
                       return LongestWait(*topic.second) >= kLeadersSoon;
                     });
                 if (moved->value_or(false) && still) {
                   OnStaleBroker("a partition has another leader than the producer knows");
                 } else {
                   memory_->replace_from = now_.mono + kReplaceEvery;  // also the next look
                 }
               });
}

// It counts when the brokers agree about who leads: else its leader may be one of before.
void ProducerSession::HoldRejection(delivery::Sequence sequence, delivery::Failure failure,
                                    const rd_kafka_message_t& message) {
  const auto& topic = *static_cast<const TopicState*>(rd_kafka_topic_opaque(message.rkt));
  std::vector<envelope::RecordHeader> headers;
  const envelope::Record record = RecordIn(message, &headers);
  failure.must_last = MayBeBehind(failure.kind, record);
  failure.contradicted_at = memory_->ContradictedAt(topic.name);
  // By those that were read last, also where nobody has answered since.
  if (const auto read = memory_->read_limits.find(topic.name); read != memory_->read_limits.end()) {
    failure.limit = LimitOf(failure.kind, read->second);
    failure.limit_wanted = LimitWantedBy(record, failure.kind);
  }
  failed_ = true;
  ++outstanding_;
  held_.Hold({sequence, std::move(failure), topic.name, topic.leaders});
}

void ProducerSession::ReportHeld(delivery::SinkListener* listener) {
  for (HeldRejections::Held& held : closing_ ? held_.TakeAll() : held_.TakeDecided(now_.mono)) {
    --outstanding_;
    ReportFailure(held.sequence, std::move(held.failure), listener);
  }
  // A report ends the session, and the next one's look-ups would wait behind the question.
  if (!closing_ && !failure_reported_) {
    held_.Ask();
  }
}

// Whether it is what the topic has, as far as walpost can know.
bool ProducerSession::TakePartitionCount(TopicState* topic, std::int32_t count) {
  TopicMemory::Partitions& known = memory_->partitions[topic->name];
  if (count >= known.count || known.made_anew) {
    known.fewer_since.reset();
  } else {
    if (!known.fewer_since || now_.mono >= known.asked_at + 2 * kAnswerKept) {
      known.fewer_since = now_.mono;
    }
    known.asked_at = now_.mono;
    if (now_.mono < *known.fewer_since + kFewerWait) {
      facts_->OnError(absl::StrFormat("topic '%s' had %d partitions, and a broker says %d: asked "
                                      "again until they agree",
                                      topic->name, known.count, count),
                      now_.wall);
      (*notify_)(
          {KafkaNotice::Severity::kDebug, LogEvent::kKafkaTopicLookupFailed, facts_->last_error});
      return false;
    }
  }
  if (known.count != 0 && known.count != count) {
    (*notify_)({KafkaNotice::Severity::kWarning, LogEvent::kTopicPartitionsChanged,
                absl::StrFormat("topic '%s' has %d partitions instead of %d: from here on keys may "
                                "go to other partitions",
                                topic->name, count, known.count)});
  }
  known = TopicMemory::Partitions();
  known.count = count;
  const auto partitions = static_cast<std::size_t>(count);
  if (topic->partition_count != partitions) {
    CloseGates(topic);  // it may be another topic
  }
  topic->partition_count = partitions;
  topic->partitions.resize(std::max(topic->partitions.size(), partitions));
  return true;
}

}  // namespace walpost::kafka
