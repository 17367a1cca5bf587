#include "model_postgres.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "outbox/column_value.h"
#include "progress_log.h"
#include "support/pgoutput_bytes.h"

namespace walpost::simulation {

using pgoutput::RelationId;

namespace {

constexpr std::uint32_t kFirstOid = 16'400;
constexpr std::uint64_t kSystemIdentifier = 0xC0FFEE;
constexpr std::uint64_t kFirstLsn = 0x1000;

// The columns of a version, each named by a letter: id, key, topic, type, payload, extra ones.
std::string ColumnsOf(std::uint32_t version) {
  std::string columns = version % 2 == 0 ? "iktyp" : "iktypx";
  std::rotate(columns.begin(), columns.begin() + version % 5, columns.end());
  return columns;
}

}  // namespace

ModelPostgres::ModelPostgres(const Plan& plan)
    : plan_(plan),
      random_(plan.seed, 1),
      undeliverable_(plan.seed, 7),
      foreign_(plan.seed, 10),
      adopting_(plan.seed, 17),
      adoption_(plan.adopts ? Adoption::kNone : Adoption::kDone),
      configured_(!plan.adopts),
      lane_sizes_(kTopics * plan.keys),
      versions_(plan.tables + 1),
      edits_(plan.tables + 1),
      edited_(plan.tables + 1),
      wal_end_(kFirstLsn),
      confirmed_flush_(kFirstLsn),
      persisted_(kFirstLsn),
      consistent_point_(kFirstLsn),
      system_identifier_(kSystemIdentifier) {
  for (std::uint32_t i = 0; i <= plan.tables; ++i) {
    oids_.push_back(kFirstOid + i);
    memberships_.push_back(kFirstOid + 50 + i);
  }
}

void ModelPostgres::WriteTransaction(base::WallTime now) {
  if (held_below_ != 0 && next_xid_ + 2 >= held_below_) {
    return;
  }
  Transaction transaction;
  ++written_;
  transaction.xid = NextXid();
  transaction.commit_time = now;
  transaction.origin = random_.Chance(50);
  // Rows come before their commit in the log; with writers side by side a commit may follow the
  // last one's directly.
  transaction.commit_lsn =
      base::Lsn(wal_end_.value() + (random_.Chance(400) ? 0 : random_.Below(500)));
  while (!used_lsns_.empty() && used_lsns_.front() < transaction.commit_lsn) {
    used_lsns_.erase(used_lsns_.begin());
  }
  if (!used_lsns_.empty() && random_.Chance(600)) {
    transaction.commit_lsn = used_lsns_.front();
  }
  transaction.end_lsn = base::Lsn(transaction.commit_lsn.value() + random_.Between(1, 80));
  wal_end_ = transaction.end_lsn;
  std::uint64_t rows = random_.Chance(150) ? 0 : random_.Between(1, 5);
  if (plan_.faults.Has(Fault::large_transactions) && random_.Chance(20)) {
    rows = random_.Chance(30) ? random_.Between(1'000, 5'000) : random_.Between(50, 200);
  }
  std::uint32_t ordinal = 0;
  std::uint32_t version_changes = 0;
  for (std::uint64_t i = 0; i < rows; ++i) {
    if (plan_.faults.Has(Fault::savepoints) && random_.Chance(150)) {
      SkipRow();  // rolled back to a savepoint
      continue;
    }
    if (plan_.faults.Has(Fault::ddl) && version_changes < 3 && random_.Chance(100)) {
      ++versions_[random_.Below(versions_.size())];
      ++version_changes;
    }
    const auto table = static_cast<std::uint32_t>(random_.Below(plan_.tables));
    const std::uint64_t kind = random_.Below(100);
    if (plan_.faults.Has(Fault::messages) && kind < 30) {
      constexpr Operation::Kind kKinds[] = {Operation::Kind::kOtherRow, Operation::Kind::kUpdate,
                                            Operation::Kind::kDelete, Operation::Kind::kTruncate,
                                            Operation::Kind::kMessage};
      Operation operation;
      operation.kind = kKinds[kind % 5];
      operation.table = operation.kind == Operation::Kind::kOtherRow
                            ? static_cast<std::uint32_t>(plan_.tables)
                            : table;
      operation.version = versions_[operation.table];
      operation.oid = oids_[operation.table];
      operation.edits = edits_[operation.table];
      if (IsOut(operation.table) && operation.kind != Operation::Kind::kMessage) {
        continue;
      }
      transaction.operations.push_back(operation);
      continue;
    }
    if (IsOut(table)) {
      SkipRow();  // in the table, and in no stream
      continue;
    }
    if (plan_.adopts && table + 1 == plan_.tables) {
      if (adoption_ == Adoption::kPending) {
        continue;
      }
      if (adoption_ == Adoption::kNone || transaction.xid < adopted_from_) {
        transaction.operations.push_back(Operation{
            Operation::Kind::kOtherRow, table, versions_[table], oids_[table], edits_[table], 0});
        continue;
      }
    }
    if (edit_unreported_ && edited_[table]) {
      edit_reported_at_ = transaction.commit_lsn;
      edit_unreported_ = false;
    }
    transaction.operations.push_back(Operation{Operation::Kind::kRow, table, versions_[table],
                                               oids_[table], edits_[table], events_.size()});
    WriteRow(&transaction, &ordinal);
  }
  if (plan_.faults.Has(Fault::savepoints) && random_.Chance(100)) {
    SkipRow();  // a whole transaction beside it
  }
  transactions_.push_back(std::move(transaction));
}

std::uint32_t ModelPostgres::NextXid() {
  if (!plan_.adopts) {
    return next_xid_++;
  }
  if (adopting_.Chance(100)) {
    open_xids_.push_back(next_xid_++);
  }
  if (open_xids_.empty() || adopting_.Chance(700)) {
    return next_xid_++;
  }
  const std::uint32_t xid = open_xids_.front();
  open_xids_.erase(open_xids_.begin());
  return xid;
}

base::Adoption ModelPostgres::BeginAdoption(const base::Progress& remembered, base::WallTime now) {
  adoption_ = Adoption::kPending;
  adopted_from_ = adopted_at_xid_ = next_xid_;
  if (open_xids_.empty()) {
    return {{wal_end_, now, timeline_}, {}};
  }
  return {{remembered.end_lsn, now, remembered.timeline},
          {base::FullXid{next_xid_}, timeline_, wal_end_}};
}

void ModelPostgres::AdoptByDecision(const base::Since& since) {
  adoption_ = Adoption::kDone;
  adopted_from_ = 0;
  for (Transaction& transaction : transactions_) {
    if (!since.Covers(transaction.commit_lsn, transaction.commit_time)) {
      std::erase_if(transaction.operations, [this](const Operation& each) {
        return each.kind == Operation::Kind::kOtherRow && each.table + 1 == plan_.tables;
      });
    }
  }
}

// Ids are given again, and what was open is rolled back.
void ModelPostgres::GoBackToXid(std::uint32_t next_xid) {
  next_xid_ = next_xid;
  open_xids_.clear();
  adopted_from_ = 0;
}

void ModelPostgres::WriteRow(Transaction* transaction, std::uint32_t* ordinal) {
  Event event;
  event.id = absl::StrFormat("e%u", ids_given_++);
  event.table = transaction->operations.back().table;
  const auto key = static_cast<std::uint32_t>(random_.Below(plan_.keys));
  const auto topic = static_cast<std::uint32_t>(random_.Below(kTopics));
  event.lane = topic * static_cast<std::uint32_t>(plan_.keys) + key;
  event.lane_index = lane_sizes_[event.lane]++;
  event.key = absl::StrFormat("k%u", key);
  event.topic = absl::StrFormat("t%u", topic);
  const std::uint64_t size = random_.Chance(20) ? random_.Below(4'000) : random_.Below(30);
  event.payload = event.id + std::string(size, static_cast<char>('a' + events_.size() % 26));
  event.commit_lsn = transaction->commit_lsn;
  event.oid = transaction->operations.back().oid;
  event.system_identifier = system_identifier_;
  event.timeline = timeline_;
  event.era = era_;
  event.ordinal = (*ordinal)++;
  event.undeliverable = plan_.faults.Has(Fault::undeliverable_rows) && undeliverable_.Chance(30);
  // A parked key would have a name that no writer uses.
  event.hostile = event.undeliverable && undeliverable_.Chance(500) &&
                  plan_.options.on_undeliverable != pipeline::OnUndeliverable::kPark;
  event.too_large = event.undeliverable && !event.hostile && undeliverable_.Chance(700);
  if (event.too_large) {
    event.payload += std::string(kEventBytesMax, 'x');
  }
  event.commit_time = transaction->commit_time;
  events_.push_back(std::move(event));
}

void ModelPostgres::WriteOther() {
  wal_end_ = base::Lsn(wal_end_.value() + random_.Between(1, 300));
}

base::SourceFacts ModelPostgres::Facts() const {
  base::SourceFacts facts;
  facts.system_identifier = elsewhere_ ? kSystemIdentifier - 1 : system_identifier_;
  facts.timeline = timeline_;
  facts.timeline_history = history_;
  facts.database = "shop";
  facts.confirmed_flush_lsn = confirmed_flush_;
  facts.restart_lsn = persisted_;
  facts.consistent_point = consistent_point_;
  facts.publication_oid = publication_oid_;
  facts.publication_xmin = publication_xmin_;
  facts.looked_lsn = wal_end_;
  facts.server_wal_lsn = wal_end_;
  facts.server_version = 180000;
  facts.next_xid = base::FullXid{next_xid_};
  facts.in_recovery = in_recovery_;
  facts.wal_sender_timeout_ms = plan_.wal_sender_timeout_ms;
  for (std::uint32_t i = 0; i <= plan_.tables; ++i) {
    if (i + 1 == plan_.tables && !configured_) {
      continue;
    }
    const pgoutput::Relation relation = RelationOf(i, 0, oids_[i]);
    facts.tables.push_back({relation.id.oid, relation.schema, relation.name, {memberships_[i]}});
  }
  if (prefix_configured_) {
    facts.message_prefixes.push_back(kPrefixOfAnother);
  }
  return facts;
}

void ModelPostgres::Confirm(base::Lsn flush) {
  confirmed_flush_ = std::max(confirmed_flush_, flush);
}

void ModelPostgres::Checkpoint() { persisted_ = confirmed_flush_; }

void ModelPostgres::Crash() { confirmed_flush_ = persisted_; }

void ModelPostgres::Failover() {
  // A synchronised slot is never ahead of the standby, and may be behind.
  confirmed_flush_ = persisted_;
  Promote();
}

void ModelPostgres::Promote() {
  in_recovery_ = false;
  history_.push_back({timeline_, wal_end_});
  ++timeline_;
  open_xids_.clear();  // rolled back
}

void ModelPostgres::FailoverLoses() {
  const base::Lsn kept = history_.empty() ? persisted_ : std::max(persisted_, history_.back().end);
  std::size_t lost = 0;
  while (lost < transactions_.size() && lost < 3 &&
         transactions_[transactions_.size() - lost - 1].commit_lsn >= kept &&
         (lost == 0 || foreign_.Chance(500))) {
    ++lost;
  }
  const std::size_t left = transactions_.size() - lost;
  base::WallTime forked_at;
  if (lost > 0) {
    forked_at = transactions_[left].commit_time;
    copy_.reset();
    wal_end_ = transactions_[left].commit_lsn;
    transactions_.resize(left);
    for (Event& event : events_) {
      event.gone = event.gone || event.commit_lsn >= wal_end_;
    }
    broken_ = base::Lsn();
    ++era_;
    GoBackToXid(next_xid_ - (plan_.adopts ? static_cast<std::uint32_t>(lost) : 0));
  }
  Failover();
  // While walpost was still connected to the old one.
  for (std::uint64_t i = lost > 0 ? foreign_.Below(3) : 0; i > 0; --i) {
    if (written_ < plan_.transactions) {
      WriteTransaction(forked_at);
    }
  }
}

void ModelPostgres::TakeCopy() {
  copy_ = Copy{transactions_.size(), wal_end_, persisted_, next_xid_, timeline_, history_};
}

void ModelPostgres::PutBack(base::WallTime now) {
  if (!copy_) {
    return;
  }
  const base::Lsn end = wal_end_;
  const std::vector<Transaction> lost(
      transactions_.begin() + static_cast<std::ptrdiff_t>(copy_->transactions),
      transactions_.end());
  for (const Transaction& transaction : lost) {
    used_lsns_.push_back(transaction.commit_lsn);
    for (const Operation& operation : transaction.operations) {
      if (operation.kind == Operation::Kind::kRow) {
        events_[operation.event].gone = true;
      }
    }
  }
  ++era_;
  transactions_.resize(copy_->transactions);
  wal_end_ = copy_->wal_end;
  confirmed_flush_ = persisted_ = copy_->confirmed_flush;
  held_below_ = copy_->next_xid < adopted_at_xid_ ? adopted_at_xid_ : 0;
  GoBackToXid(copy_->next_xid);
  timeline_ = copy_->timeline;
  history_ = copy_->history;
  in_recovery_ = false;
  broken_ = base::Lsn();
  if (foreign_.Chance(300)) {
    history_.push_back({timeline_, wal_end_});
    ++timeline_;
  }
  for (std::uint64_t i = foreign_.Below(12); i > 0; --i) {
    if (written_ < plan_.transactions) {
      WriteTransaction(now);
    }
    if (foreign_.Chance(300)) {
      WriteOther();
    }
  }
  if (foreign_.Chance(400)) {  // the log is longer than it was before walpost looks
    wal_end_ = base::Lsn(std::max(wal_end_, end).value() + foreign_.Between(1, 300));
  }
}

std::vector<base::CommittedTransaction> ModelPostgres::LastTransactions(base::Lsn position) const {
  std::vector<base::CommittedTransaction> last;
  for (const Transaction& each : transactions_) {
    const bool holds_rows = std::any_of(
        each.operations.begin(), each.operations.end(),
        [](const Operation& operation) { return operation.kind == Operation::Kind::kRow; });
    if (holds_rows && each.end_lsn <= position) {
      if (!each.origin) {
        last.clear();
      }
      last.push_back({each.commit_lsn, base::Xid{each.xid}, each.commit_time});
    }
  }
  return last;
}

void ModelPostgres::BecomeAnotherCluster() {
  copy_.reset();
  used_lsns_.clear();
  ++system_identifier_;
  ++era_;
  timeline_ = 1;
  history_.clear();
  in_recovery_ = false;
  transactions_.clear();
  for (Event& event : events_) {
    event.gone = true;
  }
  broken_ = base::Lsn();
  wal_end_ = base::Lsn(kFirstLsn + foreign_.Below(2 * wal_end_.value()));
  MakeSlotAnew();
  consistent_point_ = confirmed_flush_;
}

bool ModelPostgres::AdvanceSlot() {
  if (confirmed_flush_ >= wal_end_) {
    return false;
  }
  const std::uint64_t all = wal_end_.value() - confirmed_flush_.value();
  copy_.reset();
  confirmed_flush_ =
      base::Lsn(confirmed_flush_.value() + (foreign_.Chance(500) ? all : foreign_.Between(1, all)));
  return true;
}

void ModelPostgres::MakeSlotAnew() {
  copy_.reset();
  confirmed_flush_ = persisted_ = wal_end_;
}

void ModelPostgres::ReplaceTable() {
  copy_.reset();
  oids_[foreign_.Below(plan_.tables)] += 100;
}

void ModelPostgres::TakeOut() {
  taken_out_ = foreign_.Chance(600) ? Out::kTable : Out::kEverything;
  out_ = static_cast<std::uint32_t>(foreign_.Below(plan_.tables));
  edit_unreported_ = false;
  edit_reported_at_.reset();
  WriteOther();
}

void ModelPostgres::PutBack() {
  for (std::uint32_t table = 0; table <= plan_.tables; ++table) {
    edited_[table] = IsOut(table);
    edits_[table] += IsOut(table) ? 1 : 0;
    if (taken_out_ == Out::kTable && table == out_) {
      memberships_[table] += 1'000;
    }
  }
  publication_xmin_ += taken_out_ == Out::kEverything ? 1 : 0;
  taken_out_ = Out::kNothing;
  edit_unreported_ = true;
  WriteOther();
}

void ModelPostgres::AnnounceAgain() {
  for (std::uint32_t& edits : edits_) {
    ++edits;
  }
  WriteOther();
}

bool ModelPostgres::SlotHoldsReplaced() const {
  for (auto each = transactions_.rbegin(); each != transactions_.rend(); ++each) {
    if (each->commit_lsn < confirmed_flush_) {
      return false;
    }
    for (const Operation& operation : each->operations) {
      if (operation.kind != Operation::Kind::kMessage && operation.oid != oids_[operation.table]) {
        return true;
      }
    }
  }
  return false;
}

void ModelPostgres::BreakNextTransaction() {
  broken_ = transactions_.empty() ? base::Lsn() : transactions_.back().commit_lsn;
}

pgoutput::Relation ModelPostgres::RelationOf(std::uint32_t table, std::uint32_t version,
                                             std::uint32_t oid) const {
  using outbox::type_oid::kBytea;
  using outbox::type_oid::kText;
  pgoutput::Relation relation;
  relation.id = RelationId{oid};
  relation.schema = "outbox";
  relation.name = table < plan_.tables ? absl::StrFormat("events%u", table) : "other";
  for (const char column : ColumnsOf(version)) {
    switch (column) {
      case 'i':
        relation.columns.push_back({"id", kText, -1, true});
        break;
      case 'k':
        relation.columns.push_back({"aggregate_id", kText, -1, false});
        break;
      case 't':
        relation.columns.push_back({"aggregate_type", kText, -1, false});
        break;
      case 'y':
        relation.columns.push_back({"event_type", kText, -1, false});
        break;
      case 'p':
        relation.columns.push_back({"payload", kBytea, -1, false});
        break;
      default:
        relation.columns.push_back({"extra", kText, -1, false});
    }
  }
  return relation;
}

std::string ModelPostgres::RowBytes(const Operation& operation) const {
  using testing::BinaryColumn;
  using testing::TextColumn;
  Event other;
  other.id = other.key = other.topic = other.payload = "other";
  const Event& event = operation.kind == Operation::Kind::kRow ? events_[operation.event] : other;
  testing::Tuple row;
  for (const char column : ColumnsOf(operation.version)) {
    switch (column) {
      case 'i':
        row.push_back(TextColumn(event.id));
        break;
      case 'k':
        row.push_back(TextColumn(event.key));
        break;
      case 't':
        row.push_back(TextColumn(!event.hostile                  ? std::string_view(event.topic)
                                 : event.payload.size() % 2 == 0 ? ProgressLog::kTopic
                                                                 : kDeadLetterTopic));
        break;
      case 'y':
        row.push_back(event.undeliverable && !event.hostile && !event.too_large
                          ? testing::NullColumn()
                          : TextColumn("created"));
        break;
      case 'p':
        row.push_back(BinaryColumn(event.payload));
        break;
      default:
        row.push_back(testing::NullColumn());
    }
  }
  const RelationId relation{operation.oid};
  switch (operation.kind) {
    case Operation::Kind::kRow:
    case Operation::Kind::kOtherRow:
      return testing::InsertBytes(relation, row);
    case Operation::Kind::kUpdate:
      return testing::UpdateBytes(relation, row);
    case Operation::Kind::kDelete:
      return testing::DeleteBytes(relation, 'K', row);
    case Operation::Kind::kTruncate:
      return testing::TruncateBytes({relation});
    case Operation::Kind::kMessage:
      return testing::LogicalMessageBytes(true, base::Lsn(1), "prefix", "content");
  }
  return "";
}

}  // namespace walpost::simulation
