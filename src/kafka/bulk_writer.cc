#include "kafka/bulk_writer.h"

#include <glog/logging.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/text.h"
#include "kafka/client.h"
#include "kafka/held_rejections.h"
#include "kafka/properties.h"
#include "kafka/topic_leaders.h"
#include "kafka/topic_look_up.h"

namespace walpost::kafka {
namespace {

using delivery::FailureKind;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPollStep{100};
constexpr milliseconds kTryAgainAfter{100};
constexpr milliseconds kLookAgainAfter{500};
// Records are left out by one look-up for so long. One may take as long.
constexpr milliseconds kLookKept{5'000};
// The limits are not asked for again so soon where nobody has answered, or a right is missing.
constexpr milliseconds kDescribeAgainAfter{60'000};
// Where all waits together are so many times unknown_topic_wait, a short one is enough. Else who
// writes rows that no topic takes could hold up a verb without end.
constexpr int kWaitsMax = 10;
constexpr milliseconds kUnseenMin{30'000};  // also for topics that are not there
constexpr const char* kDoesNotExist = "it does not exist: create it";
constexpr const char* kMayNotDescribe =
    "walpost's Kafka user may not DESCRIBE it: the right to WRITE to it brings that along";
constexpr const char* kMayNotWrite = "walpost's Kafka user may not WRITE to it";

std::string IdOf(const rd_kafka_message_t& message) {
  rd_kafka_headers_t* list = nullptr;  // stays the message's
  const void* value = nullptr;
  std::size_t size = 0;
  const bool found =
      rd_kafka_message_headers(&message, &list) == RD_KAFKA_RESP_ERR_NO_ERROR &&
      rd_kafka_header_get(list, 0, "id", &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR;
  return found ? std::string(static_cast<const char*>(value), size) : "?";
}

absl::Status Rejected(const std::string& topic, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrFormat("topic '%s' does not take it: %s", topic, why));
}

bool IsAboutRight(rd_kafka_resp_err_t error) {
  return Classify(error) == FailureKind::kTopicNotAuthorized;
}

// The answer is about at least one record of the batch; a missing right is about all of them.
bool IsAboutRecords(rd_kafka_resp_err_t error) {
  const FailureKind kind = Classify(error);
  return kind == FailureKind::kRecordTooLarge || kind == FailureKind::kRecordInvalid ||
         IsAboutRight(error);
}

// A producer that gave up says so of what it had not sent yet, and not always after it has said
// why.
bool WasNotSent(rd_kafka_resp_err_t error) {
  return error == RD_KAFKA_RESP_ERR__PURGE_QUEUE || error == RD_KAFKA_RESP_ERR__FATAL;
}

std::uint64_t SequenceOf(const rd_kafka_message_t* report) {
  return reinterpret_cast<std::uintptr_t>(report->_private);
}

// Empty = that status does not say.
std::string WhyItTakesNothing(const absl::Status& looked_up) {
  switch (looked_up.code()) {
    case absl::StatusCode::kNotFound:
      return kDoesNotExist;
    case absl::StatusCode::kPermissionDenied:
      return kMayNotDescribe;
    case absl::StatusCode::kInvalidArgument:
      return "it is no legal name";
    default:
      return "";
  }
}

}  // namespace

absl::Status BulkWriter::MakeClient(delivery::Sink::Mode mode) {
  absl::StatusOr<Conf> built = BuildConf(options_, mode, producer_limits_);
  if (!built.ok()) {  // says nothing about a record
    return absl::FailedPreconditionError(built.status().message());
  }
  Conf conf = *std::move(built);
  compressed_ = Compresses(conf.get());
  std::array<char, 512> error{};
  for (const auto& [name, value] :
       {std::pair("max.in.flight.requests.per.connection", "1"), std::pair("linger.ms", "5")}) {
    if (rd_kafka_conf_set(conf.get(), name, value, error.data(), error.size()) !=
        RD_KAFKA_CONF_OK) {
      return absl::InternalError(absl::StrFormat("%s: %s", name, error.data()));
    }
  }
  rd_kafka_t* client = rd_kafka_new(RD_KAFKA_PRODUCER, conf.get(), error.data(), error.size());
  if (client == nullptr) {
    return absl::FailedPreconditionError("sink.kafka.properties: " + Shown(error.data(), options_));
  }
  (void)conf.release();  // rd_kafka_new took it
  client_ = OwnProducer(client);
  return absl::OkStatus();
}

void BulkWriter::KnowUnseen(const UnseenTopics& topics) {
  for (const auto& [topic, why] : topics) {
    Target target;
    target.takes_nothing = why == Unseen::kHidden ? kMayNotDescribe : kDoesNotExist;
    targets_.try_emplace(topic, std::move(target));  // it may have come meanwhile
  }
}

// Nothing is under way: who waits for a topic to become known polls the client, and that takes
// reports away.
absl::StatusOr<BulkWriter::Target*> BulkWriter::TargetOf(const std::string& topic) {
  if (const auto found = targets_.find(topic); found != targets_.end()) {
    return &found->second;
  }
  RETURN_IF_ERROR(Flush());
  Target target;
  const auto began = steady_clock::now();
  RETURN_IF_ERROR(LookUp(topic, &target));
  unseen_for_ += target.takes_nothing.empty() ? milliseconds(0) : steady_clock::now() - began;
  return &targets_.emplace(topic, target).first->second;
}

// Also has a producer whose batches this topic takes: librdkafka cannot change them later.
absl::Status BulkWriter::LookUp(const std::string& topic, Target* target,
                                delivery::Sink::Mode mode) {
  RETURN_IF_ERROR(MakeClient(mode));  // only a new one asks each broker
  const milliseconds again = delivery::LastingRejections::kWaitAgain;
  const UnseenFor unseen_for =
      unseen_for_ <
              std::max<steady_clock::duration>(kWaitsMax * options_.unknown_topic_wait, kUnseenMin)
          ? UnseenFor{.hidden = options_.unknown_topic_wait}
          : UnseenFor{again, std::min(again, options_.unknown_topic_wait)};
  const absl::StatusOr<std::int32_t> partitions =
      CountPartitions(options_, client_.get(), topic, patience_, unseen_for);
  target->takes_nothing = WhyItTakesNothing(partitions.status());
  if (!target->takes_nothing.empty()) {
    // Asked once: who leaves such records out would wait for each.
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(partitions.status());
  target->partitions = *partitions;
  by_look_ups_.OnLimit(topic, FailureKind::kPartitionUnknown, target->partitions);
  // They may be others by now where nobody answers, or a right is missing. Then the broker decides.
  target->described = false;
  if (steady_clock::now() >= target->describe_from) {
    const auto limits = ReadTopicLimits(client_.get(), topic, std::min(patience_, kLimitsTimeout));
    target->described = limits.ok();
    target->limits = limits.ok() ? *limits : target->limits;
    for (const FailureKind kind : {FailureKind::kRecordTooLarge, FailureKind::kRecordInvalid}) {
      if (limits.ok()) {
        by_look_ups_.OnLimit(topic, kind, LimitOf(kind, *limits));
      }
    }
    target->describe_from =
        steady_clock::now() + (limits.ok() ? milliseconds(0) : kDescribeAgainAfter);
  }
  target->looked_at = steady_clock::now();
  const std::optional<std::int64_t> batch = BatchBytesFor(target->limits);
  if (batch && *batch < producer_limits_.batch_bytes_max.value_or(INT64_MAX)) {
    producer_limits_.batch_bytes_max = batch;
    RETURN_IF_ERROR(MakeClient(mode));
  }
  return absl::OkStatus();
}

BulkWriter::Answer BulkWriter::Check(const envelope::Record& record, const Target& target) const {
  const std::string topic(record.topic);
  if (!target.takes_nothing.empty()) {
    return {Rejected(topic, target.takes_nothing), FailureKind::kTopicUnknown};
  }
  if (record.partition >= target.partitions) {
    return {Rejected(topic, absl::StrFormat("it asks for partition %d, and there are %d",
                                            record.partition, target.partitions)),
            FailureKind::kPartitionUnknown};
  }
  const TopicLimits limits = target.described ? target.limits : TopicLimits();
  if (LacksKey(record, limits)) {
    return {Rejected(topic, "it has no key, and the topic is compacted (INVALID_RECORD)"),
            FailureKind::kRecordInvalid};
  }
  if (IsTooLarge(record, limits, compressed_).value_or(false)) {
    return {Rejected(topic, absl::StrFormat("it has %d bytes, and max.message.bytes is %d",
                                            BatchBytesOf(record), *limits.message_bytes_max)),
            FailureKind::kRecordTooLarge};
  }
  return {};
}

// Does the topic take it? What it does not take for a moment is not left out for that.
absl::StatusOr<BulkWriter::Answer> BulkWriter::CheckForLong(const envelope::Record& record,
                                                            Target* target) {
  Answer answer = Check(record, *target);
  bool may_pass = true;
  const auto limit = [&] {
    return answer.kind == FailureKind::kPartitionUnknown ? target->partitions
                                                         : LimitOf(answer.kind, target->limits);
  };
  while (!answer.status.ok() && target->takes_nothing.empty() && may_pass) {
    const delivery::Rejection before{answer.kind, limit(), LimitWantedBy(record, answer.kind)};
    may_pass = MayPass(by_look_ups_.Count(record.topic, before, kLookKept, steady_clock::now()));
    if (!may_pass && steady_clock::now() < target->looked_at + kLookKept) {
      break;
    }
    RETURN_IF_ERROR(Flush());
    const auto began = steady_clock::now();
    poll(nullptr, 0, may_pass ? static_cast<int>(kLookAgainAfter.count()) : 0);
    RETURN_IF_ERROR(LookUp(std::string(record.topic), target));
    waited_ += steady_clock::now() - began;
    answer = Check(record, *target);
    // Another one has a wait of its own.
    may_pass = may_pass || answer.kind != before.kind || limit() != before.limit;
  }
  return answer;
}

absl::Status BulkWriter::LeaveOut(const std::string& topic, const std::string& id,
                                  const absl::Status& why) {
  RETURN_IF_ERROR(on_rejected_(id, why));
  Target& target = targets_[topic];
  target.left_out += target.takes_nothing.empty() ? 0 : 1;
  closed_out_ += target.takes_nothing.empty() ? 0 : 1;
  return absl::OkStatus();
}

std::vector<ClosedTopic> BulkWriter::TakeClosedTopics() {
  std::vector<ClosedTopic> closed;
  for (auto& [name, target] : targets_) {
    if (target.left_out > 0) {
      closed.push_back({name, target.takes_nothing, std::exchange(target.left_out, 0)});
    }
  }
  return closed;
}

absl::StatusOr<BulkWriter::Target*> BulkWriter::FindTarget(const envelope::Record& record) {
  RETURN_IF_ERROR(failure_);
  absl::StatusOr<Target*> target = TargetOf(std::string(record.topic));
  if (!target.ok()) {
    return base::Annotate(target.status(),
                          absl::StrFormat("event '%s'", base::Printable(HeaderOf(record, "id"),
                                                                        base::kShownBytesMax)));
  }
  return target;
}

absl::StatusOr<bool> BulkWriter::TakesSomething(const envelope::Record& record) {
  ASSIGN_OR_RETURN(const Target* const target, FindTarget(record));
  return target->takes_nothing.empty();
}

absl::Status BulkWriter::Write(const envelope::Record& record) {
  ASSIGN_OR_RETURN(Target* const target, FindTarget(record));
  const std::string topic(record.topic);
  const std::string id(HeaderOf(record, "id"));
  ASSIGN_OR_RETURN(const Answer fits, CheckForLong(record, target));
  if (!fits.status.ok()) {
    const absl::Status rejected = LeaveOut(topic, id, fits.status);
    if (!rejected.ok()) {
      RETURN_IF_ERROR(Flush());  // what stands before it is sent
    }
    return rejected;
  }
  std::int32_t partition = record.partition;
  if (partition < 0) {
    partition = record.key ? PartitionForKey(*record.key, target->partitions) : -1;
  }
  const std::size_t bytes = record.AccountedBytes();
  const std::size_t most = options_.in_flight_bytes_max;
  RETURN_IF_ERROR(AwaitAtMost(bytes < most ? most - bytes : 0));
  rd_kafka_headers_t* headers = MakeHeaders(record.headers);
  const auto produce = [&] {
    return Produce(client_.get(), topic.c_str(), partition, record.key, record.value, headers,
                   sequence_);
  };
  rd_kafka_resp_err_t error = produce();
  // The user may have lowered a limit of librdkafka's queue; or a batch has failed.
  while ((error == RD_KAFKA_RESP_ERR__QUEUE_FULL || error == RD_KAFKA_RESP_ERR__FATAL) &&
         in_flight_bytes_ > 0 &&
         AwaitAtMost(error == RD_KAFKA_RESP_ERR__FATAL ? 0 : in_flight_bytes_ - 1).ok()) {
    error = produce();
  }
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
    in_flight_.emplace(sequence_++, bytes);
    in_flight_bytes_ += bytes;
    return absl::OkStatus();
  }
  rd_kafka_headers_destroy(headers);
  RETURN_IF_ERROR(failure_);
  return error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE
             ? on_rejected_(id, Rejected(topic,
                                         "it is larger than sink.kafka.properties: "
                                         "message.max.bytes"))
             : TopicStatus(topic, error);
}

absl::Status BulkWriter::Flush() { return AwaitAtMost(0); }

absl::Status BulkWriter::AwaitAtMost(std::size_t bytes) {
  auto deadline = steady_clock::now() + patience_;
  while (failure_.ok() && (in_flight_bytes_ > bytes || !returned_.empty())) {
    if (in_flight_bytes_ == 0) {
      failure_ = WriteAlone();
    } else if (TakeReports()) {
      deadline = steady_clock::now() + patience_;
    } else if (steady_clock::now() > deadline) {
      failure_ = NothingAcknowledged();
      rd_kafka_purge(client_.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    }
  }
  return failure_;
}

Event BulkWriter::Poll() {
  const Queue queue(rd_kafka_queue_get_main(client_.get()));
  Event event(rd_kafka_queue_poll(queue.get(), static_cast<int>(kPollStep.count())));
  return event != nullptr && rd_kafka_event_type(event.get()) == RD_KAFKA_EVENT_DR
             ? std::move(event)
             : nullptr;
}

bool BulkWriter::TakeReports() {
  Event event = Poll();
  if (event == nullptr) {
    return false;
  }
  const std::size_t returned = returned_.size();
  while (const rd_kafka_message_t* report = rd_kafka_event_message_next(event.get())) {
    const auto sent = in_flight_.find(SequenceOf(report));
    CHECK(sent != in_flight_.end());
    in_flight_bytes_ -= sent->second;
    in_flight_.erase(sent);
    if (report->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
      ++acknowledged_;
    } else if (WasNotSent(report->err) || IsAboutRecords(report->err)) {
      returned_.push_back(report);
    } else if (failure_.ok()) {
      failure_ = TopicStatus(rd_kafka_topic_name(report->rkt), report->err);
    }
  }
  if (returned_.size() > returned) {
    reports_.push_back(std::move(event));
    // What waits behind the batch comes back at once. What is under way may still arrive.
    rd_kafka_purge(client_.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING);
  }
  return true;
}

absl::Status BulkWriter::WriteAlone() {
  const Producer before = std::move(client_);  // is destroyed after its messages
  const std::vector<Event> reports = std::exchange(reports_, {});
  std::vector<const rd_kafka_message_t*> returned = std::exchange(returned_, {});
  const auto why = std::find_if(returned.begin(), returned.end(),
                                [](const auto* report) { return IsAboutRecords(report->err); });
  if (why == returned.end()) {
    const rd_kafka_resp_err_t fatal = rd_kafka_fatal_error(before.get(), nullptr, 0);
    return TopicStatus(rd_kafka_topic_name(returned.front()->rkt), fatal);
  }
  const bool batch_too_large = Classify((*why)->err) == FailureKind::kRecordTooLarge;
  std::sort(returned.begin(), returned.end(),
            [](const auto* a, const auto* b) { return SequenceOf(a) < SequenceOf(b); });
  RETURN_IF_ERROR(MakeClient(delivery::Sink::Mode::kOneAtATime));
  for (const rd_kafka_message_t* message : returned) {
    absl::Status answer = WriteOne(*message);
    if (absl::IsInvalidArgument(answer)) {
      answer = LeaveOut(rd_kafka_topic_name(message->rkt), IdOf(*message), answer);
    }
    RETURN_IF_ERROR(answer);
  }
  if (batch_too_large) {  // where a topic may not be described, its limit is found like this
    producer_limits_.batch_bytes_max =
        std::max<std::int64_t>(producer_limits_.batch_bytes_max.value_or(kBatchBytes) / 2, 1);
  }
  return MakeClient();
}

// A broker that has not heard of a change may reject what the topic takes.
absl::Status BulkWriter::WriteOne(const rd_kafka_message_t& message) {
  const std::string topic = rd_kafka_topic_name(message.rkt);
  Target& target = targets_[topic];
  std::vector<envelope::RecordHeader> headers;
  const envelope::Record record = RecordIn(message, &headers);
  while (target.takes_nothing.empty()) {
    const auto began = steady_clock::now();
    const Answer answer = WriteOnce(message, record);
    if (answer.status.ok()) {
      by_brokers_.OnTaken(record, steady_clock::now());
    }
    const bool may_not = absl::IsPermissionDenied(answer.status);
    if (!answer.status.ok()) {
      // With a new producer: librdkafka may send nothing more, without any sign.
      RETURN_IF_ERROR(LookUp(topic, &target, delivery::Sink::Mode::kOneAtATime));
    }
    const delivery::Failure failure{answer.kind, "", MayBeBehind(answer.kind, record),
                                    LimitOf(answer.kind, target.limits),
                                    LimitWantedBy(record, answer.kind)};
    if (MayPass(by_brokers_.Count(record, failure, kLookKept, steady_clock::now()))) {
      poll(nullptr, 0, static_cast<int>(kTryAgainAfter.count()));
      waited_ += steady_clock::now() - began;
      continue;
    }
    if (may_not || absl::IsInvalidArgument(answer.status)) {
      RETURN_IF_ERROR(CheckLeaders(topic, &target));
    }
    if (!may_not) {
      return answer.status;
    }
    target.takes_nothing = kMayNotWrite;  // nor what follows
  }
  return Rejected(topic, target.takes_nothing);
}

bool BulkWriter::MayPass(milliseconds left) const {
  const milliseconds wait = options_.unknown_topic_wait;
  const bool waited_enough =
      waited_ >= kWaitsMax * wait && wait - left >= delivery::LastingRejections::kWaitAgain;
  return left.count() > 0 && !waited_enough;
}

absl::Status BulkWriter::CheckLeaders(const std::string& topic, Target* target) const {
  if (target->leaders_agreed_at &&
      steady_clock::now() < *target->leaders_agreed_at + kLeadersKept) {
    return absl::OkStatus();
  }
  switch (AskWhoLeads(options_, topic, {})) {
    case Leadership::kAgreed:
      target->leaders_agreed_at = steady_clock::now();
      return absl::OkStatus();
    case Leadership::kDisputed:
      return absl::UnavailableError(absl::StrFormat(
          "topic '%s': Kafka's brokers name different leaders of it: one of them may be cut off "
          "from Kafka's controller, and not know what the topic takes. Connect that broker again, "
          "or stop it",
          topic));
    case Leadership::kUnsaid:
      break;
  }
  return absl::UnavailableError(absl::StrFormat(
      "topic '%s': a broker rejected a record, and no broker has said who leads the topic: that "
      "one may be cut off from Kafka's controller, and not know what the topic takes. Try again "
      "when all brokers answer",
      topic));
}

BulkWriter::Answer BulkWriter::WriteOnce(const rd_kafka_message_t& message,
                                         const envelope::Record& record) {
  rd_kafka_headers_t* copy = MakeHeaders(record.headers);
  const rd_kafka_resp_err_t error = Produce(client_.get(), rd_kafka_topic_name(message.rkt),
                                            message.partition, record.key, record.value, copy, 0);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    rd_kafka_headers_destroy(copy);
    return {TopicStatus(rd_kafka_topic_name(message.rkt), error), Classify(error)};
  }
  return AwaitAnswer();
}

BulkWriter::Answer BulkWriter::AwaitAnswer() {
  const auto deadline = steady_clock::now() + patience_;
  while (steady_clock::now() < deadline) {
    const Event event = Poll();
    const rd_kafka_message_t* report =
        event != nullptr ? rd_kafka_event_message_next(event.get()) : nullptr;
    if (report != nullptr && report->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
      ++acknowledged_;
      return {};
    }
    if (report != nullptr) {
      const std::string topic = rd_kafka_topic_name(report->rkt);
      return {IsAboutRecords(report->err) && !IsAboutRight(report->err)
                  ? Rejected(topic, rd_kafka_err2str(report->err))
                  : TopicStatus(topic, report->err),
              Classify(report->err)};
    }
  }
  return {NothingAcknowledged()};
}

absl::Status BulkWriter::NothingAcknowledged() const {
  return absl::UnavailableError(absl::StrFormat(
      "Kafka has acknowledged nothing for %d s: check that its brokers are there, that enough "
      "replicas are in sync, and that walpost's Kafka user may WRITE to the topic",
      std::chrono::duration_cast<std::chrono::seconds>(patience_).count()));
}

}  // namespace walpost::kafka
