#include "pipeline/intake.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "outbox/event.h"
#include "pipeline/history.h"

namespace walpost::pipeline {

Intake::Intake(const PipelineOptions& options, delivery::Tracker* tracker, Counters* counters,
               Undeliverables* undeliverables, envelope::SchemaTable* schemas)
    : tracker_(tracker),
      counters_(counters),
      undeliverables_(undeliverables),
      schemas_(schemas),
      options_(options.outboxes),
      messages_options_(options.messages),
      event_bytes_max_(options.event_bytes_max) {
  for (const envelope::OutboxOptions& outbox : options_) {
    counters_->received_by_table.emplace_back(
        absl::StrFormat("%s.%s", outbox.table.schema, outbox.table.table), 0);
  }
  for (const std::string& prefix : messages_options_.prefixes) {
    counters_->received_by_table.emplace_back(outbox::MessageLabel(prefix), 0);
  }
}

void Intake::Start(const base::SourceFacts& facts) {
  CHECK(!transaction_.open && !must_look_);
  // Made once, kept: what they have bound and remember outlasts a connection.
  if (outboxes_.empty()) {
    for (const envelope::OutboxOptions& outbox : options_) {
      outboxes_.push_back(Outbox{outbox::TableMapper(outbox.table),
                                 envelope::Encoder(outbox.encoder, facts.database, schemas_,
                                                   static_cast<std::uint32_t>(outboxes_.size())),
                                 0,
                                 std::nullopt,
                                 std::string(),
                                 {}});
    }
  }
  if (!messages_ && !messages_options_.prefixes.empty()) {
    messages_.emplace(
        Messages{outbox::MessageMapper(messages_options_.topic, messages_options_.topics),
                 envelope::Encoder(messages_options_.encoder, facts.database, schemas_,
                                   static_cast<std::uint32_t>(outboxes_.size()))});
  }
  if (facts.progress) {
    complete_lsn_ = std::max(complete_lsn_, facts.progress->end_lsn);
    known_.Passed(facts.progress->passed_at);
    if (!known_.newest().valid()) {
      known_.Remember(facts.progress->last_transactions, facts.progress->end_lsn);
    }
  }
  if (!facts.progress && !known_.newest().valid() && facts.start_lsn < complete_lsn_) {
    tracker_->ForgetPositions();
    received_lsn_ = complete_lsn_ = base::Lsn();
  }
  known_.Expect(facts.start_lsn);
  newest_xid_ = facts.next_xid;
  connection_lsn_ = base::Lsn();
  announced_.clear();
  announced_forgotten_ = false;
  announced_last_ = 0;
  suspect_leaves_.clear();
  replaced_.clear();
  looked_first_lsn_ = facts.publication_xmin == 0 ? base::Lsn() : facts.looked_lsn;
  types_.Clear();
  for (Outbox& outbox : outboxes_) {
    outbox.announced.reset();
    outbox.mapper.Unbind();
  }
  TakeFacts(facts);
}

void Intake::TakeFacts(const base::SourceFacts& facts) {
  facts_ = facts;
  last_oid_ = 0;
  const auto before = std::exchange(outbox_by_partition_, {});
  outbox_by_relative_.clear();
  for (std::size_t i = 0; i < outboxes_.size(); ++i) {
    outboxes_[i].oid = 0;
    outboxes_[i].mapper.SetTextTypes(facts_.text_types);
    for (const base::PublishedTable& table : facts_.tables) {
      if (table.schema == options_[i].table.schema && table.name == options_[i].table.table) {
        outboxes_[i].oid = table.oid;
        outboxes_[i].published = table;
        for (const std::uint32_t partition : table.partitions) {
          outbox_by_partition_[partition] = &outboxes_[i];
        }
        for (const std::uint32_t relative : table.relatives) {
          outbox_by_relative_[relative] = &outboxes_[i];
        }
      }
    }
  }
  // What committed before has been judged.
  absl::erase_if(former_partitions_,
                 [this](const auto& former) { return former.second.gone_lsn <= complete_lsn_; });
  for (const auto& [partition, outbox] : before) {
    if (!outbox_by_partition_.contains(partition)) {
      former_partitions_[partition] = {outbox, facts.looked_lsn};
    }
  }
}

std::optional<Halt> Intake::OnLooked(const base::SourceFacts& facts) {
  must_look_ = false;
  const bool waited = position_waits();
  TakeFacts(facts);
  for (Outbox& outbox : outboxes_) {
    if (outbox.announced) {
      outbox.bind_error = std::string(outbox.mapper.Bind(*outbox.announced).message());
    }
  }
  return waited ? TakePosition(reported_position_) : std::nullopt;
}

void Intake::Leave() {
  must_look_ = false;
  reported_position_ = base::Lsn();
  transaction_.open = false;
  tracker_->LeaveTransaction();
}

void Intake::Forget() {
  Leave();
  known_.Forget();
  received_lsn_ = base::Lsn();
  complete_lsn_ = base::Lsn();
}

base::Lsn Intake::seen_lsn() const {
  // Of the last row taken, at least the beginning of its commit record.
  const base::Lsn newest = known_.newest();
  const base::Lsn taken(newest.valid() ? newest.value() + 1 : 0);
  return std::max({received_lsn_, complete_lsn_, taken});
}

std::optional<Halt> Intake::TakePayload(std::string_view payload, base::Lsn start) {
  payload_ = payload;
  payload_lsn_ = start;
  if (const absl::Status status = decoder_.Decode(payload, &message_); !status.ok()) {
    return ProtocolError(std::string(status.message()));
  }
  if (const auto* insert = std::get_if<pgoutput::Insert>(&message_)) {
    return On(*insert);
  }
  if (const auto* begin = std::get_if<pgoutput::Begin>(&message_)) {
    return On(*begin);
  }
  if (const auto* commit = std::get_if<pgoutput::Commit>(&message_)) {
    return On(*commit);
  }
  if (const auto* relation = std::get_if<pgoutput::Relation>(&message_)) {
    return On(*relation);
  }
  if (const auto* logical = std::get_if<pgoutput::LogicalMessage>(&message_)) {
    return On(*logical);
  }
  if (const auto* type = std::get_if<pgoutput::Type>(&message_)) {
    types_.Add(*type);
    return std::nullopt;
  }
  return OnOther();
}

std::optional<Halt> Intake::TakePosition(base::Lsn reported) {
  reported_position_ = reported;
  const base::Lsn wal_end = position_waits() ? facts_.looked_lsn : reported;
  // Inside a transaction a position says nothing about what commits later; as the tracker bounds
  // it.
  const base::Lsn complete =
      transaction_.open ? std::min(wal_end, transaction_.commit_lsn) : wal_end;
  if (std::optional<Halt> halt = known_.OnPosition(complete)) {
    return halt;
  }
  if (!transaction_.open) {
    received_lsn_ = std::max(received_lsn_, wal_end);
  }
  OnSentUpTo(complete);
  Complete(complete);
  tracker_->ObservePosition(wal_end);
  return std::nullopt;
}

std::optional<Halt> Intake::On(const pgoutput::Begin& begin) {
  if (transaction_.open) {
    return ProtocolError("Begin inside a transaction");
  }
  if (begin.commit_lsn < connection_lsn_) {
    return ProtocolError(absl::StrFormat("transaction with commit LSN %s arrived after position %s",
                                         begin.commit_lsn.ToString(), connection_lsn_.ToString()));
  }
  if (std::optional<Halt> halt = known_.OnBegin({begin.commit_lsn, begin.xid, begin.commit_time})) {
    return halt;
  }
  transaction_.open = true;
  transaction_.taken_through = known_.taken_through();
  transaction_.known = transaction_.taken_through.ordinal != KnownTransactions::kNothing;
  // Before what has yet to come again, nothing of ours can stand.
  transaction_.empty_for_us =
      !transaction_.known && (begin.commit_lsn < complete_lsn_ || !known_.verified());
  transaction_.commit_lsn = begin.commit_lsn;
  transaction_.info = envelope::TransactionInfo{begin.xid, base::ClampToYears(begin.commit_time)};
  transaction_.commit_time = begin.commit_time;
  transaction_.has_origin = false;
  transaction_.full_xid = newest_xid_.OfTheTimeOf(begin.xid);
  newest_xid_ = std::max(newest_xid_, transaction_.full_xid);
  transaction_.timeline = facts_.TimelineOf(begin.commit_lsn);
  transaction_.next_ordinal = 0;
  announced_root_ = nullptr;
  announced_last_ = 0;
  transaction_.events = 0;
  undeliverables_->dead_letters()->Pass(PositionOf(0));
  tracker_->BeginTransaction(begin.commit_lsn);
  must_look_ = !facts_.KnowsTimelineUpTo(base::Lsn(begin.commit_lsn.value() + 1));
  return std::nullopt;
}

std::optional<Halt> Intake::On(const pgoutput::Commit& commit) {
  if (!transaction_.open) {
    return ProtocolError("Commit outside a transaction");
  }
  if (commit.commit_lsn != transaction_.commit_lsn || commit.end_lsn <= commit.commit_lsn) {
    return ProtocolError(
        absl::StrFormat("Commit at %s ending at %s does not belong to the Begin with %s",
                        commit.commit_lsn.ToString(), commit.end_lsn.ToString(),
                        transaction_.commit_lsn.ToString()));
  }
  const std::int64_t before = transaction_.taken_through.ordinal;
  if (before != KnownTransactions::kWhole && transaction_.next_ordinal <= before) {
    return OtherRows();
  }
  transaction_.open = false;
  ++counters_->transactions;
  if (transaction_.events > 0) {
    counters_->transaction_sizes.Add(transaction_.events);
  }
  known_.OnCommit(commit.commit_lsn, commit.end_lsn);
  OnSentUpTo(commit.end_lsn);
  received_lsn_ = std::max(received_lsn_, commit.end_lsn);
  Complete(commit.end_lsn);
  tracker_->CommitTransaction(commit.end_lsn);
  return std::nullopt;
}

void Intake::OnSentUpTo(base::Lsn position) {
  connection_lsn_ = std::max(connection_lsn_, position);
  undeliverables_->dead_letters()->Pass(
      {facts_.system_identifier, facts_.TimelineOf(connection_lsn_), connection_lsn_, 0});
}

// What this connection sends again says nothing of when it was passed.
void Intake::Complete(base::Lsn position) {
  if (position > complete_lsn_) {
    complete_lsn_ = position;
    known_.Passed(frame_at_);
  }
}

std::optional<Halt> Intake::On(const pgoutput::Insert& insert) {
  if (!transaction_.open) {
    return ProtocolError("Insert outside a transaction");
  }
  announced_root_ = nullptr;
  const std::uint32_t announced = std::exchange(announced_last_, 0);
  if (insert.relation.oid != last_oid_) {
    std::optional<Halt> halt = CheckSource(insert, announced);
    if (halt && transaction_.taken_through.ordinal != KnownTransactions::kWhole) {
      return halt;
    }
    last_oid_ = halt ? 0 : last_oid_;  // the next row of it may count
  }
  if (last_outbox_ == nullptr || IsOlderThanAdoption(last_outbox_->published)) {
    ++counters_->changes_ignored;
    return std::nullopt;
  }
  const std::uint32_t ordinal = transaction_.next_ordinal++;
  if (ordinal <= transaction_.taken_through.ordinal) {
    return TakeRepeated(ordinal);
  }
  if (transaction_.empty_for_us) {
    return CheckUnknown(last_outbox_->published.since, ordinal);
  }
  return TakeRow(last_outbox_, insert, ordinal);
}

// Its transaction may have been open when the table was adopted. Where nothing of ours can be, the
// time decides: a server that was set back gives such ids again, and its rows come later than what
// was read.
bool Intake::IsOlderThanAdoption(const base::PublishedTable& table) const {
  if (!transaction_.empty_for_us) {
    return !table.HoldsEvents(transaction_.full_xid, transaction_.timeline, transaction_.commit_lsn,
                              transaction_.commit_time);
  }
  return table.IsOlder(transaction_.full_xid, transaction_.timeline) &&
         base::Since{complete_lsn_, known_.passed_at()}.Covers(transaction_.commit_lsn,
                                                               transaction_.commit_time);
}

// Of the first row of a relation, and of each that follows one of another.
std::optional<Halt> Intake::CheckSource(const pgoutput::Insert& insert, std::uint32_t announced) {
  const std::uint32_t oid = insert.relation.oid;
  if (std::optional<Halt> halt = FindOutbox(oid)) {
    return halt;
  }
  if (const auto other = replaced_.find(oid); other != replaced_.end()) {
    last_oid_ = 0;
    return IsDecided(*other->second.outbox) ? std::nullopt : std::optional(other->second.halt);
  }
  const auto suspect = suspect_leaves_.find(oid);
  const std::uint32_t leaf =
      announced != 0 || suspect == suspect_leaves_.end() ? announced : suspect->second;
  return CheckLeaf(leaf, oid);
}

// What was taken before, again.
std::optional<Halt> Intake::TakeRepeated(std::uint32_t ordinal) {
  const KnownTransactions::Taken& last = transaction_.taken_through;
  if (ordinal == last.ordinal && payload_lsn_ != last.lsn) {
    return OtherRows();
  }
  ++counters_->events_repeated;
  return std::nullopt;
}

std::optional<Halt> Intake::On(const pgoutput::LogicalMessage& message) {
  // Others are sent at once, also when their transaction is rolled back: never events.
  if (!message.transactional) {
    ++counters_->changes_ignored;
    return std::nullopt;
  }
  if (!transaction_.open) {
    return ProtocolError("transactional Message outside a transaction");
  }
  const std::vector<std::string>& prefixes = messages_options_.prefixes;
  const auto prefix = std::find(prefixes.begin(), prefixes.end(), message.prefix);
  if (prefix == prefixes.end()) {
    ++counters_->changes_ignored;
    return std::nullopt;
  }
  const std::uint32_t ordinal = transaction_.next_ordinal++;
  if (ordinal <= transaction_.taken_through.ordinal) {
    return TakeRepeated(ordinal);
  }
  if (transaction_.empty_for_us) {
    const auto since = facts_.prefixes_since.find(*prefix);
    return CheckUnknown(since == facts_.prefixes_since.end() ? base::Since() : since->second,
                        ordinal);
  }
  // Behind the tables.
  const auto table = outboxes_.size() + static_cast<std::size_t>(prefix - prefixes.begin());
  return TakeMessage(message, ordinal, static_cast<std::uint32_t>(table));
}

std::optional<Halt> Intake::OnOther() {
  if (transaction_.open && std::holds_alternative<pgoutput::StreamAbort>(message_)) {
    return ProtocolError("Stream Abort inside a transaction");
  }
  announced_root_ = nullptr;
  const std::uint32_t leaf = std::exchange(announced_last_, 0);
  if (std::holds_alternative<pgoutput::Origin>(message_)) {
    transaction_.has_origin = true;
  } else {
    ++counters_->changes_ignored;
  }
  // A table is announced before its first change alone, which need not be an INSERT.
  if (const auto* update = std::get_if<pgoutput::Update>(&message_)) {
    RememberLeaf(leaf, update->relation.oid);
  } else if (const auto* deletion = std::get_if<pgoutput::Delete>(&message_)) {
    RememberLeaf(leaf, deletion->relation.oid);
  }
  return std::nullopt;
}

// The ordinals of before name other events now.
Halt Intake::OtherRows() const {
  return Halt{base::HaltReason::kPublicationMissing,
              absl::StrFormat(
                  "the transaction was sent a second time with other events than before (%s): the "
                  "publication was edited while it was open; `walpost slot advance --yes --to %s` "
                  "goes on behind it, and then `walpost replay --missing --in-place` sends what is "
                  "missing of it; see docs/runbook.md, publication_missing",
                  Place(transaction_.next_ordinal), transaction_.commit_lsn.ToString())};
}

Halt Intake::ProtocolError(const std::string& what) const {
  return Halt{base::HaltReason::kProtocolError,
              absl::StrFormat("%s (%s); nothing was confirmed past it; this is a bug of walpost or "
                              "of something between it "
                              "and the server: please report it with this line",
                              what, Place(transaction_.next_ordinal))};
}

std::string Intake::Place(std::uint32_t ordinal) const {
  return absl::StrFormat("database %s, transaction %u, commit LSN %s, ordinal %u", facts_.database,
                         transaction_.info.xid.value, transaction_.commit_lsn.ToString(), ordinal);
}

}  // namespace walpost::pipeline
