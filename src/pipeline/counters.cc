#include "pipeline/counters.h"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "envelope/record.h"
#include "outbox/topic_rules.h"

namespace walpost::pipeline {

using base::StreamEnd;

std::string_view ReconnectReasonName(ReconnectReason reason) {
  switch (reason) {
    case ReconnectReason::kConnectFailed:
      return "connect_failed";
    case ReconnectReason::kLoginRejected:
      return "login_rejected";
    case ReconnectReason::kSlotInUse:
      return "slot_in_use";
    case ReconnectReason::kLost:
      return "lost";
    case ReconnectReason::kServerError:
      return "server_error";
    case ReconnectReason::kServerStopping:
      return "server_stopping";
    case ReconnectReason::kTakenOver:
      return "taken_over";
    case ReconnectReason::kPlanned:
      return "planned";
    case ReconnectReason::kPromoted:
      return "promoted";
  }
  return "unknown";
}

ReconnectReason ReconnectReasonOf(const StreamEnd& end, bool connecting) {
  switch (end.kind) {
    case StreamEnd::Kind::kSlotInUse:
      return ReconnectReason::kSlotInUse;
    case StreamEnd::Kind::kOperator:
      return ReconnectReason::kLoginRejected;
    case StreamEnd::Kind::kFinished:
      return ReconnectReason::kServerStopping;
    case StreamEnd::Kind::kServerError:
      return ReconnectReason::kServerError;
    case StreamEnd::Kind::kLost:
      break;
  }
  return connecting ? ReconnectReason::kConnectFailed : ReconnectReason::kLost;
}

void RecentEvents::Note(const delivery::Tracker::Entry& entry, delivery::PartitionOffset where,
                        base::WallTime now) {
  room_ -= room_ > 0 ? 1 : 0;
  base::DeliveredEvent& event = ring_[noted_++ % kKept];
  event.id = envelope::HeaderOf(entry.record, "id").substr(0, kTextMax);
  event.type = envelope::HeaderOf(entry.record, "type").substr(0, kTextMax);
  event.topic = entry.record.topic;
  event.partition = where.partition;
  event.offset = where.offset;
  event.commit_lsn = entry.commit_lsn;
  event.committed_at = entry.commit_time;
  event.delivered_at = now;
}

std::vector<base::DeliveredEvent> RecentEvents::NewestFirst() const {
  std::vector<base::DeliveredEvent> events;
  for (std::size_t back = 1; back <= std::min(noted_, kKept); ++back) {
    events.push_back(ring_[(noted_ - back) % kKept]);
  }
  return events;
}

void FailedEvents::Add(std::string_view topic, std::string_view reason) {
  // Anything else is a name that a row made up.
  std::string_view shown = outbox::IsLegalTopic(topic) ? topic : "(none)";
  const auto find = [&] {
    return std::find_if(rows.begin(), rows.end(),
                        [&](const Row& row) { return row.topic == shown && row.reason == reason; });
  };
  auto found = find();
  if (found == rows.end() && rows.size() >= kRowsMax) {
    shown = "(other)";
    found = find();
  }
  if (found == rows.end()) {
    rows.push_back({std::string(shown), std::string(reason), 0});
    found = rows.end() - 1;
  }
  ++found->count;
}

void DeliveredEvents::Add(std::string_view topic) { ++rows_[RowOf(topic)].second; }

std::size_t DeliveredEvents::RowOf(std::string_view topic) {
  if (topic == rows_[last_row_].first) {
    return last_row_;
  }
  auto found = row_by_topic_.find(absl::string_view(topic.data(), topic.size()));
  if (found == row_by_topic_.end()) {
    if (rows_.size() > kTopicsMax) {
      return 0;
    }
    found = row_by_topic_.emplace(topic, rows_.size()).first;
    rows_.emplace_back(std::string(topic), 0);
  }
  last_row_ = found->second;
  return last_row_;
}

namespace {

template <typename Duration>
double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void StageTimes::OnTaken(base::WallTime commit_time, base::Now now) {
  taken_at_ = now.mono;
  counters_->stages.source.Add(Seconds(now.wall - commit_time));
}

void StageTimes::OnSubmitted(delivery::Sequence cursor, delivery::Sequence end, base::Now now) {
  if (cursor <= submitted_below_) {
    return;  // nothing, or again after a failure: the first time counts
  }
  submitted_below_ = cursor;
  if (!batches_.empty() && batches_.back().submitted_at == now.mono) {
    batches_.back().end = cursor;
  } else {
    batches_.push_back({cursor, now.mono});
    if (taken_at_) {
      counters_->stages.queue.Add(Seconds(now.mono - *taken_at_));
    }
  }
  if (cursor == end) {
    taken_at_.reset();
  }
}

void StageTimes::OnSettled(delivery::Sequence oldest, base::Now now) {
  while (!batches_.empty() && batches_.front().end <= oldest) {
    counters_->stages.produce.Add(Seconds(now.mono - batches_.front().submitted_at));
    batches_.pop_front();
  }
}

void StageTimes::Forget() {
  taken_at_.reset();
  batches_.clear();
}

void Counters::OnDelivered(const delivery::Tracker& tracker, const delivery::Tracker::Entry& entry,
                           delivery::PartitionOffset where, base::WallTime now) {
  ++events_delivered;
  delivered_by_topic.Add(entry.record.topic);
  bytes_delivered += entry.bytes;
  delivery_delay.Add(std::chrono::duration<double>(now - entry.commit_time).count());
  if (recent.Wants(tracker)) {
    recent.Note(entry, where, now);
  }
  last_delivered_at = now;
}

}  // namespace walpost::pipeline
