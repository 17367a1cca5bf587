#include "kafka/letters.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/client.h"
#include "kafka/handles.h"

namespace walpost::kafka {
namespace {

using envelope::RecordHeader;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What librdkafka counts in an int; who follows for longer asks again.
constexpr milliseconds kWaitMax{3'600'000};

// A consumer of the partition that has been started; stops with its end.
class Reader {
 public:
  Reader(const LetterPlace& place, const OnLetter& on_letter, milliseconds timeout)
      : place_(place), on_letter_(on_letter), timeout_(timeout) {}

  ~Reader() {
    if (started_) {
      rd_kafka_consume_stop(topic_.get(), 0);
    }
  }

  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  absl::StatusOr<std::int64_t> Run(const KafkaOptions& options) {
    ASSIGN_OR_RETURN(client_, MakeClient(options, RD_KAFKA_CONSUMER));
    RETURN_IF_ERROR(FindEnds());
    next_ = std::max(low_, place_.from_offset);
    if (next_ >= high_ && place_.follow.count() == 0) {
      return high_;
    }
    topic_.reset(rd_kafka_topic_new(client_.get(), place_.topic.c_str(), nullptr));
    if (topic_ == nullptr || rd_kafka_consume_start(topic_.get(), 0, next_) != 0) {
      return TopicStatus(place_.topic, rd_kafka_last_error());
    }
    started_ = true;
    while (next_ < high_) {
      ASSIGN_OR_RETURN(const bool something, Consume(timeout_));
      if (!something) {
        return TooSlow();
      }
    }
    const auto deadline = steady_clock::now() + place_.follow;
    for (auto left = place_.follow; left.count() > 0;
         left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now())) {
      RETURN_IF_ERROR(Consume(left).status());
    }
    return next_;
  }

 private:
  absl::Status FindEnds() {
    ASSIGN_OR_RETURN(const std::int32_t partitions,
                     CountPartitions(client_.get(), place_.topic, timeout_));
    if (partitions != 1) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "topic '%s' has %d partitions and must have 1: in several, letters have no order",
          place_.topic, partitions));
    }
    RETURN_IF_ERROR(TopicStatus(place_.topic, rd_kafka_query_watermark_offsets(
                                                  client_.get(), place_.topic.c_str(), 0, &low_,
                                                  &high_, static_cast<int>(timeout_.count()))));
    if (high_ < place_.from_offset) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "topic '%s' ends at offset %d and was read up to %d before: it was deleted and made "
          "again, or cut off; what lay in it is unknown",
          place_.topic, high_, place_.from_offset));
    }
    return absl::OkStatus();
  }

  // One record, or the end of the partition; false when there is neither.
  absl::StatusOr<bool> Consume(milliseconds timeout) {
    const milliseconds wait = std::min(timeout, kWaitMax);
    const Message message(rd_kafka_consume(topic_.get(), 0, static_cast<int>(wait.count())));
    if (message == nullptr) {
      return false;
    }
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
      next_ = message->offset;
      return true;
    }
    RETURN_IF_ERROR(TopicStatus(place_.topic, message->err));
    RETURN_IF_ERROR(Take(*message));
    next_ = message->offset + 1;
    return true;
  }

  absl::Status TooSlow() const {
    return absl::UnavailableError(absl::StrFormat(
        "topic '%s': Kafka gave nothing of its offsets %d to %d for %d ms: check that its leader "
        "is there and that walpost's Kafka user may READ it",
        place_.topic, next_, high_ - 1, timeout_.count()));
  }

  absl::Status Take(const rd_kafka_message_t& message) {
    ReadHeaders(message, &headers_);
    const std::span<const RecordHeader> headers(headers_);
    if (!IsOfPipeline(headers.subspan(envelope::EventHeaders(headers).size()))) {
      return absl::OkStatus();
    }
    auto letter = envelope::ParseLetter(headers);
    if (!letter.ok()) {
      return base::Annotate(letter.status(),
                            absl::StrFormat("topic '%s', offset %d", place_.topic, message.offset));
    }
    StoredLetter stored;
    stored.offset = message.offset;
    rd_kafka_timestamp_type_t type = RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
    stored.timestamp_ms = std::max<std::int64_t>(rd_kafka_message_timestamp(&message, &type), 0);
    if (message.key != nullptr) {
      stored.key = std::string_view(static_cast<const char*>(message.key), message.key_len);
    }
    if (message.payload != nullptr) {
      stored.value = std::string_view(static_cast<const char*>(message.payload), message.len);
    }
    stored.headers = headers;
    stored.letter = **std::move(letter);
    return on_letter_(stored);
  }

  // Looked at before the rest is read: a later version's record of another pipeline is no concern.
  bool IsOfPipeline(std::span<const RecordHeader> own) const {
    return std::any_of(own.begin(), own.end(), [this](const RecordHeader& header) {
      return header.name == envelope::kLetterPipelineHeader && header.value == place_.pipeline;
    });
  }

  const LetterPlace& place_;
  const OnLetter& on_letter_;
  const milliseconds timeout_;
  Producer client_;
  Topic topic_;  // before the client
  bool started_ = false;
  std::int64_t low_ = 0;
  std::int64_t high_ = 0;
  std::int64_t next_ = 0;
  std::vector<RecordHeader> headers_;
};

}  // namespace

absl::StatusOr<std::int64_t> ReadLetters(const KafkaOptions& options, const LetterPlace& place,
                                         const OnLetter& on_letter, milliseconds timeout) {
  return Reader(place, on_letter, timeout).Run(options);
}

}  // namespace walpost::kafka
