// The part of Intake that makes events of rows and messages.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "base/status.h"
#include "envelope/dead_letter.h"
#include "outbox/column_value.h"
#include "outbox/undeliverable.h"
#include "pipeline/intake.h"

namespace walpost::pipeline {

std::optional<Halt> Intake::TakeRow(Outbox* outbox, const pgoutput::Insert& insert,
                                    std::uint32_t ordinal) {
  if (!outbox->bind_error.empty()) {
    return Halt{
        base::HaltReason::kSchemaMismatch,
        absl::StrFormat("%s (first row affected: %s); rows already written keep the columns "
                        "they were written with: see docs/runbook.md, schema_mismatch",
                        outbox->bind_error, Place(ordinal))};
  }
  const auto table = static_cast<std::uint32_t>(outbox - outboxes_.data());
  const absl::Status size = CheckSize(BytesOf(insert, *outbox->announced));
  outbox::Event event;
  absl::Status status =
      outbox->mapper.Map(size.ok() ? insert.values : WithoutLarge(insert.values), &event);
  if (!status.ok() && status.code() != absl::StatusCode::kInvalidArgument) {
    return Halt{base::HaltReason::kProtocolError,
                absl::StrFormat("%s (%s)", std::string(status.message()), Place(ordinal))};
  }
  if (TakeRepeat(event, ordinal, table)) {
    return std::nullopt;
  }
  if (status.ok() && size.ok()) {
    status = Add(event, &outbox->encoder, ordinal, table);
  }
  if (status.ok() && size.ok()) {
    return std::nullopt;
  }
  UndeliverableEvent undeliverable;
  undeliverable.event = &event;
  undeliverable.row = outbox::StreamedRow{&outbox->mapper, &*outbox->announced, payload_};
  for (const pgoutput::Value& value : insert.values) {
    undeliverable.bytes += value.bytes.size();
  }
  undeliverable.ordinal = ordinal;
  undeliverable.table = table;
  return Undeliverable(std::move(undeliverable), size.ok() ? status : size);
}

std::optional<Halt> Intake::TakeMessage(const pgoutput::LogicalMessage& message,
                                        std::uint32_t ordinal, std::uint32_t table) {
  outbox::Event event;
  const absl::Status size = CheckSize(payload_.size());
  absl::Status status = size;
  status.Update(messages_->mapper.Map(message.prefix, message.content, &event));
  if (TakeRepeat(event, ordinal, table)) {
    return std::nullopt;
  }
  if (status.ok()) {
    status = Add(event, &messages_->encoder, ordinal, table);
  }
  if (status.ok()) {
    return std::nullopt;
  }
  UndeliverableEvent undeliverable;
  undeliverable.event = &event;
  if (size.ok()) {
    undeliverable.content = message.content;
  }
  undeliverable.bytes = message.content.size();
  undeliverable.ordinal = ordinal;
  undeliverable.table = table;
  return Undeliverable(
      std::move(undeliverable),
      outbox::UndeliverableError(
          outbox::ReasonCodeOf(status),
          absl::StrFormat("at LSN %s: %s", message.lsn.ToString(), std::string(status.message()))));
}

// A row or message where there was none of ours. It would be confirmed undelivered.
std::optional<Halt> Intake::CheckUnknown(const base::Since& since, std::uint32_t ordinal) {
  if (since.Covers(transaction_.commit_lsn, transaction_.commit_time)) {
    ++counters_->changes_ignored;
    return std::nullopt;
  }
  return OtherHistory(absl::StrFormat(
      "everything up to %s was read from this server before, but now it sends an event there that "
      "it did not have (%s)",
      complete_lsn_.ToString(), Place(ordinal)));
}

// It comes again, and there is a row of it.
bool Intake::TakeRepeat(const outbox::Event& event, std::uint32_t ordinal, std::uint32_t table) {
  envelope::Record record;
  switch (undeliverables_->dead_letters()->OnEvent(PositionOf(ordinal), event.id, &record)) {
    case Repeat::kNone:
      return false;
    case Repeat::kSettled:
      ++counters_->events_repeated;
      break;
    case Repeat::kSent:
      AddToTracker(WithRoom(record, tracker_->arena()), ordinal, table);
      break;
  }
  Taken(ordinal);
  return true;
}

envelope::Position Intake::PositionOf(std::uint32_t ordinal) const {
  return {facts_.system_identifier, transaction_.timeline, transaction_.commit_lsn, ordinal};
}

absl::Status Intake::Add(const outbox::Event& event, envelope::Encoder* encoder,
                         std::uint32_t ordinal, std::uint32_t table) {
  envelope::Record record;
  RETURN_IF_ERROR(
      encoder->Encode(event, PositionOf(ordinal), transaction_.info, tracker_->arena(), &record));
  AddToTracker(record, ordinal, table);
  Taken(ordinal);
  return absl::OkStatus();
}

void Intake::AddToTracker(const envelope::Record& record, std::uint32_t ordinal,
                          std::uint32_t table) {
  tracker_->Add(record, ordinal, transaction_.info.commit_time, table);
  ++counters_->events_received;
  ++counters_->received_by_table[table].second;
}

// A bytea that comes as text, in hex form, counts as in its binary form.
std::size_t Intake::BytesOf(const pgoutput::Insert& insert,
                            const pgoutput::Relation& announced) const {
  std::size_t bytes = payload_.size();
  if (bytes <= event_bytes_max_) {
    return bytes;  // as almost every event: nothing more is asked of it
  }
  for (std::size_t i = 0; i < std::min(insert.values.size(), announced.columns.size()); ++i) {
    const pgoutput::Value& value = insert.values[i];
    const std::uint32_t type = announced.columns[i].type_oid;
    const bool may_be_bytea =  // or a domain over it
        type == outbox::type_oid::kBytea || type >= outbox::type_oid::kFirstUserType;
    if (value.kind == pgoutput::Value::Kind::kText && may_be_bytea &&
        value.bytes.starts_with("\\x")) {
      bytes -= value.bytes.size() / 2;
    }
  }
  return bytes;
}

absl::Status Intake::CheckSize(std::size_t bytes) const {
  if (bytes <= event_bytes_max_) {
    return absl::OkStatus();
  }
  return outbox::UndeliverableError(
      outbox::kEventTooLarge,
      absl::StrFormat("it has %u bytes, more than source.event_bytes_max, %u: correct what writes "
                      "it, or raise the limit",
                      bytes, event_bytes_max_));
}

// Enough to say which event it is: no work is done on what is not sent.
std::span<const pgoutput::Value> Intake::WithoutLarge(std::span<const pgoutput::Value> values) {
  constexpr std::size_t kKeptBytesMax = 64 * 1024;
  small_.assign(values.begin(), values.end());
  for (pgoutput::Value& value : small_) {
    if (value.bytes.size() > kKeptBytesMax) {
      value = pgoutput::Value();
    }
  }
  return small_;
}

// A row or message that becomes no record.
std::optional<Halt> Intake::Undeliverable(UndeliverableEvent undeliverable,
                                          const absl::Status& why) {
  undeliverable.detail =
      absl::StrFormat("%s (%s)", base::Cut(std::string(why.message()), base::kMessageBytesMax),
                      Place(undeliverable.ordinal));
  undeliverable.commit_lsn = transaction_.commit_lsn;
  undeliverable.commit_time = transaction_.info.commit_time;
  undeliverable.reason =
      undeliverable.content ? std::string(envelope::kMessageMalformed) : outbox::ReasonCodeOf(why);
  std::optional<Halt> halt = undeliverables_->DecideUndeliverable(undeliverable);
  if (!halt) {
    Taken(undeliverable.ordinal);
  }
  return halt;
}

void Intake::Taken(std::uint32_t ordinal) {
  ++transaction_.events;
  const KnownTransactions::Taken event{ordinal, payload_lsn_};
  if (transaction_.known) {
    known_.TakenNext(event);
    return;
  }
  transaction_.known = true;
  known_.TakenFirst({transaction_.commit_lsn, transaction_.info.xid, transaction_.commit_time},
                    transaction_.has_origin, event);
}

}  // namespace walpost::pipeline
