#include "pipeline/intake.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "outbox/unfit.h"

namespace walpost::pipeline {
namespace {

// Topics come from rows, so their number is bounded only by this: later ones share one label.
constexpr std::size_t kTopicLabelsMax = 1000;

}  // namespace

Intake::Intake(const PipelineOptions& options, delivery::Tracker* tracker, Counters* counters,
               Decider* decider, envelope::SchemaTable* schemas)
    : tracker_(tracker),
      counters_(counters),
      decider_(decider),
      schemas_(schemas),
      options_(options.outboxes),
      messages_options_(options.messages) {
  for (const OutboxOptions& outbox : options_) {
    counters_->received_by_table.emplace_back(
        absl::StrFormat("%s.%s", outbox.table.schema, outbox.table.table), 0);
  }
  for (const std::string& prefix : messages_options_.prefixes) {
    counters_->received_by_table.emplace_back(outbox::MessageLabel(prefix), 0);
  }
  counters_->delivered_by_topic.emplace_back("(other)", 0);
}

void Intake::Start(const base::SourceFacts& facts) {
  Leave();
  // The encoders hold the topics' and databases' names that records in flight refer to: made once,
  // kept.
  if (outboxes_.empty()) {
    for (const OutboxOptions& outbox : options_) {
      outboxes_.push_back(Outbox{outbox::TableMapper(outbox.table),
                                 envelope::Encoder(outbox.encoder, facts.database, schemas_,
                                                   static_cast<std::uint32_t>(outboxes_.size())),
                                 0, std::string()});
    }
  }
  if (!messages_ && !messages_options_.prefixes.empty()) {
    messages_.emplace(
        Messages{outbox::MessageMapper(messages_options_.topic),
                 envelope::Encoder(messages_options_.encoder, facts.database, schemas_,
                                   static_cast<std::uint32_t>(outboxes_.size()))});
  }
  facts_ = facts;
  connection_lsn_ = base::Lsn();
  relations_.Clear();
  outbox_by_oid_.clear();
  last_oid_ = 0;
  for (std::size_t i = 0; i < outboxes_.size(); ++i) {
    outboxes_[i].mapper.Unbind();
    outboxes_[i].oid = 0;
    for (const base::PublishedTable& table : facts_.tables) {
      if (table.schema == options_[i].table.schema && table.name == options_[i].table.table) {
        outboxes_[i].oid = table.oid;
      }
    }
  }
}

void Intake::Leave() {
  transaction_.open = false;
  tracker_->LeaveTransaction();
}

void Intake::Forget() {
  Leave();
  taken_commit_lsn_ = base::Lsn();
  taken_ordinal_ = -1;
  received_lsn_ = base::Lsn();
  complete_lsn_ = base::Lsn();
}

base::Lsn Intake::seen_lsn() const {
  // Of the last row taken, at least the beginning of its commit record.
  const base::Lsn taken(taken_ordinal_ < 0 ? 0 : taken_commit_lsn_.value() + 1);
  return std::max({received_lsn_, complete_lsn_, taken});
}

std::optional<Halt> Intake::TakePayload(std::string_view payload) {
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
    for (Outbox& outbox : outboxes_) {
      outbox.mapper.Learn(*type);
    }
    return std::nullopt;
  }
  return OnOther();
}

void Intake::TakePosition(base::Lsn wal_end) {
  // Inside a transaction a position says nothing about what commits later; as the tracker bounds it.
  if (transaction_.open) {
    complete_lsn_ = std::max(complete_lsn_, std::min(wal_end, transaction_.commit_lsn));
  } else {
    connection_lsn_ = std::max(connection_lsn_, wal_end);
    received_lsn_ = std::max(received_lsn_, wal_end);
    complete_lsn_ = std::max(complete_lsn_, wal_end);
  }
  tracker_->ObservePosition(wal_end);
}

std::optional<Halt> Intake::On(const pgoutput::Begin& begin) {
  if (transaction_.open) {
    return ProtocolError("Begin inside a transaction");
  }
  if (begin.commit_lsn < connection_lsn_) {
    return ProtocolError(absl::StrFormat("transaction with commit LSN %s arrived after position %s",
                                         begin.commit_lsn.ToString(), connection_lsn_.ToString()));
  }
  transaction_.open = true;
  transaction_.commit_lsn = begin.commit_lsn;
  transaction_.info = envelope::TransactionInfo{begin.xid, begin.commit_time};
  transaction_.timeline = facts_.TimelineOf(begin.commit_lsn);
  transaction_.next_ordinal = 0;
  transaction_.events = 0;
  tracker_->BeginTransaction(begin.commit_lsn);
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
  transaction_.open = false;
  ++counters_->transactions;
  if (transaction_.events > 0) {
    counters_->transaction_sizes.Add(transaction_.events);
  }
  connection_lsn_ = commit.end_lsn;
  received_lsn_ = std::max(received_lsn_, commit.end_lsn);
  complete_lsn_ = std::max(complete_lsn_, commit.end_lsn);
  tracker_->CommitTransaction(commit.end_lsn);
  return std::nullopt;
}

std::optional<Halt> Intake::On(const pgoutput::Relation& relation) {
  const std::uint32_t oid = relation.id.oid;
  Outbox* found = nullptr;
  for (std::size_t i = 0; i < outboxes_.size(); ++i) {
    const outbox::TableOptions& table = options_[i].table;
    const bool same_name = table.schema == relation.schema && table.table == relation.name;
    if (same_name && outboxes_[i].oid != oid) {
      return Halt{
          base::HaltReason::kTableReplaced,
          absl::StrFormat(
              "table %s.%s is OID %u in the stream but was OID %u when walpost connected: it was "
              "dropped and created again, so rows of the time between may be missing; see "
              "docs/runbook.md, table_replaced",
              relation.schema, relation.name, oid, outboxes_[i].oid)};
    }
    if (!same_name && outboxes_[i].oid == oid) {
      return Halt{
          base::HaltReason::kTableReplaced,
          absl::StrFormat("table %s.%s is called %s.%s in the stream from here on: give it this "
                          "name now and in "
                          "`outboxes[].table`, and restart; see docs/runbook.md, table_replaced",
                          table.schema, table.table, relation.schema, relation.name)};
    }
    if (same_name) {
      found = &outboxes_[i];
    }
  }
  if (found != nullptr) {
    // Reported with the first row it affects, so that everything before it is still delivered.
    found->bind_error = std::string(found->mapper.Bind(relation).message());
  }
  outbox_by_oid_[oid] = found;
  last_oid_ = 0;
  relations_.Put(relation);
  return std::nullopt;
}

std::optional<Halt> Intake::On(const pgoutput::Insert& insert) {
  if (!transaction_.open) {
    return ProtocolError("Insert outside a transaction");
  }
  const std::uint32_t ordinal = transaction_.next_ordinal++;
  if (insert.relation.oid != last_oid_) {
    const auto found = outbox_by_oid_.find(insert.relation.oid);
    if (found == outbox_by_oid_.end()) {
      return ProtocolError(absl::StrFormat("Insert into relation %u, which was never announced",
                                           insert.relation.oid));
    }
    last_oid_ = insert.relation.oid;
    last_outbox_ = found->second;
  }
  if (last_outbox_ == nullptr) {
    ++counters_->changes_ignored;
    return std::nullopt;
  }
  if (AlreadyTaken(ordinal)) {
    ++counters_->events_repeated;
    return std::nullopt;
  }
  return TakeRow(last_outbox_, insert, ordinal);
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
  const std::uint32_t ordinal = transaction_.next_ordinal++;
  const std::vector<std::string>& prefixes = messages_options_.prefixes;
  const auto prefix = std::find(prefixes.begin(), prefixes.end(), message.prefix);
  if (prefix == prefixes.end()) {
    ++counters_->changes_ignored;
    return std::nullopt;
  }
  if (AlreadyTaken(ordinal)) {
    ++counters_->events_repeated;
    return std::nullopt;
  }
  // Behind the tables.
  const auto table = outboxes_.size() + static_cast<std::size_t>(prefix - prefixes.begin());
  return TakeMessage(message, ordinal, static_cast<std::uint32_t>(table));
}

std::optional<Halt> Intake::OnOther() {
  if (!std::holds_alternative<pgoutput::Origin>(message_)) {
    ++counters_->changes_ignored;
  }
  return std::nullopt;
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
  if (std::optional<Halt> halt = CheckPlace()) {
    return halt;
  }
  const auto table = static_cast<std::uint32_t>(outbox - outboxes_.data());
  outbox::Event event;
  absl::Status status = outbox->mapper.Map(insert.values, &event);
  if (!status.ok() && status.code() != absl::StatusCode::kInvalidArgument) {
    return Halt{base::HaltReason::kProtocolError,
                absl::StrFormat("%s (%s)", std::string(status.message()), Place(ordinal))};
  }
  if (status.ok()) {
    status = Add(event, &outbox->encoder, ordinal, table);
  }
  if (status.ok()) {
    return std::nullopt;
  }
  UnfitEvent unfit;
  unfit.event = &event;
  for (const pgoutput::Value& value : insert.values) {
    unfit.bytes += value.bytes.size();
  }
  unfit.ordinal = ordinal;
  unfit.table = table;
  return Unfit(std::move(unfit), status);
}

std::optional<Halt> Intake::TakeMessage(const pgoutput::LogicalMessage& message,
                                        std::uint32_t ordinal, std::uint32_t table) {
  if (std::optional<Halt> halt = CheckPlace()) {
    return halt;
  }
  outbox::Event event;
  absl::Status status = messages_->mapper.Map(message.prefix, message.content, &event);
  if (status.ok()) {
    status = Add(event, &messages_->encoder, ordinal, table);
  }
  if (status.ok()) {
    return std::nullopt;
  }
  UnfitEvent unfit;
  unfit.event = &event;
  unfit.content = message.content;
  unfit.ordinal = ordinal;
  unfit.table = table;
  return Unfit(std::move(unfit),
               base::Annotate(status, absl::StrFormat("at LSN %s", message.lsn.ToString())));
}

// A new row or message before what is complete would be confirmed undelivered.
std::optional<Halt> Intake::CheckPlace() const {
  if (transaction_.commit_lsn >= complete_lsn_) {
    return std::nullopt;
  }
  return ProtocolError(
      absl::StrFormat("a row or message not seen before, in a transaction before position %s",
                      complete_lsn_.ToString()));
}

absl::Status Intake::Add(const outbox::Event& event, envelope::Encoder* encoder,
                         std::uint32_t ordinal, std::uint32_t table) {
  const envelope::Position position{facts_.system_identifier, transaction_.timeline,
                                    transaction_.commit_lsn, ordinal};
  envelope::Record record;
  RETURN_IF_ERROR(encoder->Encode(event, position, transaction_.info, tracker_->arena(), &record));
  tracker_->Add(record, ordinal, transaction_.info.commit_time, LabelOf(record.topic), table);
  Taken(ordinal);
  ++counters_->events_received;
  ++counters_->received_by_table[table].second;
  return absl::OkStatus();
}

// A row or message that becomes no record.
std::optional<Halt> Intake::Unfit(UnfitEvent unfit, const absl::Status& why) {
  unfit.detail = absl::StrFormat("%s (%s)", std::string(why.message()), Place(unfit.ordinal));
  unfit.commit_lsn = transaction_.commit_lsn;
  unfit.commit_time = transaction_.info.commit_time;
  unfit.reason =
      unfit.content ? std::string(envelope::kMessageMalformed) : outbox::UnfitReason(why);
  std::optional<Halt> halt = decider_->DecideUnfit(unfit);
  if (!halt) {
    Taken(unfit.ordinal);
  }
  return halt;
}

void Intake::Taken(std::uint32_t ordinal) {
  taken_commit_lsn_ = transaction_.commit_lsn;
  taken_ordinal_ = ordinal;
  ++transaction_.events;
}

bool Intake::AlreadyTaken(std::uint32_t ordinal) const {
  return transaction_.commit_lsn < taken_commit_lsn_ ||
         (transaction_.commit_lsn == taken_commit_lsn_ &&
          static_cast<std::int64_t>(ordinal) <= taken_ordinal_);
}

std::uint32_t Intake::LabelOf(std::string_view topic) {
  if (topic.data() == last_topic_) {
    return last_label_;
  }
  last_topic_ = topic.data();
  const auto [found, added] = label_by_topic_.try_emplace(topic.data(), 0);
  if (added) {
    found->second = MakeLabel(topic);
  }
  last_label_ = found->second;
  return last_label_;
}

std::uint32_t Intake::MakeLabel(std::string_view topic) {
  auto& topics = counters_->delivered_by_topic;
  for (std::size_t i = 1; i < topics.size(); ++i) {
    if (topics[i].first == topic) {
      return static_cast<std::uint32_t>(i);
    }
  }
  if (topics.size() > kTopicLabelsMax) {
    return 0;
  }
  topics.emplace_back(std::string(topic), 0);
  return static_cast<std::uint32_t>(topics.size() - 1);
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
