#include "operations/status/check_parts.h"

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "kafka/progress.h"
#include "kafka/properties.h"
#include "kafka/topic_limits.h"
#include "kafka/topics.h"
#include "outbox/topic_rules.h"

namespace walpost::operations {
namespace {

using kafka::TopicCheck;
using kafka::TopicSettings;

constexpr int kReplicasWanted = 3;
constexpr int kAskAgainAfterMs = 200;
// Of a request, beside its largest record.
constexpr std::int64_t kRequestRoomBytes = 1'000;

// A limit that the user has put on walpost; without one it takes the topic's.
std::optional<std::int64_t> GivenMessageBytes(const kafka::KafkaOptions& options) {
  std::optional<std::int64_t> given;
  for (const auto& [name, value] : options.properties) {
    std::int64_t number = 0;
    if (name == "message.max.bytes" && absl::SimpleAtoi(value, &number)) {
      given = number;
    }
  }
  return given;
}

class KafkaCheck {
 public:
  explicit KafkaCheck(const CheckKafkaOptions& options) : options_(options) {}

  void Run() {
    std::vector<std::string> topics = options_.topics;
    if (!options_.progress_topic.empty()) {
      topics.push_back(options_.progress_topic);
    }
    if (!options_.dead_letter_topic.empty()) {
      topics.push_back(options_.dead_letter_topic);
    }
    const absl::StatusOr<kafka::ClusterCheck> cluster =
        kafka::CheckCluster(options_.kafka, topics, options_.timeout);
    if (!cluster.ok()) {
      unreachable_ = absl::IsUnavailable(cluster.status());
      found_.Fail("kafka", std::string(cluster.status().message()));
      return;
    }
    found_.Ok("kafka", absl::StrFormat("%u broker(s), first %s", cluster->brokers.size(),
                                       cluster->brokers.empty() ? "-" : cluster->brokers[0]));
    const std::string clear_text = kafka::ClearTextWarning(options_.kafka, cluster->brokers);
    clear_text.empty() ? found_.Ok("encryption", "Kafka is spoken to by TLS, or on this machine")
                       : found_.Warn("encryption", clear_text);
    RequestSize(*cluster);
    std::size_t next = 0;
    while (next < options_.topics.size()) {
      EventTopic(cluster->topics[next++]);
    }
    options_.progress_topic.empty() ? NoProgressTopic() : ProgressTopic(cluster->topics[next++]);
    if (!options_.dead_letter_topic.empty()) {
      DeadLetterTopic(cluster->topics[next++]);
    }
    if (options_.topics.empty()) {
      found_.Warn(
          "topics",
          "named by rows, so they cannot be looked up beforehand: create them before the first "
          "event, or list them in `outboxes[].topics.allowed`");
    }
  }

  CheckKafkaResult Take() { return {found_.Take(), unreachable_}; }

 private:
  // A broker does not answer a larger request, which would be sent again for ever.
  void RequestSize(const kafka::ClusterCheck& cluster) {
    const std::int64_t sent = GivenMessageBytes(options_.kafka).value_or(kafka::kRequestBytesMax);
    if (cluster.request_bytes_max && sent > *cluster.request_bytes_max - kRequestRoomBytes) {
      found_.Warn("request size",
                  absl::StrFormat("a broker's socket.request.max.bytes is %d, and walpost sends "
                                  "records of up to %d bytes: one that is too large for it stops "
                                  "everything. Set message.max.bytes under sink.kafka.properties, "
                                  "to %d at most",
                                  *cluster.request_bytes_max, sent,
                                  std::max<std::int64_t>(
                                      *cluster.request_bytes_max - kRequestRoomBytes, 1'000)));
    }
  }

  void NotFound(const std::string& name, const absl::Status& why, const std::string& cure) {
    const bool missing = absl::IsNotFound(why);
    unreachable_ = unreachable_ || absl::IsUnavailable(why);
    found_.Fail(name, std::string(why.message()) + (missing ? ": " + cure : ""));
  }

  void EventTopic(const TopicCheck& topic) {
    const std::string name = "topic " + topic.topic;
    if (!topic.found.ok()) {
      NotFound(name, topic.found, "create it, or correct `outboxes[].topic`");
      return;
    }
    Durability(name, topic);
    if (topic.settings && topic.settings->compacts) {
      found_.Warn(
          name,
          "cleanup.policy has compact: only the last event of each key stays, an event without "
          "payload removes its key, and one without a key is undeliverable");
    }
    const std::optional<std::int64_t> given = GivenMessageBytes(options_.kafka);
    if (given && topic.settings && topic.settings->message_bytes_max.value_or(*given) < *given) {
      found_.Warn(name,
                  absl::StrFormat("max.message.bytes is %d, less than message.max.bytes of "
                                  "sink.kafka.properties, %d: larger events are undeliverable",
                                  *topic.settings->message_bytes_max, *given));
    }
  }

  // Whether it keeps what it has acknowledged, and takes anything at all.
  void Durability(const std::string& name, const TopicCheck& topic) {
    const std::string replicas = absl::StrFormat("%d partitions, replication factor %d",
                                                 topic.partitions, topic.replication_factor);
    const std::int64_t in_sync = topic.settings && topic.settings->min_insync_replicas
                                     ? *topic.settings->min_insync_replicas
                                     : -1;
    if (topic.replication_factor < kReplicasWanted) {
      found_.Warn(name,
                  absl::StrFormat(
                      "replication factor %d: below 3, a broken disk can lose acknowledged events",
                      topic.replication_factor));
    }
    if (!topic.settings) {
      if (topic.replication_factor >= kReplicasWanted) {
        found_.Ok(name, replicas);
      }
      found_.Warn(
          name,
          "its configuration cannot be read, so min.insync.replicas, max.message.bytes and "
          "cleanup.policy are not checked: " +
              topic.settings_error +
              ": walpost's user needs DESCRIBE_CONFIGS, without which `audit`, `slot recreate` and "
              "`replay --missing` do not know what is missing either");
    } else if (in_sync > topic.replication_factor) {
      found_.Fail(name,
                  absl::StrFormat("min.insync.replicas is %d with replication factor %d: nothing "
                                  "can be written; lower the one or raise the other",
                                  in_sync, topic.replication_factor));
    } else if (in_sync == 1 && topic.replication_factor > 1) {
      found_.Warn(
          name,
          "min.insync.replicas is 1: one replica acknowledges alone, and events are lost with "
          "it; set 2");
    } else if (in_sync == topic.replication_factor && topic.replication_factor > 1) {
      found_.Warn(name,
                  absl::StrFormat("min.insync.replicas is %d, as many as there are replicas: one "
                                  "broker away stops delivery; set %d",
                                  in_sync, topic.replication_factor - 1));
    } else if (topic.replication_factor >= kReplicasWanted) {
      found_.Ok(name, absl::StrFormat("%s, min.insync.replicas %d", replicas, in_sync));
    }
  }

  void NoProgressTopic() {
    found_.Warn(
        "progress topic",
        "none (delivery.progress_topic is empty): a slot that somebody else moved is not noticed");
  }

  void ProgressTopic(const TopicCheck& topic) {
    const std::string name = "progress topic " + topic.topic;
    kafka::UnreadProgress unread;
    const auto records = ReadProgress(&unread);
    if (absl::IsNotFound(records.status())) {
      found_.Fail(name, "it does not exist: run `walpost init`");
      return;
    }
    if (!records.ok()) {
      found_.Fail(name, std::string(records.status().message()));
      return;
    }
    if (unread.count > 0) {
      const std::string what = absl::StrFormat(
          "%u record(s) cannot be read: somebody else writes there, %s: see docs/runbook.md, "
          "progress_unreadable",
          unread.count, unread.detail);
      const bool halts = records->empty() || unread.Overrules(*records);
      halts ? found_.Fail(name, what) : found_.Warn(name, what);
    }
    const std::uint64_t newest = records->empty() ? 0 : records->front().epoch;
    if (std::max(newest, unread.newer_epoch.value_or(0)) >= base::Progress::kEpochMax) {
      found_.Fail(name,
                  "a record has the highest epoch there is, which leaves no room for a decision "
                  "after it: walpost did not write it; take another delivery.progress_topic");
      return;
    }
    const bool forgets = topic.settings && topic.settings->deletes;
    if (forgets) {
      found_.Warn(
          name,
          "cleanup.policy has delete: what is remembered goes with time, and with it the guard "
          "against a slot that was moved; set cleanup.policy=compact");
    }
    const bool swells = topic.settings && !topic.settings->uncompressed;
    if (swells) {
      found_.Warn(name,
                  "compression.type is not uncompressed: who may write there can fill walpost's "
                  "memory at its next start with a small record that is large when it is unpacked; "
                  "set compression.type=uncompressed and max.message.bytes=1048588");
    }
    const bool shared = !outbox::IsReservedTopic(options_.progress_topic);
    if (shared) {
      found_.Warn(
          name,
          "an event of another pipeline may be sent there; with this pipeline's name as its "
          "key, compaction then removes what is remembered: take a name that begins with "
          "walpost., which no pipeline sends events to");
    }
    if (!forgets && !swells && !shared && unread.count == 0) {
      found_.Ok(name, records->empty() ? "nothing remembered yet" : "progress is remembered");
    }
  }

  // A topic that `init` has just made has no leader for a moment.
  absl::StatusOr<std::vector<base::Progress>> ReadProgress(kafka::UnreadProgress* unread) const {
    const auto until = std::chrono::steady_clock::now() + options_.timeout;
    while (true) {
      auto records = kafka::ReadProgress(options_.kafka, {options_.progress_topic, options_.name},
                                         {options_.timeout, unread,
                                          /*so_far=*/nullptr});
      if (!absl::IsUnavailable(records.status()) || std::chrono::steady_clock::now() >= until) {
        return records;
      }
      poll(nullptr, 0, kAskAgainAfterMs);
    }
  }

  void DeadLetterTopic(const TopicCheck& topic) {
    const std::string name = "dead-letter topic " + topic.topic;
    if (!topic.found.ok()) {
      NotFound(name, topic.found, "run `walpost init`, which creates it");
      return;
    }
    // Nothing reads it back, so how long it keeps them is nobody's concern here.
    found_.Ok(name, absl::StrFormat("%d partition(s), replication factor %d", topic.partitions,
                                    topic.replication_factor));
  }

  const CheckKafkaOptions& options_;
  CheckLines found_;
  bool unreachable_ = false;
};

}  // namespace

CheckKafkaResult CheckKafka(const CheckKafkaOptions& options) {
  KafkaCheck check(options);
  check.Run();
  return check.Take();
}

}  // namespace walpost::operations
