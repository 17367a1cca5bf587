#include "kafka/topic_limits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kafka/client.h"

namespace walpost::kafka {

using std::chrono::milliseconds;

namespace {

// Two years, with Kafka's default of a week.
constexpr std::int64_t kSegmentsBack = 100;

using AdminOptions =
    std::unique_ptr<rd_kafka_AdminOptions_t, decltype(&rd_kafka_AdminOptions_destroy)>;
using Resource =
    std::unique_ptr<rd_kafka_ConfigResource_t, decltype(&rd_kafka_ConfigResource_destroy)>;

std::optional<std::int64_t> Number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(value) : std::nullopt;
}

using Entries = std::vector<std::pair<std::string_view, std::string_view>>;

Entries EntriesOf(const rd_kafka_ConfigResource_t* resource) {
  std::size_t count = 0;
  const rd_kafka_ConfigEntry_t** entries = rd_kafka_ConfigResource_configs(resource, &count);
  Entries found;
  for (std::size_t i = 0; i < count; ++i) {
    const char* value = rd_kafka_ConfigEntry_value(entries[i]);
    found.emplace_back(rd_kafka_ConfigEntry_name(entries[i]), value == nullptr ? "" : value);
  }
  return found;
}

// `use` is called with the configuration of a topic or a broker.
template <typename T>
absl::StatusOr<T> Describe(rd_kafka_t* client, rd_kafka_ResourceType_t type,
                           const std::string& name, milliseconds timeout,
                           absl::StatusOr<T> (*use)(const Entries&)) {
  const Queue queue(rd_kafka_queue_new(client));
  const Resource asked(rd_kafka_ConfigResource_new(type, name.c_str()),
                       rd_kafka_ConfigResource_destroy);
  if (asked == nullptr) {
    return absl::InvalidArgumentError("a resource without a name");
  }
  const AdminOptions options(rd_kafka_AdminOptions_new(client, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS),
                             rd_kafka_AdminOptions_destroy);
  const auto timeout_ms = static_cast<int>(timeout.count());
  std::array<char, 256> text{};
  rd_kafka_AdminOptions_set_request_timeout(options.get(), timeout_ms, text.data(), text.size());
  std::array<rd_kafka_ConfigResource_t*, 1> list = {asked.get()};
  rd_kafka_DescribeConfigs(client, list.data(), list.size(), options.get(), queue.get());
  const Event event(rd_kafka_queue_poll(queue.get(), timeout_ms));
  if (event == nullptr) {
    return absl::DeadlineExceededError(absl::StrFormat("no answer within %d ms", timeout_ms));
  }
  const rd_kafka_resp_err_t failed = rd_kafka_event_error(event.get());
  if (failed == RD_KAFKA_RESP_ERR__TIMED_OUT) {
    return absl::DeadlineExceededError(rd_kafka_event_error_string(event.get()));
  }
  if (failed != RD_KAFKA_RESP_ERR_NO_ERROR) {
    return absl::UnavailableError(rd_kafka_event_error_string(event.get()));
  }
  std::size_t count = 0;
  const rd_kafka_ConfigResource_t** found = rd_kafka_DescribeConfigs_result_resources(
      rd_kafka_event_DescribeConfigs_result(event.get()), &count);
  if (count != 1) {
    return absl::InternalError("an answer about something else");
  }
  const rd_kafka_resp_err_t error = rd_kafka_ConfigResource_error(found[0]);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    const char* said = rd_kafka_ConfigResource_error_string(found[0]);
    const std::string why = said != nullptr ? said : rd_kafka_err2str(error);
    const bool may_not = error == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED ||
                         error == RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
    return may_not ? absl::PermissionDeniedError(why) : absl::UnavailableError(why);
  }
  return use(EntriesOf(found[0]));
}

// The bytes of a number in a record: zigzag, seven bits each.
std::int64_t VarintBytes(std::int64_t value) {
  const std::uint64_t zigzag =
      (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
  return (static_cast<std::int64_t>(std::bit_width(zigzag | 1)) + 6) / 7;
}

std::int64_t FieldBytes(std::string_view field) {
  const auto bytes = static_cast<std::int64_t>(field.size());
  return VarintBytes(bytes) + bytes;
}

std::int64_t FieldBytes(const std::optional<std::string_view>& field) {
  return field ? FieldBytes(*field) : VarintBytes(-1);
}

}  // namespace

absl::StatusOr<TopicLimits> ReadTopicLimits(rd_kafka_t* producer, const std::string& topic,
                                            milliseconds timeout) {
  return Describe<TopicLimits>(
      producer, RD_KAFKA_RESOURCE_TOPIC, topic, timeout,
      [](const Entries& entries) -> absl::StatusOr<TopicLimits> { return LimitsOf(entries); });
}

absl::StatusOr<std::int64_t> ReadRequestBytesMax(rd_kafka_t* client, std::int32_t broker,
                                                 milliseconds timeout) {
  return Describe<std::int64_t>(
      client, RD_KAFKA_RESOURCE_BROKER, std::to_string(broker), timeout,
      [](const Entries& entries) -> absl::StatusOr<std::int64_t> {
        for (const auto& [name, value] : entries) {
          if (const auto bytes = Number(value); bytes && name == "socket.request.max.bytes") {
            return *bytes;
          }
        }
        return absl::NotFoundError("the answer has no socket.request.max.bytes");
      });
}

TopicLimits LimitsOf(
    const std::vector<std::pair<std::string_view, std::string_view>>& configuration) {
  TopicLimits limits;
  std::optional<std::int64_t> retention;
  std::optional<std::int64_t> retention_bytes;
  std::optional<std::int64_t> segment;
  std::optional<std::int64_t> before;
  std::optional<std::int64_t> after;
  // The only limit that brokers up to 3.5 have, in both directions; those from 4 on have it no
  // more.
  std::optional<std::int64_t> difference;
  for (const auto& [name, value] : configuration) {
    if (name == "max.message.bytes") {
      limits.message_bytes_max = Number(value);
    } else if (name == "cleanup.policy") {
      limits.has_cleanup_policy = true;
      limits.deletes = value.find("delete") != std::string_view::npos;
      limits.compacts = value.find("compact") != std::string_view::npos;
    } else if (name == "compression.type") {
      limits.uncompressed = value == "uncompressed";
      limits.recompresses = !limits.uncompressed && value != "producer";
    } else if (name == "retention.ms") {
      retention = Number(value);
    } else if (name == "retention.bytes") {
      retention_bytes = Number(value);
    } else if (name == "delete.retention.ms") {
      limits.tombstone_retention =
          milliseconds(std::max<std::int64_t>(Number(value).value_or(0), 0));
    } else if (name == "segment.bytes") {
      limits.segment_bytes = Number(value);
    } else if (name == "segment.ms") {
      segment = Number(value);
    } else if (name == "message.timestamp.before.max.ms") {
      before = Number(value);
    } else if (name == "message.timestamp.after.max.ms") {
      after = Number(value);
    } else if (name == "message.timestamp.difference.max.ms") {
      difference = Number(value);
    } else if (name == "min.insync.replicas") {
      limits.min_insync_replicas = Number(value);
    }
  }
  if (limits.has_cleanup_policy && (!limits.deletes || retention)) {
    limits.age_max.reset();
  }
  if (limits.deletes && retention && *retention > 0) {
    limits.retention = milliseconds(*retention);
    // Half of it, so that consumers have the other half to read the record.
    limits.age_max = *limits.retention / 2;
  }
  if (limits.deletes && retention && *retention >= 0) {
    limits.tombstone_retention = std::min(limits.tombstone_retention, milliseconds(*retention));
  }
  if (limits.deletes && retention_bytes.value_or(-1) >= 0) {
    limits.tombstone_retention = milliseconds(0);  // what is newer may go at any time
  }
  // Half of each, too: the broker's clock is another one, and the record is on its way for a while.
  for (const std::optional<std::int64_t>& bound : {before, difference}) {
    if (bound && *bound >= 0) {
      const milliseconds half(*bound / 2);
      limits.age_max = std::min(limits.age_max.value_or(half), half);
    }
  }
  // A broker begins a new segment, which is open for good, when a time is later than the segment's
  // first by segment.ms. Who writes rows chooses times.
  if (segment && *segment > 0 && *segment <= milliseconds::max().count() / kSegmentsBack) {
    const milliseconds bound(*segment * kSegmentsBack);
    limits.age_max = std::min(limits.age_max.value_or(bound), bound);
  }
  for (const std::optional<std::int64_t>& bound : {after, difference}) {
    if (bound && *bound >= 0) {
      limits.ahead_max = std::min(limits.ahead_max, milliseconds(*bound / 2));
    }
  }
  return limits;
}

std::optional<std::int64_t> BatchBytesFor(const TopicLimits& limits) {
  const std::int64_t bytes = LimitOf(delivery::FailureKind::kRecordTooLarge, limits);
  return limits.message_bytes_max ? std::optional(std::max<std::int64_t>(bytes - bytes / 100, 1))
                                  : std::nullopt;
}

std::int64_t BatchBytesOf(const envelope::Record& record) {
  constexpr std::int64_t kBatchHeader = 61;
  constexpr std::int64_t kAttributesAndDeltas = 3;  // both deltas are 0 in a batch of one
  std::int64_t bytes = kAttributesAndDeltas + FieldBytes(record.key) + FieldBytes(record.value) +
                       VarintBytes(static_cast<std::int64_t>(record.headers.size()));
  for (const envelope::RecordHeader& header : record.headers) {
    bytes += FieldBytes(header.name) + FieldBytes(header.value);
  }
  return kBatchHeader + VarintBytes(bytes) + bytes;
}

std::int64_t RequestBytesOf(const envelope::Record& record) {
  constexpr std::size_t kOverhead = 40;
  constexpr std::size_t kHeaderBytes = 20;  // the lengths of name and value
  std::size_t bytes =
      kOverhead + (record.key ? record.key->size() : 0) + (record.value ? record.value->size() : 0);
  for (const envelope::RecordHeader& header : record.headers) {
    bytes += kHeaderBytes + header.name.size() + header.value.size();
  }
  return static_cast<std::int64_t>(bytes);
}

bool LacksKey(const envelope::Record& record, const TopicLimits& limits) {
  return limits.compacts && !record.key;
}

std::optional<bool> IsTooLarge(const envelope::Record& record, const TopicLimits& limits,
                               bool compressed) {
  if (!limits.message_bytes_max || compressed) {
    return std::nullopt;
  }
  return BatchBytesOf(record) > *limits.message_bytes_max;
}

std::int64_t LimitOf(delivery::FailureKind rejection, const TopicLimits& limits) {
  switch (rejection) {
    case delivery::FailureKind::kRecordTooLarge:
      return limits.segment_bytes.value_or(0) > 0
                 ? std::min(limits.message_bytes_max.value_or(0), *limits.segment_bytes)
                 : limits.message_bytes_max.value_or(0);
    case delivery::FailureKind::kRecordInvalid:
      return limits.has_cleanup_policy ? (limits.compacts ? 1 : 2) : 0;
    default:
      return 0;
  }
}

std::int64_t LimitWantedBy(const envelope::Record& record, delivery::FailureKind rejection) {
  switch (rejection) {
    case delivery::FailureKind::kRecordTooLarge:
      return BatchBytesOf(record);
    case delivery::FailureKind::kRecordInvalid:
      return record.key ? 1 : 2;
    case delivery::FailureKind::kPartitionUnknown:
      return std::int64_t{record.partition} + 1;
    default:
      return 0;
  }
}

bool MayBeBehind(delivery::FailureKind rejection, const envelope::Record& record) {
  return rejection == delivery::FailureKind::kTopicNotAuthorized ||
         rejection == delivery::FailureKind::kRecordTooLarge ||
         (rejection == delivery::FailureKind::kRecordInvalid && !record.key);
}

std::int64_t SafeTimestampMs(std::int64_t timestamp_ms, const TopicLimits& limits,
                             base::WallTime now) {
  const auto now_ms = std::chrono::duration_cast<milliseconds>(now.time_since_epoch()).count();
  if (timestamp_ms == 0 || now_ms == 0) {
    return timestamp_ms;
  }
  if (timestamp_ms > now_ms + limits.ahead_max.count()) {
    return now_ms;
  }
  return limits.age_max ? std::max(timestamp_ms, now_ms - limits.age_max->count()) : timestamp_ms;
}

}  // namespace walpost::kafka
