#include "model_postgres.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "outbox/column_value.h"
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
      unfit_(plan.seed, 7),
      foreign_(plan.seed, 10),
      lane_sizes_(kTopics * plan.keys),
      versions_(plan.tables + 1),
      wal_end_(kFirstLsn),
      confirmed_flush_(kFirstLsn),
      persisted_(kFirstLsn),
      consistent_point_(kFirstLsn),
      system_identifier_(kSystemIdentifier) {
  for (std::uint32_t i = 0; i <= plan.tables; ++i) {
    oids_.push_back(kFirstOid + i);
  }
}

void ModelPostgres::WriteTransaction(base::WallTime now) {
  Transaction transaction;
  transaction.xid = static_cast<std::uint32_t>(700 + written_++);
  transaction.commit_time = now;
  transaction.origin = random_.Chance(50);
  // Rows come before their commit in the log; with writers side by side a commit may follow the
  // last one's directly.
  transaction.commit_lsn =
      base::Lsn(wal_end_.value() + (random_.Chance(400) ? 0 : random_.Below(500)));
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
      ordinal += operation.kind == Operation::Kind::kOtherRow ||
                         operation.kind == Operation::Kind::kMessage
                     ? 1
                     : 0;
      transaction.operations.push_back(operation);
      continue;
    }
    transaction.operations.push_back(
        Operation{Operation::Kind::kRow, table, versions_[table], oids_[table], events_.size()});
    WriteRow(&transaction, &ordinal);
  }
  if (plan_.faults.Has(Fault::savepoints) && random_.Chance(100)) {
    SkipRow();  // a whole transaction beside it
  }
  transactions_.push_back(std::move(transaction));
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
  event.unfit = plan_.faults.Has(Fault::unfit_rows) && unfit_.Chance(30);
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
  facts.consistent_point = consistent_point_;
  facts.publication_oid = publication_oid_;
  facts.server_wal_lsn = wal_end_;
  facts.wal_sender_timeout_ms = plan_.wal_sender_timeout_ms;
  for (std::uint32_t i = 0; i <= plan_.tables; ++i) {
    const pgoutput::Relation relation = RelationOf(i, 0, oids_[i]);
    facts.tables.push_back({relation.id.oid, relation.schema, relation.name});
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
  history_.push_back({timeline_, wal_end_});
  ++timeline_;
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
  if (lost > 0) {
    wal_end_ = transactions_[left].commit_lsn;
    transactions_.resize(left);
    for (Event& event : events_) {
      event.gone = event.gone || event.commit_lsn >= wal_end_;
    }
    broken_ = base::Lsn();
    ++era_;
  }
  Failover();
}

void ModelPostgres::BecomeAnotherCluster() {
  ++system_identifier_;
  ++era_;
  timeline_ = 1;
  history_.clear();
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
  confirmed_flush_ =
      base::Lsn(confirmed_flush_.value() + (foreign_.Chance(500) ? all : foreign_.Between(1, all)));
  return true;
}

void ModelPostgres::MakeSlotAnew() { confirmed_flush_ = persisted_ = wal_end_; }

void ModelPostgres::ReplaceTable() { oids_[foreign_.Below(plan_.tables)] += 100; }

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
        row.push_back(TextColumn(event.topic));
        break;
      case 'y':
        row.push_back(event.unfit ? testing::NullColumn() : TextColumn("created"));
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

Walsender::Walsender(const ModelPostgres* server, base::Lsn start, Random* random)
    : server_(server),
      start_(std::max(start, server->confirmed_flush_)),
      sent_(server->confirmed_flush_),
      fails_after_(random->Below(3)),
      announced_(server->versions_.size(), -1) {
  // Decoding begins before what is sent, at the slot's restart_lsn.
  const auto first =
      std::partition_point(server->transactions_.begin(), server->transactions_.end(),
                           [this](const Transaction& each) { return each.end_lsn <= sent_; });
  transaction_ = static_cast<std::size_t>(first - server->transactions_.begin());
  transaction_ -= std::min<std::size_t>(transaction_, random->Below(4));
}

bool Walsender::caught_up() const {
  return !in_transaction_ && transaction_ == server_->transactions_.size();
}

std::string Walsender::Keepalive(bool reply_requested) const {
  return testing::KeepaliveFrame(sent_, reply_requested);
}

std::optional<std::string> Walsender::Next() {
  const std::optional<std::string> payload = NextPayload();
  if (!payload) {
    return std::nullopt;
  }
  // The header's positions mean nothing.
  return testing::XLogDataFrame(*payload, base::Lsn(1), base::Lsn(UINT64_MAX / 2));
}

std::optional<std::string> Walsender::NextPayload() {
  while (!in_transaction_) {
    if (transaction_ == server_->transactions_.size()) {
      sent_ = server_->wal_end_;
      return std::nullopt;
    }
    const Transaction& transaction = server_->transactions_[transaction_];
    const bool unsent = transaction.commit_lsn < start_ ||
                        (transaction.operations.empty() && !server_->plan_.empty_transactions_sent);
    if (unsent) {
      sent_ = transaction.end_lsn;
      ++transaction_;
      continue;
    }
    // The position is that of the last record read: before the commit's end.
    sent_ = transaction.commit_lsn;
    if (transaction.commit_lsn == server_->broken_ && fails_after_ == 0) {
      failed_ = true;
      return std::nullopt;
    }
    in_transaction_ = true;
    operation_ = 0;
    origin_sent_ = !transaction.origin;
    return testing::BeginBytes(transaction.commit_lsn, base::Xid{transaction.xid},
                               transaction.commit_time);
  }
  return NextOperation(server_->transactions_[transaction_]);
}

std::optional<std::string> Walsender::NextOperation(const Transaction& transaction) {
  if (!origin_sent_) {
    origin_sent_ = true;
    return testing::OriginBytes(transaction.commit_lsn, "elsewhere");
  }
  if (operation_ == transaction.operations.size()) {
    if (transaction.commit_lsn == server_->broken_) {
      failed_ = true;
      return std::nullopt;
    }
    in_transaction_ = false;
    ++transaction_;
    sent_ = transaction.end_lsn;
    return testing::CommitBytes(transaction.commit_lsn, transaction.end_lsn,
                                transaction.commit_time);
  }
  if (transaction.commit_lsn == server_->broken_ && operation_ >= fails_after_) {
    failed_ = true;
    return std::nullopt;
  }
  const Operation& operation = transaction.operations[operation_];
  const bool needs_relation = operation.kind != Operation::Kind::kMessage;
  const std::int64_t announced = std::int64_t{operation.version} << 32 | operation.oid;
  if (needs_relation && announced_[operation.table] != announced) {
    announced_[operation.table] = announced;
    return testing::RelationBytes(
        server_->RelationOf(operation.table, operation.version, operation.oid));
  }
  ++operation_;
  return server_->RowBytes(operation);
}

}  // namespace walpost::simulation
