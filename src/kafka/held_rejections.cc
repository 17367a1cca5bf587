#include "kafka/held_rejections.h"

#include <algorithm>
#include <utility>

namespace walpost::kafka {

using delivery::FailureKind;

namespace {

// RD_KAFKA_RESP_ERR__INVALID_DIFFERENT_RECORD, which librdkafka has from 2.2 on: of the other
// records of a batch that was rejected for one of them.
constexpr int kInvalidDifferentRecord = -138;

}  // namespace

bool IsByRulesOfTheTopic(FailureKind kind) {
  return kind == FailureKind::kTopicNotAuthorized || kind == FailureKind::kRecordTooLarge ||
         kind == FailureKind::kRecordInvalid;
}

FailureKind Classify(rd_kafka_resp_err_t error) {
  if (error == kInvalidDifferentRecord) {
    return FailureKind::kRecordInvalid;
  }
  switch (error) {
    case RD_KAFKA_RESP_ERR_NO_ERROR:
      return FailureKind::kNone;
    // The whole batch gets the code of its one oversized record, so this is about the record only
    // when it was sent alone.
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
      return FailureKind::kRecordTooLarge;
    case RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE:
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
      return FailureKind::kRecordInvalid;
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
      return FailureKind::kTopicUnknown;
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
      return FailureKind::kTopicInvalid;
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
      return FailureKind::kTopicNotAuthorized;
    // A producer at its end.
    case RD_KAFKA_RESP_ERR__PURGE_QUEUE:
    case RD_KAFKA_RESP_ERR__PURGE_INFLIGHT:
    case RD_KAFKA_RESP_ERR__DESTROY:
    case RD_KAFKA_RESP_ERR__FATAL:
    case RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE:
    case RD_KAFKA_RESP_ERR__FENCED:
    case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
    case RD_KAFKA_RESP_ERR__INCONSISTENT:
    case RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH:
    case RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER:
    case RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID:
    case RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING:
    case RD_KAFKA_RESP_ERR_PRODUCER_FENCED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    // A broker or the way to it: librdkafka retries these by itself, without end. Should one be
    // reported all the same, the record is not to blame.
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
    case RD_KAFKA_RESP_ERR__ISR_INSUFF:
    case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
    case RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE:
    case RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION:
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS:
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
    case RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR:
      return FailureKind::kSessionEnded;
    case RD_KAFKA_RESP_ERR_INVALID_MSG:
      return FailureKind::kOther;  // damaged on its way, as far as anybody can see
    // The topic's settings, and a hosted broker's plan or quota: the time is walpost's to choose,
    // and every record has the same format.
    case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
    case RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP:
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT:
      return FailureKind::kOther;
    default:
      return FailureKind::kOther;
  }
}

void HeldRejections::Ask() {
  if (question_ != nullptr || held_.empty()) {
    return;
  }
  // So that one topic whose brokers do not agree keeps no other one waiting.
  const auto asked_at = [this](const Held& held) {
    const auto found = memory_->leaders_asked.find(held.topic);
    return found == memory_->leaders_asked.end() ? base::MonotonicTime() : found->second.at;
  };
  const auto next = std::min_element(held_.begin(), held_.end(), [&](const Held& a, const Held& b) {
    return asked_at(a) < asked_at(b);
  });
  question_ = std::make_shared<Question>();
  question_->topic = next->topic;
  question_->leaders = next->leaders;
  runner_->Run(
      [question = question_, options = options_] {
        if (!question->given_up) {
          question->answer = AskWhoLeads(options, question->topic, question->leaders);
        }
      },
      [question = question_] { question->answered = true; });
}

std::vector<HeldRejections::Held> HeldRejections::TakeDecided(base::MonotonicTime now) {
  const std::shared_ptr<Question> asked = answered() ? std::exchange(question_, nullptr) : nullptr;
  if (asked != nullptr) {
    memory_->leaders_asked[asked->topic] = {asked->leaders, asked->answer == Leadership::kAgreed,
                                            now};
  }
  std::vector<Held> decided;
  for (Held& held : std::exchange(held_, {})) {
    if (IsKnownToLead(held, now)) {
      decided.push_back(std::move(held));
    } else if (asked != nullptr && asked->topic == held.topic && asked->leaders == held.leaders) {
      RejectAgainLater(asked->answer, now, &held);
      decided.push_back(std::move(held));
    } else {
      held_.push_back(std::move(held));
    }
  }
  return decided;
}

bool HeldRejections::IsKnownToLead(const Held& held, base::MonotonicTime now) const {
  const auto found = memory_->leaders_asked.find(held.topic);
  return found != memory_->leaders_asked.end() && found->second.agreed &&
         found->second.leaders == held.leaders && now < found->second.at + kLeadersKept;
}

// By another producer, which may ask another broker.
void HeldRejections::RejectAgainLater(Leadership answer, base::MonotonicTime now, Held* held) {
  const bool disputed = answer == Leadership::kDisputed;
  held->failure.kind = delivery::FailureKind::kSessionEnded;
  held->failure.must_last = false;
  held->failure.detail +=
      disputed ? "; another broker names another leader, so this one may be cut off from the "
                 "controller"
               : "; no broker has said who leads, so this one may be cut off from the controller";
  if (disputed) {
    memory_->compare_leaders = true;
    memory_->OnContradicted(held->topic, now);
  }
}

std::vector<HeldRejections::Held> HeldRejections::TakeAll() {
  GiveUp();
  return std::exchange(held_, {});
}

void HeldRejections::GiveUp() {
  if (question_ != nullptr) {
    question_->given_up = true;
  }
}

}  // namespace walpost::kafka
