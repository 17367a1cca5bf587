// Judge - the oracles: looks at every submission, record, report and status of a history, at the
// moment it happens.
// Why: a promise that is broken for a moment is broken; a look at the end alone would miss what was
//   repaired by luck.
// Thread: one owner.   Lifetime: the server must outlive it.
// Errors: throws Violation.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/dead_letter.h"
#include "base/lsn.h"
#include "envelope/record.h"
#include "model_postgres.h"
#include "pipeline/options.h"

namespace walpost::simulation {

// What a record is.
struct Identity {
  enum class Kind {
    kEvent,
    kAgain,  // an event, sent again from the table of dead letters
    kProgress,
  };

  Kind kind = Kind::kEvent;
  std::uint64_t event = 0;  // of progress: its position
  std::string bytes;        // of progress

  bool operator==(const Identity&) const = default;
};

class Judge {
 public:
  Judge(const ModelPostgres* server, const Plan& plan);

  // The event a record is of. G2: nothing that was rolled back or never written; every byte of it
  // is right.
  Identity Identify(const envelope::Record& record);

  // A new producer. What it is given of a key has no gap and begins at or before the first event of
  // that key that is not acknowledged.
  void OnSession();
  void OnSubmitted(const Identity& what);

  // G3, as a consumer sees it that drops by position: of the event's topic only. `late`: a producer
  // that is gone had sent it.
  void OnVisible(const Identity& what, bool late = false);

  // A good report.
  void OnReported(const Identity& what);

  // Another process, or one that forgot everything by a halt: repeats are all right from here on.
  void OnMemoryLost();

  // G5, and that the server has it: what is confirmed or asked for.
  void OnPosition(base::Lsn flush, const char* what);

  // --- Remembered progress and other clients ---
  // It streams from what the server is now. What is remembered is not sent again by the main line.
  void OnConnected(base::Lsn remembered);

  // The position of the last progress record it wanted to have written.
  base::Lsn progress_given() const { return progress_given_; }

  // It was stopped with everything delivered and confirmed: nothing is sent again.
  void OnCleanStop() { clean_epoch_ = epoch_; }

  // Another instance delivers everything, and from here on this one sends nothing of it. False: it
  // cannot, because of an event that nobody can deliver.
  bool OnTakenOver();

  // An operator says that it goes on there: what is in no log before it was lost by someone else.
  void OnAdopted(base::Lsn position);

  // The next start may begin anywhere.
  void OnProgressDeleted() { clean_epoch_ = 0; }

  // --- The table of dead letters (judge_dead_letters.cc) ---
  // Another process may have another policy.
  void SetPolicy(pipeline::OnUndeliverable policy) {
    policy_ = policy;
    dead_letter_ever_ = dead_letter_ever_ || policy == pipeline::OnUndeliverable::kDeadLetter;
  }

  void OnInsertAsked(const base::DeadLetter& row);
  // It is committed.
  void OnRow(const base::DeadLetter& row);
  void OnKnown(const base::DeadLetter& row);
  void OnRowDelivered(const base::DeadLetter& row);
  void OnRowClosed(const base::DeadLetter& row);
  void OnRowSent(const base::DeadLetter& row);
  void OnLookedAgain(const base::DeadLetter& row);
  void OnTakenBack(const base::DeadLetter& row);
  void OnRetryFailed(const base::DeadLetter& row, const std::string& detail);

  const std::string& PositionOf(std::uint64_t event) {
    Grow();
    return positions_[event];
  }

  // G1: everything committed is there, and nothing waits to be released.
  bool complete();

  // Someone else did something: what comes again may not come to its end.
  void OnForeign() { foreign_ = true; }

  // Behind what came again, everything came again: a consumer that keeps the last of a key has the
  // newest.
  void CheckNewest() const;

  // Since the process began.
  std::uint64_t reports(Identity::Kind kind) const {
    return reports_[static_cast<std::size_t>(kind)];
  }

  void ForgetReports() { reports_.fill(0); }

  // It was rejected alone.
  void OnPoison(const Identity& what);

  bool blamed(std::uint64_t event) const { return blamed_.count(event) != 0; }

  // The log says so.
  void OnSkipped(const std::string& id);
  // And others that were too many to report.
  void OnSkippedUnreported();

  // The commit_lsn of the first event that is in no log; the end of everything when there is none.
  base::Lsn first_missing();

 private:
  // What became of an event that has no record.
  struct State {
    bool in_table = false;  // it is, or was
    bool has_row = false;   // it is in the table, and was not sent from there
    bool sent_from_row = false;
    bool taken_back = false;  // a decision about its row was
    std::uint64_t sent_epoch = 0;
    bool dead_letter = false;
    bool parked = false;
    bool passed = false;  // a later one of its key was right to go before it
    bool skipped = false;
    bool discarded = false;
    bool looked_at = false;   // the decision about its row, since it was sent again
    bool to_be_sent = false;  // by that decision
    bool lost = false;        // by someone else, and an operator knows
    bool left_out = false;    // he goes on behind it, wherever it is
  };

  void Grow();
  std::uint64_t Find(std::string_view id) const;
  void CheckRecord(const envelope::Record& record, const Event& event, bool dead_letter) const;
  void CheckAgainSubmitted(const Identity& what);

  // The consumer need not see it, and it is no dead letter either.
  bool Gone(std::uint64_t event) const {
    return server_->events()[event].gone || states_[event].lost;
  }

  void CheckMainLine(std::uint64_t event) const;
  void CheckParkedInOrder(const base::DeadLetter& row, std::uint64_t index) const;
  bool Excused(std::uint64_t event) const;
  bool MaySkip(std::uint64_t event) const;
  bool MayBeRejected(std::uint64_t event) const;
  bool HasNoTopic(std::uint64_t event) const;
  void Leave(const base::DeadLetter& row);

  const ModelPostgres* const server_;
  const bool raw_;
  const bool framed_;
  pipeline::OnUndeliverable policy_;
  // What a process with this policy sent may land when the next one has another.
  bool dead_letter_ever_ = false;
  std::vector<bool> visible_;
  std::uint64_t safe_below_ = 0;  // every event below it is in a log, or needs not be
  std::vector<std::uint64_t> reported_epoch_;
  std::vector<std::uint64_t> submitted_session_;
  std::uint64_t epoch_ = 1;
  std::uint64_t clean_epoch_ = 0;
  std::uint32_t era_ = 0;  // of the server it streams from
  base::Lsn progress_given_;
  std::optional<base::Lsn> remembered_;    // since its memory began
  std::vector<std::uint32_t> table_oids_;  // as it connected
  std::uint64_t session_ = 0;
  std::vector<std::uint32_t> next_visible_;                 // by lane
  std::vector<std::uint32_t> last_visible_;                 // by lane
  std::vector<std::uint32_t> first_unreported_;             // by lane
  std::map<std::uint32_t, std::uint32_t> submitted_lanes_;  // of this session: the last index
  std::array<std::uint64_t, 3> reports_{};                  // by kind
  std::set<std::uint64_t> blamed_;
  std::vector<bool> reported_ever_;
  std::vector<std::vector<std::uint64_t>> lane_events_;
  std::vector<State> states_;
  std::vector<std::string> positions_;
  bool foreign_ = false;
  std::vector<bool> lane_parked_;                // ever
  std::vector<bool> taken_and_rejected_;         // by lane: some event was
  std::vector<std::set<std::uint64_t>> parked_;  // with an open row, by lane
  std::set<std::uint64_t> open_;                 // with an open row
  std::set<std::uint32_t> again_rejected_;       // lanes
};

}  // namespace walpost::simulation
