#include "kafka/topic_policy.h"

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/client.h"

namespace walpost::kafka {

using std::chrono::milliseconds;

absl::StatusOr<TopicLimits> ReadTopicPolicy(rd_kafka_t* client, const std::string& topic,
                                            milliseconds timeout) {
  absl::StatusOr<TopicLimits> limits = ReadTopicLimits(client, topic, timeout);
  for (int asked = 1; asked < kPolicyAsks && !limits.ok(); ++asked) {
    if (absl::IsPermissionDenied(limits.status())) {
      break;
    }
    limits = ReadTopicLimits(client, topic, timeout);
  }
  if (limits.ok() && !limits->has_cleanup_policy) {
    return absl::FailedPreconditionError("the answer has no cleanup.policy");
  }
  return limits;
}

absl::Status CheckCompactionIsKnown(const KafkaOptions& options,
                                    const std::set<std::string>& topics, milliseconds timeout) {
  if (topics.empty()) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Producer client, MakeClient(options, RD_KAFKA_PRODUCER));
  for (const std::string& topic : topics) {
    const auto limits = ReadTopicPolicy(client.get(), topic, timeout);
    if (!limits.ok()) {
      return absl::FailedPreconditionError(
          UnknownCompactionText(topic, std::string(limits.status().message())));
    }
  }
  return absl::OkStatus();
}

std::string UnknownCompactionText(const std::string& topic, const std::string& why) {
  return absl::StrFormat(
      "topic '%s': its configuration cannot be read (%s), so it is not known whether compaction "
      "has removed what is not there: walpost's Kafka user needs DESCRIBE_CONFIGS on the topic",
      topic, why);
}

}  // namespace walpost::kafka
