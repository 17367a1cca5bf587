#include "kafka/topic_look_up.h"

#include <poll.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

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
    const auto found = by_name.find(metadata->topics[i].topic);
    const FailureKind kind = Classify(metadata->topics[i].err);
    if (found != by_name.end() &&
        (kind == FailureKind::kTopicUnknown || kind == FailureKind::kTopicNotAuthorized)) {
      found->second->asked = true;
      found->second->topic_error = metadata->topics[i].err;
    }
  }
}

std::set<std::string> FindUnknownTopics(const KafkaOptions& options,
                                        std::vector<std::string> names) {
  const auto until = steady_clock::now() + kUnknownFor;
  while (!names.empty()) {
    std::vector<std::string> unknown;
    for (std::size_t first = 0; first < names.size(); first += kNamesTogether) {
      std::vector<TopicQuestion> questions;
      for (std::size_t i = first; i < std::min(first + kNamesTogether, names.size()); ++i) {
        questions.emplace_back().name = names[i];
      }
      AskWhichTopicsAreRefused(options, &questions);
      for (const TopicQuestion& question : questions) {
        if (Classify(question.topic_error) == FailureKind::kTopicUnknown) {
          unknown.push_back(question.name);
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
  return {names.begin(), names.end()};
}

}  // namespace walpost::kafka
