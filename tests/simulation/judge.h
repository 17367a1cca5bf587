// Judge - the oracles: looks at every submission, record, report and status of a history, at the
// moment it happens.
// Why: a promise that is broken for a moment is broken; a look at the end alone would miss what was
//   repaired by luck.
// Thread: one owner.   Lifetime: the server must outlive it.
// Errors: throws Violation.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/lsn.h"
#include "envelope/record.h"
#include "model_postgres.h"

namespace walpost::simulation {

class Judge {
 public:
  Judge(const ModelPostgres* server, bool raw);

  // The event a record is of. G2: nothing that was rolled back or never written; every byte of it is
  // right.
  std::uint64_t Identify(const envelope::Record& record);

  // A new producer. What it is given of a key has no gap and begins at or before the first event of
  // that key that is not acknowledged.
  void OnGeneration();
  void OnSubmitted(std::uint64_t event);

  // G3, as a consumer sees it that drops by position.
  void OnVisible(std::uint64_t event);

  // A good report.
  void OnReported(std::uint64_t event);

  // Another process, or one that forgot everything by a halt: repeats are all right from here on.
  void OnMemoryLost();

  // G5, and that the server has it: what is confirmed or asked for.
  void OnPosition(base::Lsn flush, const char* what);

  bool visible(std::uint64_t event) const { return event < visible_.size() && visible_[event]; }

  // G1: everything committed is there.
  bool complete();

  std::uint64_t reports() const { return reports_; }  // since the last OnMemoryLost... of a process

  void ForgetReports() { reports_ = 0; }

  void OnPoison(std::uint64_t event) { blamed_.insert(event); }

  bool blamed(std::uint64_t event) const { return blamed_.count(event) != 0; }

  // The commit_lsn of the first event that is in no log; the end of everything when there is none.
  base::Lsn first_missing();

 private:
  void Grow();

  const ModelPostgres* const server_;
  const bool raw_;
  std::vector<bool> visible_;
  std::uint64_t visible_below_ = 0;  // every event below it is visible
  std::vector<std::uint64_t> reported_epoch_;
  std::vector<std::uint64_t> submitted_generation_;
  std::uint64_t epoch_ = 1;
  std::uint64_t generation_ = 0;
  std::vector<std::uint32_t> next_visible_;                 // by lane
  std::vector<std::vector<bool>> lane_reported_;            // by lane and index
  std::vector<std::uint32_t> first_unreported_;             // by lane
  std::map<std::uint32_t, std::uint32_t> submitted_lanes_;  // of this generation: the last index
  std::uint64_t reports_ = 0;
  std::set<std::uint64_t> blamed_;
};

}  // namespace walpost::simulation
