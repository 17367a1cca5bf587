#include "operations/dlq_resend.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace walpost::operations {
namespace {

using envelope::Letter;
using envelope::LetterAction;
using envelope::LetterKind;
using envelope::Record;
using kafka::StoredLetter;

constexpr std::string_view kRedelivery = "dlq-retry";

}  // namespace

absl::StatusOr<std::string> Resender::Retry(const StoredLetter& stored,
                                            const std::string& to_topic) {
  const Letter& letter = stored.letter;
  Record record;
  if (letter.reason == envelope::kMessageMalformed && !letter.left_out_bytes) {
    return absl::FailedPreconditionError(
        "it is the content of a logical message that became no event: `walpost dlq show --payload` "
        "prints it; have the application emit it as it should be, then discard it");
  }
  if (letter.left_out_bytes) {
    ASSIGN_OR_RETURN(record, rows_.Read(letter, stored.timestamp_ms, to_topic));
  } else {
    record.topic = letter.topic;
    record.key = stored.key;
    record.value = stored.value;
    record.headers = envelope::EventHeaders(stored.headers);
    record.partition = letter.partition;
    record.timestamp_ms = letter.timestamp_ms;
  }
  if (!to_topic.empty()) {
    record.topic = to_topic;
  }
  if (record.topic.empty()) {
    return absl::FailedPreconditionError(
        "which topic it was meant for is not known: say with --to-topic");
  }
  const std::vector<envelope::RecordHeader> headers =
      envelope::RedeliveryHeaders(record.headers, kRedelivery, letter.position);
  record.headers = headers;
  const std::string topic(record.topic);
  ASSIGN_OR_RETURN(const std::int64_t offset, writer_.Write(record, WallNow()));
  RETURN_IF_ERROR(base::Annotate(
      WriteDecision(stored, LetterAction::kDelivered),
      absl::StrFormat("it was delivered to topic '%s' at offset %d, and that could not be noted, "
                      "so a further retry sends it once more",
                      topic, offset)));
  return absl::StrFormat("delivered to topic '%s' at offset %d", topic, offset);
}

absl::StatusOr<std::string> Resender::Discard(const StoredLetter& stored) {
  RETURN_IF_ERROR(WriteDecision(stored, LetterAction::kDiscarded));
  return "discarded";
}

absl::Status Resender::WriteDecision(const StoredLetter& stored, LetterAction action) {
  Letter decision;
  decision.kind = LetterKind::kDecision;
  decision.action = action;
  decision.pipeline = options_.name;
  decision.topic = stored.letter.topic;
  decision.id = stored.letter.id;
  decision.position = stored.letter.position;
  Record event;
  event.key = stored.key;
  base::ChunkArena arena;
  return writer_.Write(envelope::EncodeLetter(decision, options_.topic, event, &arena), WallNow())
      .status();
}

}  // namespace walpost::operations
