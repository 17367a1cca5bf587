#include "operations/row_sender.h"

#include "base/status.h"
#include "envelope/letter.h"

namespace walpost::operations {
namespace {

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

}  // namespace walpost::operations
