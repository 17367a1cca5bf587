#include "model_kafka.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "envelope/control_records.h"
#include "pipeline/held_topics.h"
#include "violation.h"

namespace walpost::simulation {

using delivery::Failure;
using delivery::FailureKind;
using delivery::SubmitResult;
using std::chrono::milliseconds;

namespace {

// Requests under way are given up when the broker has been silent for so long.
constexpr milliseconds kPurgeAfter{10'000};
// The gate's limit here, and a broker's that is as short beside it as a real one's.
constexpr milliseconds kKnownFor{1'500};
constexpr milliseconds kForgetsAfter{2'000};

}  // namespace

ModelKafka::ModelKafka(const Plan& plan, const ModelPostgres* server, Judge* judge)
    : plan_(plan),
      random_(plan.seed, 2),
      server_(server),
      judge_(judge),
      faults_(plan.faults),
      partitions_(ModelPostgres::kTopics * kPartitions + 1),  // the last: progress
      late_(partitions_.size()) {}

void ModelKafka::Heal() {
  faults_ = Faults();
  progress_rejected_until_ = base::MonotonicTime();
  TakePoison();
  poison_asked_below_ = UINT64_MAX;
  outage_until_ = long_outage_until_ = base::MonotonicTime();
  for (Partition& partition : partitions_) {
    partition.stuck_until = base::MonotonicTime();
  }
  for (auto& [name, topic] : topics_) {
    topic.unknown_until = base::MonotonicTime();
  }
}

void ModelKafka::DeleteProgress() {
  progress_.Delete();
  late_.back().clear();
}

void ModelKafka::Open(Mode mode) {
  Require(!open_, "Open of a sink that is open");
  open_ = true;
  closing_ = dead_ = false;
  mode_ = mode;
  session_failure_.reset();
  for (auto& [name, topic] : topics_) {
    topic.looked_up = topic.pending = false;
  }
  for (Partition& partition : partitions_) {
    const base::MonotonicTime stuck_until = partition.stuck_until;
    partition = Partition();
    partition.stuck_until = stuck_until;
  }
  judge_->OnSession();
}

void ModelKafka::Close() {
  Require(open_, "Close of a sink that is closed");
  if (closing_) {
    return;
  }
  closing_ = true;
  silent_ = faults_.Has(Fault::kafka_silent_close) && random_.Chance(500);
  close_at_ = now_;
  if (faults_.Has(Fault::kafka_slow_close) && random_.Chance(500)) {
    close_at_ = now_ + milliseconds(random_.Between(1, 12'000));
  }
}

void ModelKafka::TakeOnePoison() {
  if (!poison_.empty()) {
    poison_.erase(
        std::next(poison_.begin(), static_cast<std::ptrdiff_t>(random_.Below(poison_.size()))));
  }
}

std::size_t ModelKafka::PartitionOf(const Identity& what) const {
  if (what.kind == Identity::Kind::kProgress) {
    return partitions_.size() - 1;
  }
  const std::uint32_t lane = server_->events()[what.event].lane;
  const auto keys = static_cast<std::uint32_t>(plan_.keys);
  return lane / keys * kPartitions + lane % keys % kPartitions;
}

bool ModelKafka::IsPoison(std::uint64_t event) {
  const bool halts = plan_.options.on_undeliverable == pipeline::OnUndeliverable::kHalt;
  for (; faults_.Has(Fault::kafka_poison) && poison_asked_below_ <= event; ++poison_asked_below_) {
    if (random_.Chance(halts ? 10 : 50)) {
      poison_.insert(poison_asked_below_);
    }
  }
  return poison_.count(event) != 0;
}

bool ModelKafka::IsRejected(const Identity& what, bool by_client) {
  switch (what.kind) {
    case Identity::Kind::kProgress:
      return now_ < progress_rejected_until_ && (what.event % 2 == 0) == by_client;
    case Identity::Kind::kEvent:
    case Identity::Kind::kAgain:
      return IsPoison(what.event) && (what.event % 2 == 0) == by_client;
  }
  return false;
}

SubmitResult ModelKafka::Submit(const envelope::Record& record, delivery::Sequence sequence) {
  Require(open_, "Submit to a sink that is closed");
  const Identity what = judge_->Identify(record);
  Partition& partition = partitions_[PartitionOf(what)];
  const bool full = faults_.Has(Fault::kafka_not_now) && random_.Chance(200);
  if (closing_ || dead_ || partition.failed || full) {
    return SubmitResult{SubmitResult::Outcome::kNotNow, {}};
  }
  if (std::optional<SubmitResult> answer = LookUp(what)) {
    return *std::move(answer);
  }
  if (IsRejected(what, /*by_client=*/true)) {
    judge_->OnPoison(what);
    progress_rejections_ += what.kind == Identity::Kind::kProgress ? 1 : 0;
    return SubmitResult{SubmitResult::Outcome::kRejected,
                        Failure{FailureKind::kRecordTooLarge, "larger than the topic allows"}};
  }
  judge_->OnSubmitted(what);
  ++outstanding_;
  outstanding_bytes_ += record.AccountedBytes();
  Content content{what, std::nullopt};
  if (what.kind == Identity::Kind::kProgress) {
    content.progress = *envelope::DecodeProgress(*record.value);
  }
  partition.messages.push_back(Message{sequence, std::move(content), record, false});
  Send(&partition);
  return SubmitResult{};
}

void ModelKafka::Send(Partition* partition) const {
  const std::size_t most =
      std::min(partition->messages.size(), mode_ == Mode::kOneAtATime ? 1 : SIZE_MAX);
  for (; partition->sent < most && partition->gate.MaySend(); ++partition->sent) {
    // Real ones forget after a day: no record is on its way for so long.
    if (partition->sent == 0 && partition->known_until && now_ >= *partition->known_until) {
      partition->known_until.reset();
    }
    partition->gate.OnSent(now_, kKnownFor);
  }
}

void ModelKafka::LandOne(const Content& content, bool late) {
  judge_->OnVisible(content.what, late);
  if (content.progress) {
    progress_.Append(*content.progress);
  }
}

void ModelKafka::Land(Partition* partition, std::size_t count) {
  for (Message& message : partition->messages) {
    if (message.landed) {
      continue;
    }
    if (count-- == 0) {
      return;
    }
    // Read now, as the broker would receive it: its bytes must have stayed.
    Require(judge_->Identify(message.record) == message.content.what,
            "the bytes of a record changed before its report");
    message.landed = true;
    const bool forgets = faults_.Has(Fault::kafka_forgets);
    partition->known_until = forgets ? now_ + kForgetsAfter : base::MonotonicTime::max();
    LandOne(message.content);
  }
}

void ModelKafka::ReportFirst(Partition* partition) {
  partition->gate.OnAcknowledged(now_, -1);
  if (partition->known_until) {  // long before the client stops to count on it
    partition->known_until = std::max(*partition->known_until, now_ + kForgetsAfter);
  }
  if (const Identity& what = partition->messages.front().content.what;
      what.kind == Identity::Kind::kEvent) {
    topics_[server_->events()[what.event].topic].not_writable_since.reset();
  }
  reports_.push_back(Report{std::move(partition->messages.front()), {}});
  partition->messages.pop_front();
  --partition->sent;
}

void ModelKafka::FailBatch(Partition* partition, std::size_t count, FailureKind kind) {
  partition->failed = true;
  // Landed although reported as failed: the answer was lost.
  const bool unclear = kind == FailureKind::kSessionEnded || kind == FailureKind::kOther;
  if (unclear && random_.Chance(500)) {
    Land(partition, random_.Between(1, count));
  }
  for (; count > 0; --count) {
    const Identity& what = partition->messages.front().content.what;
    if (MayBlame(what, kind)) {
      judge_->OnPoison(what);
    }
    if (kind != FailureKind::kSessionEnded && partition == &partitions_.back()) {
      ++progress_rejections_;
    }
    partition->gate.OnFailed();
    reports_.push_back(Report{std::move(partition->messages.front()),
                              Failure{kind, "rejected", kind == FailureKind::kTopicNotAuthorized}});
    partition->messages.pop_front();
    --partition->sent;
  }
  // What was sent behind it. A broker that knows the producer sees the gap.
  if (!partition->known_until) {
    Land(partition, partition->sent);
  }
}

void ModelKafka::AdvancePartition(Partition* partition) {
  if (partition->failed || now_ < partition->stuck_until) {
    return;
  }
  Send(partition);
  if (partition->sent == 0) {
    return;
  }
  if (partition->messages.front().landed) {
    for (std::uint64_t i = random_.Below(8); i > 0; --i) {
      if (partition->sent == 0 || !partition->messages.front().landed) {
        return;
      }
      ReportFirst(partition);
    }
    return;
  }
  if (dead_ || random_.Chance(300)) {
    return;
  }
  const std::size_t count =
      random_.Chance(300) ? partition->sent : random_.Between(1, partition->sent);
  if (!MayBeWritten(partition->messages.front().content.what)) {
    FailBatch(partition, count, FailureKind::kTopicNotAuthorized);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (IsRejected(partition->messages[i].content.what, /*by_client=*/false)) {
      FailBatch(partition, count, FailureKind::kRecordInvalid);  // the innocent ones, too
      return;
    }
  }
  // In company, what is rejected need not be what was retried.
  const auto again = [](const Message& message) {
    return message.content.what.kind == Identity::Kind::kAgain;
  };
  if (mode_ != Mode::kOneAtATime &&
      std::any_of(partition->messages.begin(),
                  partition->messages.begin() + static_cast<std::ptrdiff_t>(count), again) &&
      random_.Chance(100)) {
    FailBatch(partition, count, FailureKind::kRecordInvalid);
    return;
  }
  if (faults_.Has(Fault::kafka_failure) && random_.Chance(40)) {
    constexpr std::array kKinds = {FailureKind::kSessionEnded, FailureKind::kOther,
                                   FailureKind::kSessionEnded, FailureKind::kTopicUnknown,
                                   FailureKind::kOther,        FailureKind::kTopicNotAuthorized,
                                   FailureKind::kTopicInvalid};
    FailBatch(partition, count, kKinds[random_.Below(kKinds.size())]);
    return;
  }
  Land(partition, count);
}

void ModelKafka::Advance(base::Now now) {
  now_ = now.mono;
  BlameTopics();
  if (faults_.Has(Fault::kafka_outage) && random_.Chance(10)) {
    outage_until_ = now_ + milliseconds(random_.Between(10, 30'000));
  }
  if (faults_.Has(Fault::kafka_long_outage) && long_outage_until_ == base::MonotonicTime() &&
      random_.Chance(15)) {
    outage_until_ = long_outage_until_ = now_ + milliseconds(random_.Between(60'000, 600'000));
  }
  if (away()) {
    return;
  }
  if (faults_.Has(Fault::progress_rejected) && random_.Chance(10)) {
    progress_rejected_until_ = now_ + milliseconds(random_.Below(100'000));
  }
  LandLate();
  ChangeTopics();
  if (!open_) {
    return;
  }
  if (faults_.Has(Fault::kafka_session) && !dead_ && !closing_ && random_.Chance(15)) {
    dead_ = true;
    session_failure_ = Failure{FailureKind::kSessionEnded, "fenced"};
  }
  for (Partition& partition : partitions_) {
    AdvancePartition(&partition);
  }
}

// Whether an event's topic can be sent to. Nothing = it can.
std::optional<SubmitResult> ModelKafka::LookUp(const Identity& what) {
  if (!faults_.Has(Fault::topics_unknown) || what.kind != Identity::Kind::kEvent) {
    return std::nullopt;
  }
  Topic& topic = topics_[server_->events()[what.event].topic];
  if (topic.looked_up) {
    topic.reported_since.reset();
    return std::nullopt;
  }
  if (!topic.pending && !topic.rejection_reported) {
    topic.rejection_reported = true;
    topic.reported_since = topic.reported_since.value_or(topic.rejected_since.value_or(now_));
    if (now_ - *topic.reported_since >= plan_.options.unknown_topic_wait) {
      topic.blamed_until = now_ + pipeline::HeldTopics::kAnswerKept;
      BlameTopics();
    }
    return SubmitResult{SubmitResult::Outcome::kRejected,
                        Failure{FailureKind::kTopicUnknown, "no such topic"}};
  }
  if (!topic.pending) {
    topic.pending = true;
    topic.answer_at = now_ + milliseconds(random_.Below(50));
  }
  return SubmitResult{SubmitResult::Outcome::kTopicPending, {}};
}

void ModelKafka::AnswerLookUps(delivery::SinkListener* listener) {
  for (auto& [name, topic] : topics_) {
    if (!topic.pending || now_ < topic.answer_at || away() || closing_) {
      continue;
    }
    topic.pending = false;
    topic.looked_up = now_ >= topic.unknown_until;
    topic.rejection_reported = topic.looked_up;
    if (topic.looked_up) {
      topic.rejected_since.reset();
    } else if (!topic.rejected_since) {
      topic.rejected_since = now_;
    }
    listener->OnTopicAnswered(name, topic.looked_up);
  }
}

// A verdict on a topic is one on its events, also on those that come a little later.
void ModelKafka::BlameTopics() {
  for (const auto& [name, topic] : topics_) {
    if (now_ >= topic.blamed_until) {
      continue;
    }
    for (std::uint64_t i = 0; i < server_->events().size(); ++i) {
      if (server_->events()[i].topic == name) {
        judge_->OnPoison(Identity{Identity::Kind::kEvent, i, ""});
      }
    }
  }
}

// An answer counts against a record when it is about this one record, or, when it says nothing
// about it, after minutes.
bool ModelKafka::MayBlame(const Identity& what, FailureKind kind) {
  if (what.kind == Identity::Kind::kAgain) {  // nothing is lost: the operator is asked again
    return kind != FailureKind::kSessionEnded &&
           (mode_ == Mode::kOneAtATime || IsRejected(what, /*by_client=*/false));
  }
  if (kind == FailureKind::kTopicNotAuthorized) {
    return MayBlameTopic(what);
  }
  if (kind == FailureKind::kOther || kind == FailureKind::kTopicUnknown) {
    const auto [since, first] = unclear_since_.try_emplace(what.event, now_);
    return now_ - since->second >= pipeline::HeldTopics::kUnclearFor;
  }
  const bool alone = mode_ == Mode::kOneAtATime;
  return kind != FailureKind::kSessionEnded && (alone || IsRejected(what, /*by_client=*/false));
}

bool ModelKafka::MayBeWritten(const Identity& what) {
  return what.kind != Identity::Kind::kEvent ||
         now_ >= topics_[server_->events()[what.event].topic].not_writable_until;
}

// No record of it may be written: that counts for all of them, and for those that come a little
// later.
bool ModelKafka::MayBlameTopic(const Identity& what) {
  constexpr milliseconds kReportedWithin{10'000};
  if (what.kind != Identity::Kind::kEvent) {
    return false;
  }
  Topic& topic = topics_[server_->events()[what.event].topic];
  topic.not_writable_since = topic.not_writable_since.value_or(now_);
  if (now_ - *topic.not_writable_since < plan_.options.unknown_topic_wait) {
    return false;
  }
  topic.blamed_until = now_ + kReportedWithin + pipeline::HeldTopics::kAnswerKept;
  BlameTopics();
  return true;
}

void ModelKafka::ChangeTopics() {
  if (faults_.Has(Fault::topics_unknown) && random_.Chance(10)) {
    Topic& topic = topics_["t" + std::to_string(random_.Below(ModelPostgres::kTopics))];
    if (random_.Chance(300)) {
      topic.not_writable_until = now_ + milliseconds(random_.Between(10, 40'000));
    } else {
      topic.unknown_until = now_ + milliseconds(random_.Between(10, 20'000));
      topic.looked_up = false;
    }
  }
  if (faults_.Has(Fault::kafka_made_anew) && random_.Chance(30)) {
    // Of events: topics of walpost's own are not made anew under it. The client learns of it.
    const std::size_t first = random_.Below(ModelPostgres::kTopics) * kPartitions;
    for (std::size_t i = first; i < first + kPartitions; ++i) {
      if (partitions_[i].messages.empty()) {  // what was on its way fails as a whole
        partitions_[i].known_until.reset();
        partitions_[i].gate.OnMadeAnew();
      }
    }
  }
  if (faults_.Has(Fault::kafka_stuck) && !stuck() && random_.Chance(10)) {
    partitions_[random_.Below(partitions_.size())].stuck_until =
        now_ + milliseconds(random_.Between(10, 300'000));
  }
}

bool ModelKafka::stuck() const {
  return std::any_of(partitions_.begin(), partitions_.end(),
                     [this](const Partition& partition) { return now_ < partition.stuck_until; });
}

void ModelKafka::LandLate() {
  for (std::deque<Content>& late : late_) {
    if (late.empty() || !random_.Chance(100)) {
      continue;
    }
    if (random_.Chance(300)) {
      late.clear();  // lost; nothing behind it can land
      continue;
    }
    LandOne(late.front(), /*late=*/true);
    late_progress_ = late_progress_ || late.front().progress.has_value();
    late.pop_front();
  }
}

void ModelKafka::Poll(base::Now now, delivery::SinkListener* listener) {
  now_ = now.mono;
  const bool was_closing = closing_;
  while (!reports_.empty()) {
    const Report report = std::move(reports_.front());
    reports_.pop_front();
    --outstanding_;
    outstanding_bytes_ -= report.message.record.AccountedBytes();
    if (report.failure.kind == FailureKind::kNone) {
      Acknowledge(report.message, listener);
    } else {
      listener->OnFailed(report.message.sequence, report.failure);
    }
  }
  AnswerLookUps(listener);
  if (session_failure_ && !closing_) {
    const Failure failure = *std::exchange(session_failure_, std::nullopt);
    listener->OnSessionFailed(failure);
  }
  if (open_ && closing_ && was_closing && now_ >= close_at_ &&
      (!away() || now_ >= close_at_ + kPurgeAfter)) {
    EndClose(listener);
  }
}

void ModelKafka::Acknowledge(const Message& message, delivery::SinkListener* listener) {
  if (message.content.progress) {
    progress_rejections_ = 0;
  }
  judge_->OnReported(message.content.what);
  listener->OnDelivered(message.sequence, {});
}

void ModelKafka::EndClose(delivery::SinkListener* listener) {
  const bool late_landing = faults_.Has(Fault::kafka_late_landing);
  for (std::size_t i = 0; i < partitions_.size(); ++i) {
    Partition& partition = partitions_[i];
    bool acknowledged = !silent_;
    std::size_t sent = std::exchange(partition.sent, 0);
    for (bool lost = partition.failed; !partition.messages.empty();
         partition.messages.pop_front()) {
      lost = lost || sent == 0;
      sent -= sent == 0 ? 0 : 1;
      const Message& message = partition.messages.front();
      --outstanding_;
      outstanding_bytes_ -= message.record.AccountedBytes();
      // Once one answer is lost, so are those after it.
      acknowledged = acknowledged && message.landed && random_.Chance(900);
      if (acknowledged) {
        Acknowledge(message, listener);
        continue;
      }
      lost = lost || (!message.landed && !(late_landing && random_.Chance(700)));
      if (!message.landed && !lost) {
        late_[i].push_back(message.content);
      }
      if (!silent_) {
        listener->OnFailed(message.sequence, Failure{FailureKind::kSessionEnded, "purged"});
      }
    }
  }
  open_ = closing_ = false;
  listener->OnClosed();
}

void ModelKafka::Abandon() {
  for (std::size_t i = 0; i < partitions_.size(); ++i) {
    for (std::size_t j = 0; j < partitions_[i].sent; ++j) {
      const Message& message = partitions_[i].messages[j];
      if (!message.landed) {
        if (partitions_[i].failed || !random_.Chance(500)) {
          break;
        }
        late_[i].push_back(message.content);
      }
    }
    const base::MonotonicTime stuck_until = partitions_[i].stuck_until;
    partitions_[i] = Partition();
    partitions_[i].stuck_until = stuck_until;
  }
  reports_.clear();
  outstanding_ = outstanding_bytes_ = 0;
  progress_rejections_ = 0;
  open_ = closing_ = dead_ = false;
  session_failure_.reset();
}

}  // namespace walpost::simulation
