#include "kafka/classify.h"

namespace walpost::kafka {

using delivery::FailureKind;

namespace {

// RD_KAFKA_RESP_ERR__INVALID_DIFFERENT_RECORD, which librdkafka has from 2.2 on: of the other records of a
// batch that was rejected for one of them.
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
    // The whole batch gets the code of its one oversized record, so this is about the record only when it
    // was sent alone.
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
    // The topic's settings, and a hosted broker's plan or quota: the time is walpost's to choose, and
    // every record has the same format.
    case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
    case RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP:
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT:
      return FailureKind::kOther;
    default:
      return FailureKind::kOther;
  }
}

}  // namespace walpost::kafka
