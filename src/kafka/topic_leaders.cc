#include "kafka/topic_leaders.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace walpost::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kAskNextAfterMs = 1;
constexpr int kAskAgainAfterMs = 200;

void Add(const std::vector<std::int32_t>& leaders, TopicLeaders* answer) {
  answer->leaders.resize(std::max(answer->leaders.size(), leaders.size()), -1);
  for (std::size_t partition = 0; partition < leaders.size(); ++partition) {
    std::int32_t& known = answer->leaders[partition];
    const std::int32_t leader = leaders[partition];
    if (leader >= 0 && known >= 0 && leader != known) {
      answer->dispute = absl::StrFormat("brokers name both %d and %d as the leader of partition %d",
                                        known, leader, partition);
    }
    known = leader >= 0 ? leader : known;
  }
}

// Any broker answers; one whose connection is lost is not the only one.
absl::StatusOr<Metadata> AskABroker(rd_kafka_t* client, const std::string& topic,
                                    milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  const Topic handle(rd_kafka_topic_new(client, topic.c_str(), nullptr));
  if (handle == nullptr) {
    return TopicStatus(topic, rd_kafka_last_error());
  }
  for (;;) {
    const rd_kafka_metadata_t* raw = nullptr;
    const rd_kafka_resp_err_t error = rd_kafka_metadata(
        client, 0, handle.get(), &raw, static_cast<int>(TimeLeft(deadline).count()));
    Metadata metadata(raw);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
      return metadata;
    }
    if (TimeLeft(deadline).count() == 0) {
      return absl::UnavailableError(
          absl::StrFormat("Kafka does not answer a question about topic "
                          "'%s': %s: check bootstrap.servers and the "
                          "network",
                          topic, rd_kafka_err2str(error)));
    }
    rd_kafka_poll(client, kAskAgainAfterMs);
  }
}

// Its number of partitions.
absl::StatusOr<std::size_t> AddAnswer(rd_kafka_t* client, const std::string& topic,
                                      milliseconds timeout, Brokers* brokers,
                                      TopicLeaders* answer) {
  ASSIGN_OR_RETURN(const Metadata metadata, AskABroker(client, topic, timeout));
  brokers->OnAnswer(*metadata);
  if (metadata->topic_cnt != 1) {
    return TopicStatus(topic, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
  }
  RETURN_IF_ERROR(TopicStatus(topic, metadata->topics[0].err));
  const std::vector<std::int32_t> leaders = LeadersOf(metadata->topics[0]);
  Add(leaders, answer);
  return leaders.size();
}

bool IsUnseen(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsPermissionDenied(status);
}

absl::Status Disputed(const std::string& topic, const std::string& dispute) {
  return absl::UnavailableError(absl::StrFormat(
      "topic '%s': %s: one of them may be cut off from Kafka's controller and not know what the "
      "other one has. Connect that broker again, or stop it",
      topic, dispute));
}

}  // namespace

absl::StatusOr<TopicLeaders> AskForLeaders(const KafkaOptions& options, rd_kafka_t* client,
                                           const std::string& topic, milliseconds timeout,
                                           const UnseenFor& unseen_for) {
  auto deadline = steady_clock::now() + timeout;
  Brokers brokers;
  TopicLeaders answer;
  const auto ask = [&](milliseconds patience) {
    return AddAnswer(client, topic, patience, &brokers, &answer);
  };
  absl::StatusOr<std::size_t> last = ask(timeout);
  if (IsUnseen(last.status())) {
    ASSIGN_OR_RETURN(const UnseenTopics unseen,
                     FindUnseenTopics(options, {topic}, TimeLeft(deadline), unseen_for));
    if (const auto found = unseen.find(topic); found != unseen.end()) {
      return TopicStatus(topic, found->second == Unseen::kUnknown
                                    ? RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART
                                    : RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    }
    // Some broker knows it by now; the one that `client` asks may hear of it a moment later.
    deadline = std::max(deadline, steady_clock::now() + kUnknownFor);
    const auto hears_by = steady_clock::now() + kUnknownFor;
    for (last = ask(kUnknownFor); IsUnseen(last.status()); last = ask(kUnknownFor)) {
      if (TimeLeft(hears_by).count() == 0) {
        answer.dispute = "a broker knows it, and another one does not show it";
        return answer;
      }
      rd_kafka_poll(client, kAskAgainAfterMs);
    }
  }
  RETURN_IF_ERROR(last.status());
  auto until = std::min(deadline, steady_clock::now() + kNextBrokerFor);
  // The client itself goes by the last answer.
  while ((!brokers.all_answered() && TimeLeft(until).count() > 0) ||
         (last.value_or(0) < answer.leaders.size() && TimeLeft(deadline).count() > 0)) {
    const std::size_t answered = brokers.answered.size();
    last = ask(TimeLeft(deadline));
    if (brokers.answered.size() > answered) {
      until = std::min(deadline, steady_clock::now() + kNextBrokerFor);
    }
    rd_kafka_poll(client, kAskNextAfterMs);
  }
  return answer;
}

absl::StatusOr<std::int32_t> CountPartitions(const KafkaOptions& options, rd_kafka_t* client,
                                             const std::string& topic, milliseconds timeout,
                                             const UnseenFor& unseen_for) {
  ASSIGN_OR_RETURN(const TopicLeaders answer,
                   AskForLeaders(options, client, topic, timeout, unseen_for));
  if (answer.leaders.empty()) {
    return Disputed(topic, answer.dispute);
  }
  return static_cast<std::int32_t>(answer.leaders.size());
}

namespace {

struct Opened {
  Producer client;
  std::vector<std::int32_t> leaders;
};

absl::StatusOr<Opened> OpenAtAgreedLeaders(const KafkaOptions& options, const std::string& topic,
                                           Isolation isolation, milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  std::string dispute;
  for (;;) {
    Opened opened;  // only a new client asks each broker
    ASSIGN_OR_RETURN(opened.client, MakeClient(options, RD_KAFKA_CONSUMER, {}, isolation));
    absl::StatusOr<TopicLeaders> answer =
        AskForLeaders(options, opened.client.get(), topic, TimeLeft(deadline));
    if (!answer.ok()) {
      return absl::IsUnavailable(answer.status()) && !dispute.empty() ? Disputed(topic, dispute)
                                                                      : answer.status();
    }
    if (answer->dispute.empty()) {
      opened.leaders = std::move(answer->leaders);
      return opened;
    }
    dispute = std::move(answer->dispute);
    if (TimeLeft(deadline).count() == 0) {
      return Disputed(topic, dispute);
    }
    poll(nullptr, 0, kAskAgainAfterMs);
  }
}

}  // namespace

absl::StatusOr<Producer> AskAgreedLeaders(const KafkaOptions& options, const std::string& topic,
                                          milliseconds timeout, const AskLeaders& ask,
                                          Isolation isolation) {
  const auto deadline = steady_clock::now() + timeout;
  for (;;) {
    ASSIGN_OR_RETURN(
        const Opened before,
        OpenAtAgreedLeaders(options, topic, Isolation::kReadUncommitted, TimeLeft(deadline)));
    const rd_kafka_resp_err_t error =
        ask(before.client.get(), static_cast<std::int32_t>(before.leaders.size()));
    // A client forgets a partition when a broker answers it that does not know of it yet.
    const bool forgotten = error == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
    const bool last = TimeLeft(deadline).count() == 0;
    if (!forgotten || last) {
      RETURN_IF_ERROR(FoundTopicStatus(topic, error));
    }
    ASSIGN_OR_RETURN(Opened after,
                     OpenAtAgreedLeaders(options, topic, isolation, TimeLeft(deadline)));
    if (!forgotten && after.leaders == before.leaders) {
      return std::move(after.client);
    }
    if (last) {
      return absl::UnavailableError(
          absl::StrFormat("topic '%s': its leaders move: try again", topic));
    }
  }
}

}  // namespace walpost::kafka
