#include "kafka/progress.h"

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "envelope/control_records.h"
#include "kafka/client.h"
#include "kafka/properties.h"
#include "kafka/topic_leaders.h"

namespace walpost::kafka {
namespace {

using envelope::RecordHeader;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A reader that gets nothing for so long is replaced. The next one has twice the time.
constexpr milliseconds kFirstPatience{1'000};

class Scan {
 public:
  Scan(const KafkaOptions& options, const std::string& topic, const OnScannedRecord& on_record,
       milliseconds timeout)
      : options_(options), name_(topic), on_record_(on_record), timeout_(timeout) {}

  ~Scan() { StopReader(); }

  Scan(const Scan&) = delete;
  Scan& operator=(const Scan&) = delete;

  absl::StatusOr<TopicGaps> Run(std::int64_t from_ms) {
    ASSIGN_OR_RETURN(reader_, AskAgreedLeaders(
                                  options_, name_, timeout_,
                                  [&](rd_kafka_t* client, std::int32_t partitions) {
                                    return AskWhereItIs(client, partitions, from_ms);
                                  },
                                  Isolation::kReadCommitted));
    ASSIGN_OR_RETURN(const Conf producer, BuildConf(options_, delivery::Sink::Mode::kPipelined));
    ReadLimits(Compresses(producer.get()));
    next_.resize(ends_.size());
    open_.resize(ends_.size());
    gaps_.partitions.resize(ends_.size());
    for (std::size_t i = 0; i < from_.size(); ++i) {
      Open(i);
    }
    while (IsOpen()) {
      RETURN_IF_ERROR(topic_ == nullptr ? StartReader() : Consume());
    }
    gaps_.BeginLater(0);
    if (gaps_.compaction == Compaction::kYes && removed_) {
      gaps_.tombstone_retention = tombstone_retention_;
    }
    return gaps_;
  }

 private:
  // Where each partition has the first record that is not older, and where it begins and ends.
  rd_kafka_resp_err_t AskWhereItIs(rd_kafka_t* client, std::int32_t partitions,
                                   std::int64_t from_ms) {
    for (const auto& [of, offsets] :
         {std::pair<std::int64_t, std::vector<std::int64_t>*>(from_ms, &from_),
          {RD_KAFKA_OFFSET_BEGINNING, &lows_},
          {RD_KAFKA_OFFSET_END, &ends_}}) {
      const rd_kafka_resp_err_t error =
          AskOffsets(client, name_, partitions, of, timeout_, offsets);
      if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return error;
      }
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR;
  }

  // What may not be described is not known.
  void ReadLimits(bool compressed) {
    const auto limits = ReadTopicPolicy(reader_.get(), name_, std::min(timeout_, kLimitsTimeout));
    if (!limits.ok()) {
      gaps_.compaction = Compaction::kUnknown;
      gaps_.compaction_unknown = std::string(limits.status().message());
      return;
    }
    gaps_.compaction = limits->compacts ? Compaction::kYes : Compaction::kNo;
    gaps_.message_bytes_max = compressed ? std::nullopt : limits->message_bytes_max;
    tombstone_retention_ = limits->tombstone_retention;
  }

  void Open(std::size_t index) {
    const std::int64_t low = lows_[index];
    const std::int64_t high = ends_[index];
    std::int64_t& from = from_[index];
    // Of what stood before the first record that is not older, nothing is known.
    removed_ = removed_ || (high > 0 && from != 0);
    from = from < 0 ? high : std::clamp(from, low, high);  // OFFSET_END: nothing is that young
    // Since when a partition shows what was written only matters where something was deleted.
    const bool any_cut = *std::max_element(lows_.begin(), lows_.end()) > 0;
    gaps_.partitions[index] = {any_cut || from == low ? INT64_MAX : INT64_MIN, low > 0};
    next_[index] = any_cut ? low : from;
    open_[index] = next_[index] < high;
  }

  bool IsOpen() const { return std::find(open_.begin(), open_.end(), true) != open_.end(); }

  // A record of an aborted transaction is there for nobody.
  absl::Status StartReader() {
    if (reader_ == nullptr) {
      ASSIGN_OR_RETURN(reader_,
                       MakeClient(options_, RD_KAFKA_CONSUMER, {}, Isolation::kReadCommitted));
      // It must know them.
      RETURN_IF_ERROR(CountPartitions(options_, reader_.get(), name_, timeout_).status());
    }
    topic_.reset(rd_kafka_topic_new(reader_.get(), name_.c_str(), nullptr));
    queue_.reset(rd_kafka_queue_new(reader_.get()));
    for (std::size_t index = 0; index < open_.size(); ++index) {
      if (open_[index]) {
        RETURN_IF_ERROR(Start(index));
      }
    }
    read_at_ = steady_clock::now();
    return absl::OkStatus();
  }

  absl::Status Start(std::size_t index) {
    const auto partition = static_cast<std::int32_t>(index);
    const bool failed =
        topic_ == nullptr ||
        rd_kafka_consume_start_queue(topic_.get(), partition, next_[index], queue_.get()) != 0;
    return failed ? FoundTopicStatus(name_, rd_kafka_last_error()) : absl::OkStatus();
  }

  void StopReader() {
    for (std::size_t index = 0; index < open_.size() && topic_ != nullptr; ++index) {
      if (open_[index]) {
        rd_kafka_consume_stop(topic_.get(), static_cast<std::int32_t>(index));
      }
    }
    queue_.reset();
    topic_.reset();
    reader_.reset();
  }

  absl::Status Consume() {
    const Message message(
        rd_kafka_consume_queue(queue_.get(), static_cast<int>(patience_.count())));
    if (message == nullptr || message->err == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION) {
      return OnSilence();
    }
    const auto index = static_cast<std::size_t>(message->partition);
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
      Close(index, message->offset);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(FoundTopicStatus(name_, message->err));
    // What came after the call is not looked at.
    if (message->offset < ends_.at(index)) {
      RETURN_IF_ERROR(Take(*message));
    }
    Close(index, std::max(message->offset + 1, next_[index]));
    read_at_ = steady_clock::now();
    return absl::OkStatus();
  }

  // A reader goes by the last answer of a broker, and can stay with one that does not know of a
  // partition. A new one asks each broker.
  absl::Status OnSilence() {
    if (steady_clock::now() < read_at_ + patience_) {
      return absl::OkStatus();
    }
    if (patience_ >= timeout_) {
      return absl::UnavailableError(absl::StrFormat(
          "topic '%s': Kafka gave nothing for %d ms: check that its leaders are there, that "
          "walpost's Kafka user may READ it, and that no Kafka transaction is open there for long",
          name_, timeout_.count()));
    }
    StopReader();
    patience_ = std::min(patience_ * 2, timeout_);
    return absl::OkStatus();
  }

  void Close(std::size_t index, std::int64_t next) {
    if (open_.at(index) && next >= ends_[index]) {
      removed_ = removed_ || next_[index] < ends_[index];
      rd_kafka_consume_stop(topic_.get(), static_cast<std::int32_t>(index));
      open_[index] = false;
    }
  }

  absl::Status Take(const rd_kafka_message_t& message) {
    const auto index = static_cast<std::size_t>(message.partition);
    std::int64_t& next = next_[index];
    removed_ = removed_ || message.offset > next;
    next = message.offset + 1;
    ReadHeaders(message, &headers_);
    ScannedRecord record;
    record.partition = message.partition;
    record.offset = message.offset;
    rd_kafka_timestamp_type_t type = RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
    record.timestamp_ms = rd_kafka_message_timestamp(&message, &type);
    if (message.key != nullptr) {
      record.key = std::string_view(static_cast<const char*>(message.key), message.key_len);
      const auto partitions = static_cast<std::int32_t>(gaps_.partitions.size());
      gaps_.keys_elsewhere =
          gaps_.keys_elsewhere || PartitionForKey(*record.key, partitions) != record.partition;
    }
    if (message.payload != nullptr) {
      record.value = std::string_view(static_cast<const char*>(message.payload), message.len);
    }
    record.headers = headers_;
    // A verb sends with the time that the event had, or with that of walpost's own clock.
    if (!record.redelivered()) {
      gaps_.partitions[index].Add(record.timestamp_ms);
    }
    if (record.offset >= from_[index]) {
      return on_record_(record);
    }
    // What is older was read only to see since when the partition shows what was written.
    if (gaps_.partitions[index].first_ms != INT64_MAX) {
      next = from_[index];
      rd_kafka_consume_stop(topic_.get(), record.partition);
      return Start(index);
    }
    return absl::OkStatus();
  }

  const KafkaOptions& options_;
  const std::string& name_;
  const OnScannedRecord& on_record_;
  const milliseconds timeout_;
  Producer reader_;  // null after a silence
  Queue queue_;
  Topic topic_;
  std::vector<std::int64_t> next_;  // the offset after the last record that was read
  std::vector<std::int64_t> from_;  // what lies before is not asked for
  std::vector<std::int64_t> lows_;  // the first offset of each partition
  std::vector<std::int64_t> ends_;
  std::vector<bool> open_;  // not read to its end
  // Offsets have no record: it was removed, or is of those that end a transaction.
  bool removed_ = false;
  milliseconds tombstone_retention_{0};
  TopicGaps gaps_;
  steady_clock::time_point read_at_;  // the reader's start, or its last record
  milliseconds patience_ = std::min(kFirstPatience, timeout_);
  std::vector<RecordHeader> headers_;
};

}  // namespace

std::string_view ScannedRecord::Header(std::string_view name) const {
  for (const RecordHeader& header : headers) {
    if (header.name == name) {
      return header.value;
    }
  }
  return {};
}

void PartitionBegin::Add(std::int64_t time_ms) {
  time_ms = std::max(time_ms, std::int64_t{0});
  first_ms = first_ms == INT64_MAX ? time_ms : first_ms;
  latest_ms = std::max(latest_ms, time_ms);
  back_ms = std::max(back_ms, std::min(latest_ms - time_ms, INT64_MAX - 1) + 1);
}

void TopicGaps::BeginLater(std::int64_t by_ms) {
  for (PartitionBegin& each : partitions) {
    each.back_ms += std::min(by_ms, INT64_MAX - each.back_ms);
    if (each.cut) {
      begins_ms = std::max(begins_ms, std::optional(each.BeginsMs()));
    }
  }
}

std::int32_t TopicGaps::PartitionOf(std::int32_t asked,
                                    std::optional<std::int32_t> key_hash) const {
  const auto count = static_cast<std::int32_t>(partitions.size());
  if (asked >= 0) {
    return asked < count ? asked : -1;
  }
  return key_hash && count > 0 && !keys_elsewhere ? *key_hash % count : -1;
}

std::optional<std::int64_t> TopicGaps::BeginsMs(std::int32_t partition) const {
  if (partition < 0 || !begins_ms) {
    return begins_ms;
  }
  const PartitionBegin& own = partitions.at(static_cast<std::size_t>(partition));
  return own.cut ? own.BeginsMs() : std::min(own.BeginsMs(), *begins_ms);
}

absl::StatusOr<TopicGaps> ScanTopic(const KafkaOptions& options, const std::string& topic,
                                    std::int64_t from_ms, const OnScannedRecord& on_record,
                                    milliseconds timeout) {
  return Scan(options, topic, on_record, timeout).Run(from_ms);
}

namespace {

using base::Progress;

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
  RETURN_IF_ERROR(CountPartitions(options, client.get(), progress_key.topic, timeout).status());
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
