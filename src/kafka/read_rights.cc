#include "kafka/read_rights.h"

#include <librdkafka/rdkafka.h>

#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/classify.h"
#include "kafka/client.h"
#include "kafka/handles.h"

namespace walpost::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A right is one for the whole topic.
constexpr std::int32_t kAnyPartition = 0;

// Consumers that have been started; stop with its end, before the client.
struct Started {
  Producer client;
  std::vector<Topic> topics;

  Started() = default;
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  ~Started() {
    for (const Topic& topic : topics) {
      rd_kafka_consume_stop(topic.get(), kAnyPartition);
    }
  }
};

}  // namespace

absl::StatusOr<std::vector<std::string>> TopicsNotToRead(const KafkaOptions& options,
                                                         const std::vector<std::string>& topics,
                                                         milliseconds timeout) {
  Started started;
  ASSIGN_OR_RETURN(started.client, MakeClient(options, RD_KAFKA_CONSUMER));
  const Queue queue(rd_kafka_queue_new(started.client.get()));
  std::set<std::string> asked;
  for (const std::string& name : topics) {
    Topic topic(rd_kafka_topic_new(started.client.get(), name.c_str(), nullptr));
    if (topic == nullptr || rd_kafka_consume_start_queue(topic.get(), kAnyPartition,
                                                         RD_KAFKA_OFFSET_END, queue.get()) != 0) {
      return FoundTopicStatus(name, rd_kafka_last_error());
    }
    started.topics.push_back(std::move(topic));
    asked.insert(name);
  }
  std::vector<std::string> rejected;
  const auto deadline = steady_clock::now() + timeout;
  while (!asked.empty()) {
    const milliseconds left = TimeLeft(deadline);
    const Message message(rd_kafka_consume_queue(queue.get(), static_cast<int>(left.count())));
    if (message != nullptr && message->rkt != nullptr) {
      const std::string name = rd_kafka_topic_name(message->rkt);
      const bool may_not = Classify(message->err) == delivery::FailureKind::kTopicNotAuthorized;
      // Its end, or a record that has come meanwhile.
      const bool may = message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF ||
                       message->err == RD_KAFKA_RESP_ERR_NO_ERROR;
      if ((may || may_not) && asked.erase(name) > 0 && may_not) {
        rejected.push_back(name);
      }
    } else if (left.count() == 0) {
      return absl::UnavailableError(absl::StrFormat(
          "whether walpost's Kafka user may READ topic '%s' is not known: no answer within %d ms",
          *asked.begin(), timeout.count()));
    }
  }
  return rejected;
}

}  // namespace walpost::kafka
