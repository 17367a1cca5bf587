#include "kafka/topic_look_up.h"

#include <poll.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "delivery/sink.h"
#include "kafka/classify.h"
#include "kafka/client.h"

namespace walpost::kafka {
namespace {

using delivery::FailureKind;
using std::chrono::steady_clock;

constexpr std::size_t kNamesTogether = 1'000;
constexpr int kNamesAgainAfterMs = 500;
constexpr int kAnswerTimeoutMs = static_cast<int>(kAnswerTimeout.count());

void AskAboutTopic(rd_kafka_t* producer, bool describe, TopicQuestion* question) {
  question->asked = true;
  question->producer_asked = true;
  const Topic handle = NewTopic(producer, question->name, question->opaque);
  if (handle == nullptr) {
    question->topic_error = RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION;  // no legal name
    return;
  }
  const rd_kafka_metadata_t* raw = nullptr;
  question->error = rd_kafka_metadata(producer, 0, handle.get(), &raw, kAnswerTimeoutMs);
  const Metadata metadata(raw);
  if (question->error == RD_KAFKA_RESP_ERR_NO_ERROR && metadata->topic_cnt == 1) {
    question->topic_error = metadata->topics[0].err;
    question->partitions = metadata->topics[0].partition_cnt;
  }
  if (question->partitions > 0 && describe) {
    question->limits = ReadTopicLimits(producer, question->name, kAnswerTimeout);
  }
}

// All at once, with a client of its own: what Kafka says of each, as far as it answers.
void AskTogether(const KafkaOptions& options, std::vector<TopicQuestion>* questions) {
  const absl::StatusOr<Producer> client = MakeClient(options, RD_KAFKA_PRODUCER);
  if (!client.ok()) {
    return;  // the producer's own requests will show it
  }
  // Without their own handles the request would not be about them.
  std::vector<Topic> handles;
  std::map<std::string_view, TopicQuestion*> by_name;
  for (TopicQuestion& question : *questions) {
    handles.emplace_back(rd_kafka_topic_new(client->get(), question.name.c_str(), nullptr));
    by_name.emplace(question.name, &question);
  }
  const rd_kafka_metadata_t* raw = nullptr;
  if (rd_kafka_metadata(client->get(), 0, nullptr, &raw, kAnswerTimeoutMs) !=
      RD_KAFKA_RESP_ERR_NO_ERROR) {
    return;
  }
  const Metadata metadata(raw);
  for (int i = 0; i < metadata->topic_cnt; ++i) {
    if (const auto found = by_name.find(metadata->topics[i].topic); found != by_name.end()) {
      found->second->topic_error = metadata->topics[i].err;
    }
  }
}

}  // namespace

void AskAboutTopics(rd_kafka_t* producer, bool describe, std::vector<TopicQuestion>* questions) {
  const auto until = steady_clock::now() + kJobFor;
  for (TopicQuestion& question : *questions) {
    if (question.asked) {
      continue;
    }
    AskAboutTopic(producer, describe, &question);
    if (steady_clock::now() >= until) {
      return;
    }
  }
}

void AskWhichTopicsAreRefused(const KafkaOptions& options, std::vector<TopicQuestion>* questions) {
  AskTogether(options, questions);
  for (TopicQuestion& question : *questions) {
    const FailureKind answer = Classify(question.topic_error);
    question.asked =
        answer == FailureKind::kTopicUnknown || answer == FailureKind::kTopicNotAuthorized;
    if (!question.asked) {
      question.topic_error = RD_KAFKA_RESP_ERR_NO_ERROR;
    }
  }
}

UnseenTopics FindUnseenTopics(const KafkaOptions& options, std::vector<std::string> names) {
  UnseenTopics unseen;
  const auto until = steady_clock::now() + kUnknownFor;
  while (!names.empty()) {
    std::vector<std::string> unknown;
    for (std::size_t first = 0; first < names.size(); first += kNamesTogether) {
      std::vector<TopicQuestion> questions;
      for (std::size_t i = first; i < std::min(first + kNamesTogether, names.size()); ++i) {
        questions.emplace_back().name = names[i];
      }
      AskTogether(options, &questions);
      for (const TopicQuestion& question : questions) {
        const FailureKind answer = Classify(question.topic_error);
        if (answer == FailureKind::kTopicUnknown) {
          unknown.push_back(question.name);
        } else if (answer == FailureKind::kTopicNotAuthorized) {
          unseen.emplace(question.name, Unseen::kHidden);
        }
      }
    }
    names = std::move(unknown);
    if (steady_clock::now() >= until) {
      break;
    }
    if (!names.empty()) {
      poll(nullptr, 0, kNamesAgainAfterMs);
    }
  }
  for (std::string& name : names) {
    unseen.emplace(std::move(name), Unseen::kUnknown);
  }
  return unseen;
}

}  // namespace walpost::kafka
