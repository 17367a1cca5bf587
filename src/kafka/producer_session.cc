#include "kafka/producer_session.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/client.h"
#include "kafka/held_rejections.h"
#include "kafka/properties.h"

namespace walpost::kafka {

using base::LogEvent;
using delivery::Failure;
using delivery::FailureKind;
using delivery::SubmitResult;

namespace {

constexpr std::int64_t kRequestHeaderBytes = 128;

constexpr SubmitResult::Outcome kNotNow = SubmitResult::Outcome::kNotNow;

SubmitResult NotNow() { return SubmitResult{kNotNow, {}}; }

void* ToOpaque(delivery::Sequence sequence) { return reinterpret_cast<void*>(sequence + 1); }

delivery::Sequence FromOpaque(const void* opaque) {
  return reinterpret_cast<delivery::Sequence>(opaque) - 1;
}

}  // namespace

ProducerSession::ProducerSession(const KafkaOptions& options, delivery::Sink::Mode mode,
                                 base::BlockingRunner* runner, TopicMemory* memory,
                                 KafkaFacts* facts, const Notify* notify)
    : options_(options),
      mode_(mode),
      runner_(runner),
      memory_(memory),
      facts_(facts),
      notify_(notify),
      held_(options, runner, memory) {}

absl::StatusOr<std::unique_ptr<ProducerSession>> ProducerSession::Create(
    const KafkaOptions& options, delivery::Sink::Mode mode, int wake_fd,
    base::BlockingRunner* runner, TopicMemory* memory, KafkaFacts* facts, const Notify* notify) {
  ASSIGN_OR_RETURN(Conf conf, BuildConf(options, mode, memory->limits));
  std::unique_ptr<ProducerSession> session;
  session.reset(new ProducerSession(options, mode, runner, memory, facts, notify));
  session->batch_bytes_max_ = std::stoll(InForce(conf.get(), "batch.size"));
  session->batch_records_max_ = std::stoull(InForce(conf.get(), "batch.num.messages"));
  session->message_bytes_max_ = std::stoll(InForce(conf.get(), "message.max.bytes"));
  const std::size_t records_max = std::stoull(InForce(conf.get(), "queue.buffering.max.messages"));
  session->records_max_ = records_max == 0 ? SIZE_MAX : records_max;  // 0 = without a limit
  session->message_bytes_given_ =
      std::any_of(options.properties.begin(), options.properties.end(),
                  [](const auto& property) { return property.first == "message.max.bytes"; });
  session->compressed_ = Compresses(conf.get());
  std::array<char, 512> error{};
  rd_kafka_t* producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf.get(), error.data(), error.size());
  if (producer == nullptr) {
    return absl::InvalidArgumentError("sink.kafka.properties: " + Shown(error.data(), options));
  }
  (void)conf.release();  // rd_kafka_new took it
  session->producer_ = OwnProducer(producer);
  session->queue_.reset(rd_kafka_queue_get_main(producer));
  rd_kafka_set_log_queue(producer, session->queue_.get());
  constexpr std::uint64_t kOne = 1;  // what an eventfd wants written
  rd_kafka_queue_io_event_enable(session->queue_.get(), wake_fd, &kOne, sizeof(kOne));
  return session;
}

ProducerSession::~ProducerSession() {
  *alive_ = false;
  facts_->brokers.clear();
  if (queue_ != nullptr) {
    rd_kafka_queue_io_event_enable(queue_.get(), -1, nullptr, 0);
  }
  if (producer_ != nullptr && outstanding_ > 0) {
    rd_kafka_purge(producer_.get(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT |
                                        RD_KAFKA_PURGE_F_NON_BLOCKING);
  }
  topics_.clear();
  queue_.reset();
}

SubmitResult ProducerSession::Submit(const envelope::Record& record, delivery::Sequence sequence) {
  if (closing_ || failed_ || outgrown_ || outstanding_ >= records_max_) {
    return NotNow();
  }
  if (sequence < delivery::kFirstOwnSequence) {
    received_below_ = std::max(received_below_, sequence + 1);
  }
  TopicState* topic = StateOf(record.topic);
  if (topic->phase != TopicState::Phase::kReady) {
    return AwaitTopic(topic);
  }
  if (std::optional<SubmitResult> rejected = CheckLimits(record, sequence, topic)) {
    return *std::move(rejected);
  }
  const std::int32_t partition = ChoosePartition(record, topic);
  if (partition >= static_cast<std::int32_t>(topic->partition_count)) {
    return OnMissingPartition(partition, sequence, topic);
  }
  Partition& to = At({topic, partition});
  if (MayBeTooLarge(record)) {  // at once, so that the answer is about this record
    if (to.waiting || to.outstanding > 0) {
      return AwaitReport(topic);
    }
    if (const auto error = Produce(record, sequence, {topic, partition})) {
      return WhyNotProduced(error, record, topic);
    }
  } else {
    if (!to.waiting) {
      to.waiting.emplace();
      waiting_.emplace_back(topic, partition);
    }
    to.waiting->push_back({record, sequence});
    may_send_ = may_send_ || to.outstanding == 0;
  }
  ++outstanding_;
  return SubmitResult{};
}

SubmitResult ProducerSession::AwaitReport(TopicState* topic) {
  topic->awaits_report = true;
  return SubmitResult{SubmitResult::Outcome::kTopicPending, {}};
}

ProducerSession::Partition& ProducerSession::At(TopicPartition target) {
  return target.first->partitions[static_cast<std::size_t>(target.second)];
}

bool ProducerSession::MayBeTooLarge(const envelope::Record& record) const {
  return RequestBytesOf(record) > message_bytes_max_;
}

void ProducerSession::SendWaiting(delivery::SinkListener* listener) {
  may_send_ = false;
  for (std::size_t i = 0; i < waiting_.size();) {
    Partition& to = At(waiting_[i]);
    const rd_kafka_resp_err_t error = SendBatch(waiting_[i]);
    if (error == RD_KAFKA_RESP_ERR__QUEUE_FULL && rd_kafka_outq_len(producer_.get()) > 0) {
      return;  // until more is acknowledged
    }
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
      // The next producer is offered it again, and says why it cannot be sent.
      failed_ = true;
      listener->OnSessionFailed({FailureKind::kSessionEnded, rd_kafka_err2str(error)});
      return;
    }
    if (!to.waiting->empty()) {
      ++i;
      continue;
    }
    to.waiting.reset();
    waiting_[i] = waiting_.back();
    waiting_.pop_back();
  }
}

// What waits for a partition that awaits no answer, up to one request: librdkafka would send a
// second one before the first is answered, and a topic that was made anew can reject the first and
// take it.
rd_kafka_resp_err_t ProducerSession::SendBatch(TopicPartition target) {
  Partition& to = At(target);
  if (to.outstanding > 0) {
    return RD_KAFKA_RESP_ERR_NO_ERROR;
  }
  const bool one = mode_ == delivery::Sink::Mode::kOneAtATime;
  // A batch that is larger than its topic takes fails as a whole, although each record would fit.
  const std::int64_t bytes_max =
      std::min(batch_bytes_max_, BatchBytesFor(target.first->limits).value_or(INT64_MAX));
  std::int64_t bytes = kRequestHeaderBytes;
  while (!to.waiting->empty()) {
    const Waiting& next = to.waiting->front();
    bytes += RequestBytesOf(next.record);
    if (to.outstanding > 0 &&
        (one || to.gate.alone() || bytes > bytes_max || to.outstanding >= batch_records_max_)) {
      break;
    }
    if (const auto error = Produce(next.record, next.sequence, target)) {
      return error;
    }
    to.waiting->pop_front();
  }
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

// What the broker says, and of a size what it does not say.
std::string ProducerSession::WhyRejected(const rd_kafka_message_t& message) const {
  std::string text =
      absl::StrFormat("Kafka rejected it for topic '%s': %s (%s)", rd_kafka_topic_name(message.rkt),
                      rd_kafka_err2str(message.err), rd_kafka_err2name(message.err));
  const auto* topic = static_cast<const TopicState*>(rd_kafka_topic_opaque(message.rkt));
  if (Classify(message.err) == FailureKind::kRecordTooLarge && topic->limits.message_bytes_max) {
    text +=
        absl::StrFormat("; key and value have %u bytes%s, and the topic's max.message.bytes is %d",
                        message.key_len + message.len, compressed_ ? " before compression" : "",
                        *topic->limits.message_bytes_max);
  }
  return text;
}

// The producer's message.max.bytes rejected a record that the topic may take.
SubmitResult ProducerSession::TooLargeForProducer(const envelope::Record& record,
                                                  const TopicState& topic) {
  const std::int64_t bytes = RequestBytesOf(record);
  if (message_bytes_given_) {
    return SubmitResult::Rejected(
        FailureKind::kRecordTooLarge,
        absl::StrFormat("the record of %d bytes is larger than message.max.bytes, which is "
                        "%d: raise it, or remove it, under sink.kafka.properties",
                        bytes, message_bytes_max_));
  }
  if (bytes > kRequestBytesMax) {
    return SubmitResult::Rejected(
        FailureKind::kRecordTooLarge,
        absl::StrFormat("the record of %d bytes is larger than the %d that walpost sends, since "
                        "brokers end the connection without an answer beyond "
                        "socket.request.max.bytes; where that was raised, set message.max.bytes "
                        "under sink.kafka.properties",
                        bytes, kRequestBytesMax));
  }
  memory_->limits.message_bytes_max =
      std::max(bytes, std::min(topic.limits.message_bytes_max.value_or(bytes), kRequestBytesMax));
  Outgrow(absl::StrFormat("message.max.bytes %d instead of %d, for topic '%s'",
                          memory_->limits.message_bytes_max, message_bytes_max_, topic.name));
  return NotNow();
}

void ProducerSession::FailWaiting(delivery::SinkListener* listener) {
  for (const TopicPartition& target : std::exchange(waiting_, {})) {
    for (const Waiting& waiting : *At(target).waiting) {
      --outstanding_;
      listener->OnFailed(waiting.sequence, {FailureKind::kSessionEnded, "it was not sent"});
    }
    At(target).waiting.reset();
  }
}

rd_kafka_resp_err_t ProducerSession::Produce(const envelope::Record& record,
                                             delivery::Sequence sequence, TopicPartition target) {
  const TopicState& topic = *target.first;
  rd_kafka_headers_t* headers = MakeHeaders(record.headers);
  // No copy flag: the value stays ours, and in place, until its report. A null value or key has a
  // null pointer.
  const std::string_view value = record.value.value_or(std::string_view());
  const std::string_view key = record.key.value_or(std::string_view());
  const char* empty = "";
  const void* value_data =
      record.value ? (value.data() != nullptr ? value.data() : empty) : nullptr;
  const void* key_data = record.key ? (key.data() != nullptr ? key.data() : empty) : nullptr;
// The RD_KAFKA_V_ macros are C.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
  const rd_kafka_resp_err_t error = rd_kafka_producev(
      producer_.get(), RD_KAFKA_V_RKT(topic.handle.get()), RD_KAFKA_V_PARTITION(target.second),
      RD_KAFKA_V_VALUE(const_cast<void*>(value_data), value.size()),
      RD_KAFKA_V_KEY(const_cast<void*>(key_data), key.size()),
      RD_KAFKA_V_TIMESTAMP(TimestampFor(record, topic)), RD_KAFKA_V_HEADERS(headers),
      RD_KAFKA_V_OPAQUE(ToOpaque(sequence)), RD_KAFKA_V_END);
#pragma GCC diagnostic pop
  if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
    At(target).gate.OnSent(now_.mono);
    Partition& partition = At(target);
    partition.unanswered_since =
        partition.outstanding == 0 ? now_.mono : partition.unanswered_since;
    ++partition.outstanding;
    last_report_ = sent_ == 0 ? now_.mono : last_report_;  // it is awaited from now on
    ++sent_;
  } else {
    rd_kafka_headers_destroy(headers);
  }
  return error;
}

SubmitResult ProducerSession::WhyNotProduced(rd_kafka_resp_err_t error,
                                             const envelope::Record& record, TopicState* topic) {
  switch (Classify(error)) {
    case FailureKind::kRecordTooLarge:
      return TooLargeForProducer(record, *topic);
    case FailureKind::kTopicUnknown:
      topic->ask_from = now_.mono + kAskAgainAfter;
      return LookUpFirst(topic);  // deleted meanwhile, or fewer partitions
    default:
      // Queue full is back-pressure; a fatal error also arrives as an event, which ends the
      // session.
      return NotNow();
  }
}

void ProducerSession::Poll(base::Now now, delivery::SinkListener* listener) {
  now_ = now;
  received_below_ = listener->ReceivedBelow();
  while (Event event{rd_kafka_queue_poll(queue_.get(), 0)}) {
    switch (rd_kafka_event_type(event.get())) {
      case RD_KAFKA_EVENT_DR:
        ServeReports(event.get(), listener);
        break;
      case RD_KAFKA_EVENT_ERROR:
        ServeError(event.get(), listener);
        break;
      case RD_KAFKA_EVENT_LOG:
        ServeLog(event.get());
        break;
      case RD_KAFKA_EVENT_STATS:
        facts_->brokers = ReadBrokers(rd_kafka_event_stats(event.get()));
        break;
      default:
        break;
    }
  }
  ReportHeld(listener);
  if (!closing_ && !failed_ && outgrown_) {
    ReportOutgrown(listener);
  } else if (!closing_ && !failed_ && (may_send_ || last_report_ == now.mono)) {
    SendWaiting(listener);
  }
  if (closing_) {
    FailWaiting(listener);
    Purge();
    return;
  }
  for (const std::string& topic : std::exchange(answered_, {})) {
    const auto found = topics_.find(topic);
    listener->OnTopicAnswered(
        topic, found != topics_.end() && found->second->phase == TopicState::Phase::kReady);
  }
  StartLookUps();
  if (now.mono >= next_refresh_) {
    RefreshCounts();
  }
  CheckWaits();
}

void ProducerSession::ServeReports(rd_kafka_event_t* event, delivery::SinkListener* listener) {
  last_report_ = now_.mono;
  while (const rd_kafka_message_t* message = rd_kafka_event_message_next(event)) {
    CHECK_GT(sent_, 0U);
    --sent_;
    --outstanding_;
    const delivery::Sequence sequence = FromOpaque(message->_private);
    UpdateGate(*message);
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
      facts_->OnAnswer();
      listener->OnDelivered(sequence, {message->partition, message->offset});
      continue;
    }
    if (rd_kafka_message_status(message) != RD_KAFKA_MSG_STATUS_NOT_PERSISTED) {
      ++facts_->possibly_delivered;
    }
    if (message->err == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP) {
      NoteRejectedTime(*static_cast<const TopicState*>(rd_kafka_topic_opaque(message->rkt)));
    }
    const Failure failure{Classify(message->err), WhyRejected(*message)};
    if (IsByRulesOfTheTopic(failure.kind) && mode_ == delivery::Sink::Mode::kOneAtATime) {
      HoldRejection(sequence, failure, *message);
    } else {
      ReportFailure(sequence, failure, listener);
    }
  }
}

void ProducerSession::ReportFailure(delivery::Sequence sequence, Failure failure,
                                    delivery::SinkListener* listener) {
  failed_ = true;
  if (closing_) {
    failure.kind = FailureKind::kSessionEnded;
  } else if (!std::exchange(failure_reported_, true)) {
    // A batch fails as a whole: the first of its reports says it all.
    facts_->OnError(failure.detail, now_.wall);
    (*notify_)({KafkaNotice::Severity::kWarning, LogEvent::kKafkaDeliveryFailed, failure.detail});
  }
  listener->OnFailed(sequence, failure);
}

std::int64_t ProducerSession::TimestampFor(const envelope::Record& record,
                                           const TopicState& topic) const {
  constexpr std::int64_t kWhenProduced = 0;
  return topic.dated_now ? kWhenProduced
                         : SafeTimestampMs(record.timestamp_ms, topic.limits, now_.wall);
}

// A pipelined producer's limits may be old; the next one reads them again.
void ProducerSession::NoteRejectedTime(const TopicState& topic) {
  if (mode_ == delivery::Sink::Mode::kOneAtATime) {
    memory_->rejected_times[topic.name] = topic.limits;
  }
}

void ProducerSession::UpdateGate(const rd_kafka_message_t& message) {
  auto* topic = static_cast<TopicState*>(rd_kafka_topic_opaque(message.rkt));
  Partition& from = At({topic, message.partition});
  CHECK_GT(from.outstanding, 0U);
  --from.outstanding;
  from.unanswered_since = now_.mono;
  if (std::exchange(topic->awaits_report, false)) {
    answered_.push_back(topic->name);
  }
  if (message.err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    from.gate.OnFailed();
  } else if (from.gate.OnAcknowledged(now_.mono, message.offset)) {
    OnOffsetWentBack(topic, message);
  }
}

void ProducerSession::ServeError(rd_kafka_event_t* event, delivery::SinkListener* listener) {
  const rd_kafka_resp_err_t error = rd_kafka_event_error(event);
  const std::string text = Shown(
      absl::StrFormat("%s (%s)", rd_kafka_event_error_string(event), rd_kafka_err2name(error)),
      options_);
  facts_->OnError(text, now_.wall);
  if (rd_kafka_event_error_is_fatal(event) != 0) {
    (*notify_)({KafkaNotice::Severity::kWarning, LogEvent::kKafkaProducerFailed, text});
    failed_ = true;
    listener->OnSessionFailed(Failure{FailureKind::kSessionEnded, text});
    return;
  }
  if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN && !facts_->down) {
    facts_->connected = false;
    facts_->down = true;
    ++facts_->outages;
    (*notify_)({KafkaNotice::Severity::kWarning, LogEvent::kKafkaBrokersDown,
                text + "; walpost waits and keeps what is in flight"});
    return;
  }
  (*notify_)({KafkaNotice::Severity::kDebug, LogEvent::kKafkaError, text});
}

void ProducerSession::ServeLog(rd_kafka_event_t* event) {
  const char* facility = nullptr;
  const char* text = nullptr;
  int level = 0;
  rd_kafka_event_log(event, &facility, &text, &level);
  const std::string line = Shown(absl::StrFormat("%s: %s", facility, text), options_);
  // CONFWARN comments on properties that walpost has set with intent.
  const bool about_ours = std::string_view(facility) == "CONFWARN";
  const auto severity = about_ours   ? KafkaNotice::Severity::kDebug
                        : level <= 4 ? KafkaNotice::Severity::kWarning
                        : level <= 6 ? KafkaNotice::Severity::kInfo
                                     : KafkaNotice::Severity::kDebug;
  // What it says of a broker that is down differs only in times and counts, which stand behind
  // this.
  (*notify_)({severity, LogEvent::kKafkaLog, line, line.substr(0, line.find(" (after "))});
}

void ProducerSession::Close(base::Now now) {
  if (closing_) {
    return;
  }
  closing_ = true;
  held_.GiveUp();
  last_report_ = std::max(last_report_, now.mono);
  Purge();
}

// One purge is not enough: records move between librdkafka's queues while it works.
void ProducerSession::Purge() {
  if (outstanding_ == 0) {
    return;
  }
  int what = RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING;
  if (now_.mono - last_report_ >= kPurgeInFlightAfter) {
    what |= RD_KAFKA_PURGE_F_INFLIGHT;
  }
  rd_kafka_purge(producer_.get(), what);
}

std::optional<base::MonotonicTime> ProducerSession::NextDeadline() const {
  if (closing_) {
    return now_.mono +
           (outstanding_ == 0 ? std::chrono::milliseconds(0) : std::chrono::milliseconds(50));
  }
  if (outgrown_ && !failed_) {
    return sent_ == 0 ? now_.mono : std::max(last_report_, outgrown_at_) + kOutgrownWait;
  }
  if (may_send_ && !failed_) {
    return now_.mono;
  }
  if (!answered_.empty() || held_.answered()) {
    return now_.mono;
  }
  base::MonotonicTime deadline = next_refresh_;
  if (!looking_up_ && !to_look_up_.empty()) {
    deadline = std::min(deadline, std::max(now_.mono, memory_->look_up_from));
  }
  if (!to_look_up_soon_.empty()) {
    deadline = std::min(deadline, topics_.at(to_look_up_soon_.front())->ask_from);
  }
  return deadline;
}

}  // namespace walpost::kafka
