#include "operations/sent_ids.h"

#include "base/status.h"
#include "kafka/topic_scan.h"

namespace walpost::operations {

absl::StatusOr<bool> SentIds::Contains(std::string_view topic, std::string_view id) {
  ASSIGN_OR_RETURN(const Ids* ids, Of(topic));
  return ids->contains(id);
}

absl::StatusOr<const SentIds::Ids*> SentIds::Of(std::string_view topic) {
  if (const auto found = topics_.find(topic); found != topics_.end()) {
    return &found->second;
  }
  Ids ids;
  const absl::Status scanned = kafka::ScanTopic(
      kafka_, std::string(topic), since_ms_,
      [&](const kafka::ScannedRecord& record) {
        if (record.Header("walpost-redelivery") == kind_) {
          ids.emplace(record.Header("id"));
        }
        return absl::OkStatus();
      },
      timeout_);
  if (!absl::IsNotFound(scanned)) {
    RETURN_IF_ERROR(scanned);
  }
  return &topics_.emplace(topic, std::move(ids)).first->second;
}

}  // namespace walpost::operations
