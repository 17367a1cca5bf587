#include "kafka/classify.h"

#include <gtest/gtest.h>

#include <vector>

namespace walpost::kafka {
namespace {

using delivery::FailureKind;

using Errors = std::vector<rd_kafka_resp_err_t>;

void ExpectAll(FailureKind kind, const Errors& errors) {
  for (const rd_kafka_resp_err_t error : errors) {
    EXPECT_EQ(Classify(error), kind) << rd_kafka_err2name(error);
  }
}

TEST(ClassifyTest, SuccessIsNoFailure) {
  ExpectAll(FailureKind::kNone, {RD_KAFKA_RESP_ERR_NO_ERROR});
}

// Wrong here is a halt for nothing, or a record tried for ever.
TEST(ClassifyTest, AnswersAboutARecord) {
  ExpectAll(FailureKind::kRecordTooLarge,
            {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE});
  ExpectAll(FailureKind::kRecordInvalid,
            {RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE, RD_KAFKA_RESP_ERR_INVALID_RECORD});
}

TEST(ClassifyTest, AnswersAboutATopic) {
  ExpectAll(FailureKind::kTopicUnknown,
            {RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,
             RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION});
  ExpectAll(FailureKind::kTopicInvalid, {RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION});
  ExpectAll(FailureKind::kTopicNotAuthorized, {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED});
}

// Judging a record by one of them would lose or reject a good event.
// Failure 71.
TEST(ClassifyTest, TroubleOfTheProducerSaysNothingAboutTheRecord) {
  ExpectAll(
      FailureKind::kSessionEnded,
      {RD_KAFKA_RESP_ERR__PURGE_QUEUE, RD_KAFKA_RESP_ERR__PURGE_INFLIGHT,
       RD_KAFKA_RESP_ERR__DESTROY, RD_KAFKA_RESP_ERR__FATAL, RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE,
       RD_KAFKA_RESP_ERR__FENCED, RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, RD_KAFKA_RESP_ERR__INCONSISTENT,
       RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
       RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING,
       RD_KAFKA_RESP_ERR_PRODUCER_FENCED, RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED});
}

// Counting them as attempts of the record would halt for an outage.
TEST(ClassifyTest, TroubleOfABrokerSaysNothingAboutTheRecord) {
  ExpectAll(
      FailureKind::kSessionEnded,
      {RD_KAFKA_RESP_ERR__TRANSPORT, RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN,
       RD_KAFKA_RESP_ERR__TIMED_OUT, RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE,
       RD_KAFKA_RESP_ERR__ISR_INSUFF, RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
       RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
       RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE, RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE,
       RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION, RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
       RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR});
}

// Every record of the topic gets them: whoever set the topic up would have all its events judged.
TEST(ClassifyTest, WhatATopicSaysToEveryRecordIsNotAboutOne) {
  ExpectAll(FailureKind::kOther,
            {RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT,
             RD_KAFKA_RESP_ERR_POLICY_VIOLATION});
}

TEST(ClassifyTest, AnythingElseIsUnclear) {
  ExpectAll(FailureKind::kOther,
            {RD_KAFKA_RESP_ERR_UNKNOWN, RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS,
             RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE,
             RD_KAFKA_RESP_ERR_INVALID_MSG /* a checksum: damaged on its way */});
}

}  // namespace
}  // namespace walpost::kafka
