#include "operations/dlq_resend.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "outbox/message_mapper.h"

namespace walpost::operations {
namespace {

using envelope::Letter;
using envelope::LetterAction;
using envelope::LetterKind;
using envelope::Record;
using kafka::StoredLetter;

constexpr std::string_view kRedelivery = "dlq-retry";

std::vector<envelope::FramingOptions> FramingsOf(const DlqOptions& options) {
  std::vector<envelope::FramingOptions> framings;
  for (const DlqOutbox& outbox : options.outboxes) {
    framings.push_back(outbox.encoder.framing);
  }
  framings.push_back(options.messages.framing);
  return framings;
}

}  // namespace

Resender::Resender(const DlqOptions& options)
    : options_(options),
      writer_(options.kafka, options.write_timeout),
      rows_(options),
      framer_(options.registry, FramingsOf(options)) {}

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
  const bool stub = letter.left_out_bytes.has_value();
  if (record.value && (stub ? record.schema != 0 : !letter.schema.empty())) {
    ASSIGN_OR_RETURN(record, FramedLetter(record, letter));
  }
  const absl::StatusOr<std::int64_t> written = writer_.Write(record, WallNow());
  if (record.schema != 0) {
    arena_.Release(record.block);
  }
  ASSIGN_OR_RETURN(const std::int64_t offset, written);
  RETURN_IF_ERROR(base::Annotate(
      WriteDecision(stored, LetterAction::kDelivered),
      absl::StrFormat("it was delivered to topic '%s' at offset %d, and that could not be noted, "
                      "so a further retry sends it once more",
                      topic, offset)));
  return absl::StrFormat("delivered to topic '%s' at offset %d", topic, offset);
}

// As the stream would send it now: the bytes of the registry stand in no letter.
absl::StatusOr<Record> Resender::FramedLetter(const Record& record, const Letter& letter) {
  envelope::SchemaNeed need;
  if (letter.left_out_bytes) {
    need = rows_.schemas().entry(record.schema).need;
  } else {
    ASSIGN_OR_RETURN(need, envelope::ParseNeed(letter.schema));
    need.source = SourceOf(letter.table);
  }
  ASSIGN_OR_RETURN(const std::string frame, framer_.FrameFor(need));
  Record roomy = WithRoom(record, &arena_);
  roomy.schema = 1;
  return Framed(roomy, need.framing, frame);
}

std::uint32_t Resender::SourceOf(const std::string& table) const {
  std::uint32_t source = 0;
  for (const DlqOutbox& outbox : options_.outboxes) {
    if (outbox.table.schema + "." + outbox.table.table == table) {
      return source;
    }
    ++source;
  }
  return outbox::IsMessageLabel(table) ? source : envelope::SchemaNeed::kNoSource;
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
