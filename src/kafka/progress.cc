#include "kafka/progress.h"

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "envelope/progress.h"
#include "kafka/agreed_leaders.h"
#include "kafka/client.h"
#include "kafka/handles.h"

namespace walpost::kafka {
namespace {

using base::Progress;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kDeniedAgainAfterMs = 200;

absl::Status TooSlow(const ProgressKey& progress_key, const ReadProgressOptions& how,
                     std::int64_t next, std::int64_t high) {
  return absl::UnavailableError(
      absl::StrFormat("topic '%s' gave no record for %d ms: it was read up to offset %d of %d",
                      progress_key.topic, how.timeout.count(), next, high));
}

// A topic that is not compacted has an epoch for each connection that there was.
void Keep(Progress progress, std::vector<Progress>* kept) {
  if (!kept->empty() && progress.epoch < kept->front().epoch) {
    return;
  }
  if (!kept->empty() && progress.epoch > kept->front().epoch) {
    kept->clear();
  }
  for (Progress& other : *kept) {
    if (other.timeline == progress.timeline &&
        other.system_identifier == progress.system_identifier) {
      if (progress.end_lsn >= other.end_lsn) {
        other = std::move(progress);
      }
      return;
    }
  }
  kept->push_back(std::move(progress));
}

// An event has some, at least its id; progress has none. So who may only write events, of whatever
// pipeline, cannot write progress.
bool HasHeaders(const rd_kafka_message_t& message) {
  rd_kafka_headers_t* list = nullptr;  // stays the message's
  return rd_kafka_message_headers(&message, &list) != RD_KAFKA_RESP_ERR__NOENT;
}

void Take(const rd_kafka_message_t& message, const ProgressKey& progress_key, ProgressRead* found) {
  const std::string_view key(static_cast<const char*>(message.key), message.key_len);
  if (key != progress_key.name || message.payload == nullptr || HasHeaders(message)) {
    return;
  }
  const std::string_view value(static_cast<const char*>(message.payload), message.len);
  absl::StatusOr<Progress> progress = envelope::DecodeProgress(value);
  if (progress.ok()) {
    Keep(*std::move(progress), &found->kept);
    return;
  }
  UnreadProgress& unread = found->unread;
  ++unread.count;
  if (absl::IsUnimplemented(progress.status()) &&
      envelope::EpochOf(value) >= unread.newer_epoch.value_or(0)) {
    unread.newer_epoch = envelope::EpochOf(value);
  } else if (unread.newer_epoch) {
    return;
  }
  unread.detail = absl::StrFormat("topic '%s', offset %d: %s", progress_key.topic, message.offset,
                                  std::string(progress.status().message()));
}

absl::StatusOr<std::vector<Progress>> Judge(ProgressRead found, UnreadProgress* unread) {
  if (unread != nullptr) {
    *unread = std::move(found.unread);
  } else if (found.unread.Overrules(found.kept)) {
    return absl::UnimplementedError(found.unread.detail);
  } else if (found.kept.empty() && found.unread.count > 0) {
    return absl::DataLossError(found.unread.detail);
  }
  return std::move(found.kept);
}

// From a consumer of the partition that has been started.
absl::Status ReadTo(std::int64_t high, rd_kafka_topic_t* topic, const ProgressKey& progress_key,
                    const ReadProgressOptions& how, ProgressRead* read) {
  auto deadline = steady_clock::now() + how.timeout;
  while (TimeLeft(deadline).count() > 0) {
    const Message message(rd_kafka_consume(topic, 0, static_cast<int>(TimeLeft(deadline).count())));
    if (message == nullptr) {
      break;
    }
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
      if (message->offset >= high) {
        return absl::OkStatus();
      }
      continue;
    }
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
      RETURN_IF_ERROR(FoundTopicStatus(progress_key.topic, message->err));
    }
    Take(*message, progress_key, read);
    read->next = message->offset + 1;
    if (read->next >= high) {
      return absl::OkStatus();
    }
    deadline = steady_clock::now() + how.timeout;
  }
  return TooSlow(progress_key, how, read->next, high);
}

absl::StatusOr<std::vector<Progress>> ReadOnce(const KafkaOptions& options,
                                               const ProgressKey& progress_key,
                                               const ReadProgressOptions& how) {
  const auto deadline = steady_clock::now() + how.timeout;
  std::int32_t count = 0;
  std::vector<std::int64_t> lows;
  std::vector<std::int64_t> highs;
  ASSIGN_OR_RETURN(const Producer client,
                   AskAgreedLeaders(options, progress_key.topic, how.timeout,
                                    [&](rd_kafka_t* asked, std::int32_t partitions) {
                                      count = partitions;
                                      const auto ask = [&](std::int64_t of, auto* offsets) {
                                        return AskOffsets(asked, progress_key.topic, partitions, of,
                                                          TimeLeft(deadline), offsets);
                                      };
                                      const rd_kafka_resp_err_t error =
                                          ask(RD_KAFKA_OFFSET_BEGINNING, &lows);
                                      return error != RD_KAFKA_RESP_ERR_NO_ERROR
                                                 ? error
                                                 : ask(RD_KAFKA_OFFSET_END, &highs);
                                    }));
  if (count != 1) {
    return absl::FailedPreconditionError(
        absl::StrFormat("topic '%s' has %d partitions and must have 1", progress_key.topic, count));
  }
  const std::int64_t low = lows.at(0);
  const std::int64_t high = highs.at(0);
  ProgressRead own;
  ProgressRead* const read = how.so_far != nullptr ? how.so_far : &own;
  if (high == low || high < read->next) {  // the topic was emptied, or made anew
    *read = ProgressRead();
  }
  read->next = std::max(read->next, low);
  if (read->next < high) {
    const Topic topic(rd_kafka_topic_new(client.get(), progress_key.topic.c_str(), nullptr));
    if (topic == nullptr || rd_kafka_consume_start(topic.get(), 0, read->next) != 0) {
      return FoundTopicStatus(progress_key.topic, rd_kafka_last_error());
    }
    const absl::Status done = ReadTo(high, topic.get(), progress_key, how, read);
    rd_kafka_consume_stop(topic.get(), 0);
    RETURN_IF_ERROR(done);
  }
  return Judge(*read, how.unread);
}

}  // namespace

// Also of the same epoch: it has another one for each connection.
bool UnreadProgress::Overrules(const std::vector<Progress>& kept) const {
  return newer_epoch && (kept.empty() || kept.front().epoch <= *newer_epoch);
}

absl::StatusOr<std::vector<Progress>> ReadProgress(const KafkaOptions& options,
                                                   const ProgressKey& progress_key,
                                                   const ReadProgressOptions& how) {
  const auto denied_at = steady_clock::now() + kUnknownFor;
  for (;;) {
    auto records = ReadOnce(options, progress_key, how);
    if (!absl::IsPermissionDenied(records.status()) || TimeLeft(denied_at).count() == 0) {
      return records;
    }
    poll(nullptr, 0, kDeniedAgainAfterMs);
  }
}

absl::Status WriteProgress(const KafkaOptions& options, const ProgressKey& progress_key,
                           const Progress& progress, milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  ASSIGN_OR_RETURN(const Producer client, MakeClient(options, RD_KAFKA_PRODUCER));
  RETURN_IF_ERROR(CountPartitions(client.get(), progress_key.topic, timeout).status());
  std::string value = envelope::EncodeProgress(progress);
  const Topic topic(rd_kafka_topic_new(client.get(), progress_key.topic.c_str(), nullptr));
  if (topic == nullptr ||
      rd_kafka_produce(topic.get(), 0, RD_KAFKA_MSG_F_COPY, value.data(), value.size(),
                       progress_key.name.data(), progress_key.name.size(), nullptr) != 0) {
    return FoundTopicStatus(progress_key.topic, rd_kafka_last_error());
  }
  const Queue queue(rd_kafka_queue_get_main(client.get()));
  while (TimeLeft(deadline).count() > 0) {
    const Event event(
        rd_kafka_queue_poll(queue.get(), static_cast<int>(TimeLeft(deadline).count())));
    if (event == nullptr || rd_kafka_event_type(event.get()) != RD_KAFKA_EVENT_DR) {
      continue;
    }
    const rd_kafka_message_t* report = rd_kafka_event_message_next(event.get());
    return report == nullptr ? absl::InternalError("an empty delivery report")
                             : FoundTopicStatus(progress_key.topic, report->err);
  }
  rd_kafka_purge(client.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
  return absl::UnavailableError(absl::StrFormat(
      "Kafka did not acknowledge a record for topic '%s' within %d ms: may walpost's Kafka user "
      "WRITE to it?",
      progress_key.topic, timeout.count()));
}

}  // namespace walpost::kafka
