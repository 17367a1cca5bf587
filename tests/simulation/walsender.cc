// What one connection is sent, and in which order.
#include <algorithm>

#include "model_postgres.h"
#include "support/pgoutput_bytes.h"

namespace walpost::simulation {

Walsender::Walsender(const ModelPostgres* server, base::Lsn start, Random* random)
    : server_(server),
      start_(std::max(start, server->confirmed_flush_)),
      sent_(server->confirmed_flush_),
      fails_after_(random->Below(3)),
      announced_(server->versions_.size()) {
  // Decoding begins before what is sent, at the slot's restart_lsn.
  const auto first =
      std::partition_point(server->transactions_.begin(), server->transactions_.end(),
                           [this](const Transaction& each) { return each.end_lsn <= sent_; });
  transaction_ = static_cast<std::size_t>(first - server->transactions_.begin());
  transaction_ -= std::min<std::size_t>(transaction_, random->Below(4));
  leaves_others_ = transaction_ % 3 == 0;
}

bool Walsender::caught_up() const {
  return !in_transaction_ && transaction_ == server_->transactions_.size();
}

std::string Walsender::Keepalive(bool reply_requested, base::WallTime now) const {
  return testing::KeepaliveFrame(sent_, reply_requested, now);
}

std::optional<std::string> Walsender::Next(base::WallTime now) {
  const std::optional<std::string> payload = NextPayload();
  if (!payload) {
    return std::nullopt;
  }
  // The end means nothing. Rows of one statement may share a record.
  return testing::XLogDataFrame(*payload, base::Lsn(1 + operation_ / 3), base::Lsn(UINT64_MAX / 2),
                                now);
}

std::optional<std::string> Walsender::NextPayload() {
  while (!in_transaction_) {
    if (transaction_ >= transactions_max_) {
      return std::nullopt;
    }
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
      if (transaction_ % 3 == 0) {
        return std::nullopt;  // it may say how far it is
      }
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
  if (operation.kind == Operation::Kind::kOtherRow && leaves_others_) {
    ++operation_;
    return NextOperation(transaction);
  }
  const bool needs_relation = operation.kind != Operation::Kind::kMessage;
  const Announced announced{operation.version, operation.oid, operation.edits};
  if (needs_relation && !(announced_[operation.table] == announced)) {
    announced_[operation.table] = announced;
    return testing::RelationBytes(
        server_->RelationOf(operation.table, operation.version, operation.oid));
  }
  ++operation_;
  return server_->RowBytes(operation);
}

}  // namespace walpost::simulation
