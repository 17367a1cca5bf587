#include "operations/row_sender.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "envelope/letter.h"
#include "operations/dlq_text.h"

namespace walpost::operations {
namespace {

constexpr std::size_t kIdsMax = 20;

std::vector<envelope::FramingOptions> FramingsOf(const std::vector<DlqOutbox>& outboxes) {
  std::vector<envelope::FramingOptions> framings;
  for (const DlqOutbox& outbox : outboxes) {
    framings.push_back(outbox.encoder.framing);
  }
  return framings;
}

}  // namespace

RowSender::RowSender(const kafka::KafkaOptions& kafka, const registry::RegistryOptions& registry,
                     const std::vector<DlqOutbox>& outboxes, std::string_view kind,
                     std::chrono::milliseconds patience)
    : framer_(registry, FramingsOf(outboxes)), writer_(kafka, patience), kind_(kind) {}

absl::Status RowSender::Send(envelope::Record record, const envelope::SchemaTable& schemas) {
  ASSIGN_OR_RETURN(record, framer_.Frame(record, schemas));
  const std::vector<envelope::RecordHeader> headers =
      envelope::RedeliveryHeaders(record.headers, kind_, "");
  record.headers = headers;
  return writer_.Write(record);
}

absl::Status RowSender::SendRow(const ReadRow& row, const envelope::SchemaTable& schemas,
                                bool leave_out) {
  const absl::Status status = row.record.ok() ? Send(*row.record, schemas) : row.record.status();
  if (absl::IsInvalidArgument(status) && writer_.usable()) {
    if (!leave_out) {
      return base::Annotate(
          status,
          "event '" + row.id +
              "' (mend its row or delete it, or leave such rows out: --skip-undeliverable)");
    }
    ++left_out_;
    if (left_out_ids_.size() < kIdsMax) {
      left_out_ids_.push_back(row.id);
    }
    return absl::OkStatus();
  }
  sent_ += status.ok() ? 1 : 0;
  return base::Annotate(status, "event '" + row.id + "'");
}

std::string RowSender::TakeAccount() {
  std::string text = Count(std::exchange(sent_, 0), "event") + " sent";
  if (left_out_ > 0) {
    text += absl::StrFormat(", %d left out, since they can be no records: %s%s",
                            std::exchange(left_out_, 0), absl::StrJoin(left_out_ids_, " "),
                            left_out_ids_.size() == kIdsMax ? " ..." : "");
    left_out_ids_.clear();
  }
  return text;
}

}  // namespace walpost::operations
