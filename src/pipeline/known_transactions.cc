#include "pipeline/known_transactions.h"

#include <glog/logging.h>

#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace walpost::pipeline {
namespace {

std::string Describe(const base::CommittedTransaction& transaction) {
  const absl::Time at = absl::FromUnixMicros(transaction.commit_time.time_since_epoch().count());
  return absl::StrFormat("transaction %u, committed at %s on %s", transaction.xid.value,
                         transaction.commit_lsn.ToString(),
                         absl::FormatTime(absl::RFC3339_full, at, absl::UTCTimeZone()));
}

}  // namespace

Halt OtherHistory(const std::string& what) {
  return Halt{base::HaltReason::kTimelineChanged,
              absl::StrFormat("%s: the server was set back to an earlier state (a restored disk or "
                              "snapshot, or a copy) and went on from there; nothing of that was "
                              "sent or confirmed; see docs/runbook.md, timeline_changed",
                              what)};
}

void KnownTransactions::Delivered::Add(const Entry& next) {
  if (!next.has_origin) {
    first = size;
  }
  ++size;
  if (size - first > base::Progress::kLastTransactionsMax) {
    ++first;
  }
}

void KnownTransactions::Remember(const std::vector<base::CommittedTransaction>& delivered,
                                 base::Lsn end) {
  CHECK(entries_.empty());
  for (const base::CommittedTransaction& transaction : delivered) {
    entries_.PushBack(Entry{transaction, end, /*has_origin=*/!entries_.empty()});
  }
}

void KnownTransactions::Forget() { *this = KnownTransactions(); }

base::Lsn KnownTransactions::TakeStart() {
  next_ = 0;
  return entries_.empty() ? base::Lsn() : entries_.front().transaction.commit_lsn;
}

void KnownTransactions::Expect(base::Lsn start) {
  next_ = 0;
  while (!verified() && entries_[next_].transaction.commit_lsn < start) {
    ++next_;
  }
}

std::optional<Halt> KnownTransactions::OnBegin(const base::CommittedTransaction& begun) {
  taken_through_ = Taken();
  if (verified() || begun.commit_lsn < entries_[next_].transaction.commit_lsn) {
    return std::nullopt;
  }
  const Entry& expected = entries_[next_];
  if (begun != expected.transaction) {
    return OtherHistory(absl::StrFormat("%s, was read from this server before, but now it sends %s",
                                        Describe(expected.transaction), Describe(begun)));
  }
  taken_through_ = expected.end.valid() ? Taken{kWhole, expected.end} : newest_;
  ++next_;
  return std::nullopt;
}

Halt KnownTransactions::Missing(base::Lsn position) const {
  return OtherHistory(
      absl::StrFormat("%s, was read from this server before, but now it comes to %s without it",
                      Describe(entries_[next_].transaction), position.ToString()));
}

void KnownTransactions::OnCommit(base::Lsn commit_lsn, base::Lsn end) {
  if (newest() == commit_lsn && !entries_.empty()) {
    entries_.back().end = end;
  }
}

void KnownTransactions::Settle(base::Lsn safe) {
  while (delivered_.size < entries_.size() && entries_[delivered_.size].EndsBy(safe)) {
    delivered_.Add(entries_[delivered_.size]);
  }
  // What has yet to come again is needed for that.
  for (; delivered_.first > 0 && next_ > 0; --delivered_.first, --delivered_.size, --next_) {
    entries_.PopFront();
  }
}

std::vector<base::CommittedTransaction> KnownTransactions::LastBefore(base::Lsn position) const {
  Delivered before;
  while (before.size < entries_.size() && entries_[before.size].EndsBy(position)) {
    before.Add(entries_[before.size]);
  }
  std::vector<base::CommittedTransaction> last;
  for (std::size_t i = before.first; i < before.size; ++i) {
    last.push_back(entries_[i].transaction);
  }
  return last;
}

}  // namespace walpost::pipeline
