// The part of Intake that finds the outbox of a row or message, and makes an event of it.
#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/text.h"
#include "envelope/control_records.h"
#include "outbox/column_value.h"
#include "outbox/event.h"
#include "pipeline/intake.h"

namespace walpost::pipeline {
namespace {

// A longer list begins anew. Then nothing counts as announced for the first time: that costs a
// look, and before 15 a halt where a partition was detached.
constexpr std::size_t kAnnouncedMax = 10'000;
// Before, a server goes on sending the rows of a partition as it did with the first one: those of a
// detached one as those of its root, those of an attached one under its own name.
constexpr int kMovesNoticedSince = 150000;

}  // namespace

std::optional<Halt> Intake::On(const pgoutput::Relation& relation) {
  const std::uint32_t oid = relation.id.oid;
  Outbox* found = nullptr;
  std::optional<Halt> other;  // it is not the table that it was
  const Outbox* of = nullptr;
  for (std::size_t i = 0; i < outboxes_.size(); ++i) {
    const outbox::TableOptions& table = options_[i].table;
    const bool same_name = table.schema == relation.schema && table.table == relation.name;
    const bool same_oid = outboxes_[i].oid == oid;
    if (same_name && !same_oid) {
      other = Halt{
          base::HaltReason::kTableReplaced,
          absl::StrFormat(
              "table %s.%s is OID %u in the stream but was OID %u when walpost connected: it was "
              "dropped and created again, so rows of the time between may be missing; see "
              "docs/runbook.md, table_replaced",
              relation.schema, relation.name, oid, outboxes_[i].oid)};
      of = &outboxes_[i];
    }
    if (!same_name && same_oid) {
      other = Halt{
          base::HaltReason::kTableReplaced,
          absl::StrFormat("table %s.%s is called %s.%s in the stream from here on: give it this "
                          "name now and in "
                          "`outboxes[].table`, and restart; see docs/runbook.md, table_replaced",
                          table.schema, table.table, relation.schema, relation.name)};
      of = &outboxes_[i];
    }
    if (same_oid) {
      found = &outboxes_[i];
    }
  }
  types_.GiveTo(found == nullptr ? nullptr : &found->mapper);
  replaced_.erase(oid);
  if (other && !IsDecided(*of)) {
    return other;
  }
  if (other) {  // it may not be announced again before a row that counts
    replaced_.emplace(oid, Replaced{of, *std::move(other)});
  }
  if (found != nullptr) {
    // Reported with the first row it affects, so that everything before it is still delivered.
    found->bind_error = std::string(found->mapper.Bind(relation).message());
    found->announced = relation;
  }
  // The first row after an edit brings this message, and so does the first one on each connection.
  // Edits from before the catalogs were read were compared then.
  if (transaction_.open && ConcernsUs(relation, found) && facts_.looked_lsn.valid() &&
      transaction_.commit_lsn >= facts_.looked_lsn) {
    must_look_ = true;
  }
  last_oid_ = 0;
  announced_last_ = oid;
  return std::nullopt;
}

// The open transaction's rows of this outbox were delivered or given up, so what they come from,
// and as what, does not matter any more.
bool Intake::IsDecided(const Outbox& outbox) const {
  return transaction_.open &&
         (transaction_.taken_through.ordinal == KnownTransactions::kWhole ||
          (transaction_.empty_for_us &&
           outbox.published.since.Covers(transaction_.commit_lsn, transaction_.commit_time)));
}

// A partition is announced right behind its root. Without it, it was detached, or is not published
// as its root.
bool Intake::ConcernsUs(const pgoutput::Relation& relation, const Outbox* outbox) {
  const std::uint32_t oid = relation.id.oid;
  if (outbox != nullptr) {
    announced_root_ = outbox;
    return true;
  }
  if (announced_.size() >= kAnnouncedMax) {
    announced_.clear();
    announced_forgotten_ = true;
  }
  const auto [announced, first] = announced_.emplace(oid, Announced{transaction_.commit_lsn});
  CHECK_LE(announced_.size(), kAnnouncedMax);
  announced->second.again = !first || announced_forgotten_;
  if (const auto partition = outbox_by_partition_.find(oid);
      partition != outbox_by_partition_.end()) {
    return partition->second != announced_root_;
  }
  return (first || facts_.server_version < kMovesNoticedSince) && MayBePartition(relation);
}

// A partition made since the catalogs were read: it has at least the columns of its outbox.
bool Intake::MayBePartition(const pgoutput::Relation& relation) const {
  const auto has = [&relation](const outbox::ColumnNames& names) {
    return std::any_of(relation.columns.begin(), relation.columns.end(),
                       [&names](const pgoutput::Column& column) {
                         return std::find(names.begin(), names.end(), column.name) != names.end();
                       });
  };
  return std::any_of(options_.begin(), options_.end(),
                     [&has](const envelope::OutboxOptions& outbox) {
                       return has(outbox.table.columns.id) && has(outbox.table.columns.payload);
                     });
}

void Intake::SelectOutbox(std::uint32_t oid) {
  last_outbox_ = nullptr;
  for (Outbox& outbox : outboxes_) {
    last_outbox_ = outbox.oid == oid ? &outbox : last_outbox_;
  }
}

// Of the first row of a relation, and of each that follows one of another.
std::optional<Halt> Intake::FindOutbox(std::uint32_t oid) {
  SelectOutbox(oid);
  if (last_outbox_ != nullptr && !last_outbox_->announced) {
    return ProtocolError(
        absl::StrFormat("Insert into relation %u, which was never announced", oid));
  }
  last_oid_ = oid;
  const auto partition = outbox_by_partition_.find(oid);
  if (partition == outbox_by_partition_.end() || PublishedByRoot(oid)) {
    return std::nullopt;
  }
  const outbox::TableOptions& table = partition->second->mapper.options();
  return Halt{base::HaltReason::kPublicationMissing,
              absl::StrFormat(
                  "rows of a partition of %s.%s (OID %u) arrive under its own name (%s): "
                  "either they were inserted before it was attached, and are no events, or "
                  "publish_via_partition_root was false then, and they are missing; %s"
                  "`walpost slot recreate --yes` leaves them behind and sends what the table has; "
                  "see docs/runbook.md, publication_missing",
                  table.schema, table.table, oid, Place(transaction_.next_ordinal),
                  facts_.server_version < kMovesNoticedSince
                      ? "PostgreSQL 13 and 14 send also later rows so until the connection ends, "
                        "so restart walpost first; "
                      : "")};
}

// The outbox that a row of `leaf` belongs to. `last_outbox_` is what it comes as.
const Intake::Outbox* Intake::OwnerOf(std::uint32_t leaf, std::uint32_t published_as) const {
  if (const auto partition = outbox_by_partition_.find(leaf);
      partition != outbox_by_partition_.end()) {
    return partition->second;
  }
  for (const Outbox& outbox : outboxes_) {
    if (outbox.oid == leaf) {
      return &outbox;
    }
  }
  if (last_outbox_ != nullptr) {
    return nullptr;
  }
  // The catalogs are newer than the row.
  const auto former = former_partitions_.find(leaf);
  if (former != former_partitions_.end() && transaction_.commit_lsn < former->second.gone_lsn) {
    return former->second.outbox;
  }
  // It comes as the root of an outbox, and is gone: whether it was a part of the outbox is not
  // known.
  const auto relative = outbox_by_relative_.find(published_as);
  return relative == outbox_by_relative_.end() || outbox_by_relative_.contains(leaf)
             ? nullptr
             : relative->second;
}

// Right before a table's first change the server announces the table that it comes as, where that
// has changed, and then the one that it is stored in.
std::optional<Halt> Intake::CheckLeaf(std::uint32_t leaf, std::uint32_t published_as) const {
  if (leaf == 0 || leaf == published_as) {
    return std::nullopt;
  }
  const Outbox* owner = OwnerOf(leaf, published_as);
  const auto root = outbox_by_partition_.find(published_as);
  if (owner == last_outbox_ || (root != outbox_by_partition_.end() && root->second == owner)) {
    return std::nullopt;  // or of a tree within the outbox, about which FindOutbox has decided
  }
  if (owner != nullptr) {
    const outbox::TableOptions& table = owner->mapper.options();
    return Halt{
        base::HaltReason::kPublicationMissing,
        absl::StrFormat(
            "a row of %s.%s arrives under the name of another table, OID %u (%s): the outbox was "
            "attached to it as a partition for a while, or a partition of that table was given to "
            "the outbox; `walpost slot recreate --yes` leaves it behind and sends what the table "
            "has; see docs/runbook.md, publication_missing",
            table.schema, table.table, published_as, Place(transaction_.next_ordinal))};
  }
  const auto announced = announced_.find(leaf);
  const bool first_here =
      !announced_forgotten_ &&
      (announced == announced_.end() || announced->second.in == transaction_.commit_lsn);
  if (facts_.server_version >= kMovesNoticedSince || first_here) {
    return std::nullopt;  // as it was when the row was written
  }
  const outbox::TableOptions& table = last_outbox_->mapper.options();
  return Halt{base::HaltReason::kPublicationMissing,
              absl::StrFormat(
                  "a row of the table with OID %u arrives as one of %s.%s (%s), whose partition it "
                  "was: PostgreSQL 13 and 14 send it so until the connection ends; restart "
                  "walpost, which then takes it for what it was; see docs/runbook.md, "
                  "publication_missing",
                  leaf, table.schema, table.table, Place(transaction_.next_ordinal))};
}

// Of an UPDATE or a DELETE, which is no event.
void Intake::RememberLeaf(std::uint32_t leaf, std::uint32_t published_as) {
  SelectOutbox(published_as);
  last_oid_ = 0;
  if (CheckLeaf(leaf, published_as)) {
    suspect_leaves_.emplace(published_as, leaf);
  }
}

// It is now, or the catalogs would not have passed, and since they are remembered nobody altered
// it. So what comes under a partition's own name was inserted while it was none, and is no event.
// Before 15 that is known of the first rows only.
bool Intake::PublishedByRoot(std::uint32_t partition) const {
  const auto announced = announced_.find(partition);
  if (facts_.server_version < kMovesNoticedSince &&
      (announced == announced_.end() || announced->second.again ||
       announced->second.in != transaction_.commit_lsn)) {
    return false;
  }
  const bool remembered = facts_.progress && facts_.progress->publication_xmin != 0;
  return remembered || (looked_first_lsn_.valid() && transaction_.commit_lsn >= looked_first_lsn_);
}

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
