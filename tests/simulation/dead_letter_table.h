// DeadLetterTable - walpost.dead_letters as it stands, and an operator who decides about its rows.
// Why: it is the truth about what is parked; what walpost believes is judged by it.
// Thread: one owner.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/dead_letter.h"
#include "judge.h"
#include "pipeline/dead_letters.h"
#include "plan.h"
#include "random.h"

namespace walpost::simulation {

class DeadLetterTable {
 public:
  DeadLetterTable(const Plan& plan, Judge* judge)
      : random_(plan.seed, 6), judge_(judge), remembers_(!plan.options.progress_topic.empty()) {}

  // As the runtime carries it out.
  pipeline::DeadLetterReply CarryOut(const pipeline::DeadLetterRequest& request);

  // As the verb decides, about the parked key of the row, or the row alone.
  void Decide(std::int64_t seq, base::DeadLetter::Decision decision, bool of_key);

  // Until the next call of anything else.
  std::vector<const base::DeadLetter*> Open() const;

  // An operator goes on at an earlier position: what was sent comes again, and nothing is known of
  // it.
  void ForgetSent() { sent_.clear(); }

  // Another cluster has the rows now, and stands behind all of them.
  void TakeOver();

  std::size_t open_rows() const { return open_rows_; }

  // Open ones, or of events that commit at `from` or later.
  bool MayHave(base::Lsn from) const;

 private:
  std::vector<base::DeadLetter>::iterator Find(std::int64_t seq);
  void Insert(const pipeline::DeadLetterRequest& request, pipeline::DeadLetterReply* reply);
  void Read(const pipeline::DeadLetterRequest& request, pipeline::DeadLetterReply* reply);
  void ReadSent(const pipeline::DeadLetterRequest& request, pipeline::DeadLetterReply* reply);
  void LoadRows(const pipeline::DeadLetterRequest& request, pipeline::DeadLetterReply* reply);
  void Close(base::DeadLetter* row);
  bool HasDiscard(const base::DeadLetter& of) const;
  void TakenBack(base::DeadLetter* row);
  void RetryBehind(const std::string& topic, const std::string& key, std::int64_t after);
  std::int64_t NextDecision(const pipeline::DeadLetterRequest& request, std::string* waits_for);
  bool DiscardKey(const pipeline::DeadLetterRequest& request);

  Random random_;
  Judge* const judge_;
  const bool remembers_;  // else a slot that falls back brings again what was confirmed
  std::vector<base::DeadLetter> rows_;
  std::size_t open_rows_ = 0;
  std::uint64_t written_ = 0;
  std::int64_t next_seq_ = 1;
  std::vector<std::int64_t> decided_;  // in the order of the decisions
  // By topic and key, since walpost last read what is parked. Whatever is written behind those is
  // sent, too.
  std::set<std::pair<std::string, std::string>> released_;
  std::set<std::pair<std::string, std::string>> sent_;  // by position and id
};

}  // namespace walpost::simulation
