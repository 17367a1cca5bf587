// Other clients of the slot, what a connect finds of them, and the operator's way out of it.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_format.h"
#include "pipeline/history.h"
#include "simulation.h"
#include "violation.h"

namespace walpost::simulation {

using base::HaltReason;
using base::StreamEnd;
using std::chrono::milliseconds;

namespace {

// A minute of rejections, with some seconds between each two.
constexpr int kRejectionsOfAMinute = 5;

}  // namespace

bool Simulation::CutConnection(const std::string& why) {
  LoseConnection(StreamEnd::Kind::kLost, why);
  if (connection_) {
    connection_->cut = true;
  }
  return true;
}

// One at a time, so that each has the reason it must be noticed by.
void Simulation::ForeignHands() {
  if (server_state_ != ServerState::kUp) {
    return;
  }
  if (server_.taken_out() && random_.Chance(50)) {
    server_.PutBack();
    Trace("the publication is as it was");
  }
  if (Happens(Fault::announced_again, 30)) {
    server_.AnnounceAgain();
    Trace("the tables are announced again");
  }
  if (foreign_.any()) {
    return;
  }
  const bool remembered = kafka_.progress().newest().has_value();
  if (Happens(Fault::failover_loses, 5)) {
    LosingFailover();
  } else if (Happens(Fault::set_back, 10)) {
    SetBack();
  } else if (Happens(Fault::slot_moved, 5)) {
    CutConnection("terminated by someone else");
    foreign_.slot = server_.AdvanceSlot();
    Trace("someone else moves the slot to", server_.confirmed_flush().ToString());
  } else if (Happens(Fault::slot_made_anew, 5)) {
    CutConnection("terminated by someone else");
    foreign_.slot = true;
    server_.MakeSlotAnew();
    Trace("someone else makes the slot anew at", server_.confirmed_flush().ToString());
  } else if (remembered && Happens(Fault::other_cluster, 5)) {
    CutConnection("the name leads to another server");
    foreign_.cluster = true;
    foreign_.elsewhere = random_.Chance(400);
    if (foreign_.elsewhere) {
      server_.GoElsewhere(true);
    } else {
      server_.BecomeAnotherCluster();
      dead_letters_.TakeOver();
    }
    Trace("another cluster", foreign_.elsewhere ? "for a while" : "for good");
  } else if (Happens(Fault::replaced, 5)) {
    foreign_.publication = random_.Chance(300);
    foreign_.table = !foreign_.publication;
    if (foreign_.publication) {
      server_.ReplacePublication();
    } else {
      server_.ReplaceTable();
    }
    Trace(foreign_.table ? "a table is replaced" : "the publication is replaced");
  } else if (Happens(Fault::edited, 10)) {
    foreign_.edited = true;
    server_.TakeOut();
    Trace("the publication is edited");
  } else if (remembered && !other_acted_ && Happens(Fault::progress_deleted, 5)) {
    foreign_.progress = true;
    DeleteProgress();
    judge_.OnProgressDeleted();
    Trace("remembered progress is deleted");
  }
  if (foreign_.any()) {
    judge_.OnForeign();
  }
  if (const std::size_t records = kafka_.progress().records().size();
      remembered && Happens(Fault::progress_compacted, 20) &&
      kafka_.progress().Compact(random_.Below(records + 1))) {
    Trace("the progress topic is compacted,", absl::StrFormat("of %u records %u are left", records,
                                                              kafka_.progress().records().size()));
  }
}

void Simulation::LosingFailover() {
  CutConnection("failover that loses");
  const std::uint32_t before = server_.era();
  server_.FailoverLoses();
  foreign_.timeline = server_.era() != before;
  Trace("a failover loses what came after", server_.wal_end().ToString());
  ServerDown();
}

// The disk of the server is put back. It has the same name, cluster and timeline as before.
void Simulation::SetBack() {
  const std::uint32_t before = server_.era();
  const base::Lsn end = server_.wal_end();
  server_.PutBack(now_.wall + std::chrono::microseconds(1));  // after whatever was decided
  if (server_.era() == before) {
    return;  // there was no copy
  }
  CutConnection("the server is set back");
  foreign_.set_back = true;
  set_back_from_ = end;
  Trace("set back from", end.ToString() + " to " + server_.wal_end().ToString());
  ServerDown();
}

// Whoever has a stream may publish for a while after it.
void Simulation::OtherActsLater() {
  if (!other_acts_at_) {
    return;
  }
  const milliseconds alone(plan_.wal_sender_timeout_ms > 0
                               ? milliseconds(plan_.wal_sender_timeout_ms)
                               : pipeline::SourceTimers::kPublishAlone);
  other_acts_at_ = now_.mono + alone + milliseconds(2'000 + random_.Below(5'000));
  slot_free_at_ = *other_acts_at_ + milliseconds(random_.Below(1'000));
}

// A firewall forgets the connection. The server's last answer from walpost was at most a third of
// its time-out ago, and what has arrived is still read. Another instance acts after the window that
// docs/design.md states.
void Simulation::LoseSilently() {
  const milliseconds timeout(plan_.wal_sender_timeout_ms);
  if (!connection_ || connection_->end || connection_->lost || timeout.count() == 0 ||
      server_state_ != ServerState::kUp || foreign_.any() || other_acts_at_) {
    return;
  }
  Random& random = fault_random_[static_cast<std::size_t>(Fault::silent_loss)];
  const auto third = static_cast<std::uint64_t>(timeout.count() / 3);
  connection_->cut = true;
  connection_->walsender->EndHere();
  connection_->lost =
      Connection::Lost{now_.wall, now_.mono + milliseconds(2 * third + random.Below(third)),
                       random.Below(40), random.Chance(500)};
  Trace("the network loses the connection");
  if (random.Chance(500)) {
    other_acts_at_ =
        connection_->lost->given_up_at + 2 * timeout + milliseconds(2'000 + random.Below(5'000));
    slot_free_at_ = *other_acts_at_ + milliseconds(random.Below(1'000));
  }
}

// Another instance gets the slot when this one has lost it, delivers everything, and leaves.
void Simulation::TakeOver() {
  if (!other_acts_at_ && server_state_ == ServerState::kUp && !foreign_.any() && connection_ &&
      !connection_->lost && kafka_.progress().newest() && Happens(Fault::taken_over, 10)) {
    CutConnection("another instance takes over");
    other_acts_at_ = now_.mono;
  }
  if (connection_ && !connection_->lost) {
    OtherActsLater();  // not noticed yet
  }
  if (!other_acts_at_ || now_.mono < *other_acts_at_) {
    return;
  }
  other_acts_at_.reset();
  const std::optional<base::Progress>& newest = kafka_.progress().newest();
  const bool able = server_state_ == ServerState::kUp && !foreign_.any() && !kafka_.away() &&
                    newest && !kafka_.progress().lacks();
  if (!able || !judge_.OnTakenOver()) {
    return;
  }
  base::Progress progress = server_.Facts().ProgressAt(server_.wal_end());
  progress.epoch = base::NextEpoch(newest->epoch, now_.wall);
  progress.passed_at = progress.recorded_at = now_.wall - std::chrono::microseconds(1);  // not ours
  progress.tables = newest->tables;
  progress.message_prefixes = newest->message_prefixes;
  progress.prefixes_since = newest->prefixes_since;
  if (plan_.adopts && progress.message_prefixes.empty() && Happens(Fault::adopted, 500)) {
    progress.message_prefixes.push_back(ModelPostgres::kPrefixOfAnother);
    progress.prefixes_since[ModelPostgres::kPrefixOfAnother] = {progress.end_lsn, now_.wall,
                                                                progress.timeline};
    prefix_adopted_ = true;
    Trace("it adopts a prefix");
  }
  progress.last_transactions = server_.LastTransactions(server_.wal_end());
  kafka_.progress().Append(progress);
  other_acted_ = true;
  if (random_.Chance(500)) {
    server_.Confirm(progress.end_lsn);
  }
  Trace("the other instance came to", progress.end_lsn.ToString());
}

// As runtime::MakeGuard: what Kafka remembers is judged between preflight and START.
std::optional<StreamEnd> Simulation::Guard(const std::optional<base::Progress>& known,
                                           base::SourceFacts* facts) {
  if (!plan_.remembers()) {
    return std::nullopt;
  }
  std::vector<base::Progress> records;
  StreamEnd end;
  facts->begun_at = now_.wall;
  if (kafka_.away() || Happens(Fault::progress_unreadable, 300)) {
    end.status = absl::UnavailableError("remembered progress cannot be read yet");
    return end;
  }
  records = kafka_.progress().records();
  if (pipeline::Suffices(known, *facts) && !pipeline::DecidedSince(*known, records)) {
    records = {*known};
  }
  pipeline::ProgressCheck check = pipeline::CheckRememberedProgress(records, *facts);
  if (check.halt) {
    end.kind = StreamEnd::Kind::kOperator;
    end.reason = check.halt->reason;
    end.status = absl::FailedPreconditionError(check.halt->detail);
    return end;
  }
  if (!check.not_yet.empty()) {
    end.status = absl::UnavailableError(check.not_yet);
    return end;
  }
  facts->progress = std::move(check.progress);
  return std::nullopt;
}

// What preflight says of a publication that lacks something.
std::optional<StreamEnd> Simulation::NotPublished() const {
  if (!server_.taken_out()) {
    return std::nullopt;
  }
  StreamEnd end;
  end.kind = StreamEnd::Kind::kOperator;
  end.reason = HaltReason::kPublicationMissing;
  end.status = absl::FailedPreconditionError("not published");
  return end;
}

void Simulation::Look() {
  if (const std::optional<std::uint64_t> look = pipeline_->TakeLook(now_)) {
    look_answer_ =
        LookAnswer{now_.mono + milliseconds(random_.Below(random_.Chance(50) ? 10'000 : 20)), *look,
                   server_.Facts().server_wal_lsn};
  }
}

// As postgres::LookAgain.
void Simulation::AnswerLook() {
  if (!look_answer_ || now_.mono < look_answer_->due) {
    return;
  }
  const auto [due, look, wal_lsn] = *std::exchange(look_answer_, std::nullopt);
  StreamEnd end;
  if (server_state_ != ServerState::kUp || Happens(Fault::connect_failure, 300)) {
    end.status = absl::UnavailableError("connection refused");
    pipeline_->OnLooked(look, end, now_);
  } else if (const std::optional<StreamEnd> rejected = NotPublished()) {
    pipeline_->OnLooked(look, *rejected, now_);
  } else {
    base::SourceFacts facts = server_.Facts();
    facts.server_wal_lsn = std::min(facts.server_wal_lsn, wal_lsn);
    pipeline_->OnLooked(look, facts, now_);
  }
}

// Rows may be missing before the first one that an edit announces: nothing counts behind them.
void Simulation::CheckEdit() const {
  const std::optional<base::Lsn>& reported_at = server_.edit_reported_at();
  if (!foreign_.edited || !reported_at || foreign_halt_) {
    return;
  }
  Require(
      pipeline_->tracker().safe_lsn() <= *reported_at && server_.confirmed_flush() <= *reported_at,
      "G6: the publication was edited, a row at %s shows it, and it goes on to %s",
      reported_at->ToString(), pipeline_->tracker().safe_lsn().ToString());
}

// It goes on there: so nothing may be amiss that it could have known.
void Simulation::CheckAccepted(const base::SourceFacts& facts) {
  const std::optional<base::Progress>& remembered = kafka_.progress().newest();
  Require(!foreign_.elsewhere, "G6: it streams from another cluster");
  if (plan_.remembers()) {
    const base::Lsn known = remembered ? remembered->end_lsn : server_.consistent_point();
    Require(facts.confirmed_flush_lsn <= known || kafka_.progress().lacks(),
            "G6: the slot stands at %s, but only %s is remembered, and it goes on",
            facts.confirmed_flush_lsn.ToString(), known.ToString());
  }
  // A process compares with what it knows itself: only the next one learns of what a dead process's
  // late record says.
  const std::optional<base::SourceFacts>& before = accepted_;
  const bool learns = remembered && !before;
  if (learns) {
    Require(remembered->system_identifier == facts.system_identifier,
            "G6: progress is of another cluster, and it goes on");
    Require(remembered->publication_oid == facts.publication_oid,
            "G6: the publication was replaced, and it goes on");
  }
  if (before) {
    Require(before->publication_oid == facts.publication_oid,
            "G6: the publication was replaced since the last connection, and it goes on");
  }
  Require(!learns || remembered->publication_xmin == facts.publication_xmin,
          "G6: the publication was altered, and it goes on");
  Require(!before || before->publication_xmin == facts.publication_xmin,
          "G6: the publication was altered since the last connection, and it goes on");
  for (const base::PublishedTable& table : facts.tables) {
    const auto same = [&table](const base::PublishedTable& other) {
      return other.name != table.name ||
             (other.oid == table.oid && other.memberships == table.memberships);
    };
    Require(!learns || std::all_of(remembered->tables.begin(), remembered->tables.end(), same),
            "G6: table %s was replaced, and it goes on", table.name);
    Require(!before || std::all_of(before->tables.begin(), before->tables.end(), same),
            "G6: table %s was replaced since the last connection, and it goes on", table.name);
  }
  if (!remembered && !before) {
    if (kafka_.progress().lacks()) {
      DeleteProgress();  // nor does what was on its way to the old topic land in the new one
    }
    kafka_.progress().BeginAnew();
    foreign_.edited = false;  // there is nothing to compare with
    // Such a start may come upon rows of before a replacement that was seen to.
    foreign_.table = foreign_.table || server_.SlotHoldsReplaced();
  }
  judge_.OnConnected(plan_.remembers() && remembered ? remembered->end_lsn : base::Lsn());
  if (!foreign_.set_back) {
    judge_.OnPosition(facts.start_lsn, "START at");
  }
  accepted_ = facts;
  // Where memory suffices Kafka is not asked, and it notices later.
  const std::optional<base::Progress>& newest = kafka_.progress().newest();
  other_acted_ =
      other_acted_ && newest && facts.progress && facts.progress->end_lsn != newest->end_lsn;
  OtherActsLater();       // the stream may end in this very turn
  foreign_.slot = false;  // if so, then not beyond what is in Kafka
}

// Confirmed is only what is remembered: all else is someone else's.
void Simulation::CheckRemembered() {
  if (!plan_.remembers()) {
    return;
  }
  if (!foreign_.set_back) {
    judge_.OnPosition(judge_.progress_given(), "progress");
  }
  foreign_.progress = foreign_.progress && kafka_.progress().lacks();
  if (foreign_.slot || foreign_.cluster) {
    return;
  }
  const std::optional<base::Progress>& newest = kafka_.progress().newest();
  Require(!prefix_adopted_ || !newest || !newest->message_prefixes.empty(),
          "what another instance has adopted is undone");
  const base::Lsn remembered = Remembered(server_.consistent_point());
  Require(server_.confirmed_flush() <= remembered, "G6: confirmed is %s, remembered only %s",
          server_.confirmed_flush().ToString(), remembered.ToString());
}

bool Simulation::IsForeign(HaltReason reason) const {
  const std::optional<base::Progress>& newest = kafka_.progress().newest();
  switch (reason) {
    case HaltReason::kSlotMoved:
      return (foreign_.slot || foreign_.progress) && newest;
    case HaltReason::kClusterChanged:
      return foreign_.cluster;
    case HaltReason::kTimelineChanged: {
      if (foreign_.set_back || ForgottenDecision()) {
        return true;
      }
      if (!foreign_.timeline) {
        return false;
      }
      const base::SourceFacts facts = server_.Facts();
      bool beyond = false;
      for (const base::TimelineEnd& ancestor : facts.timeline_history) {
        beyond =
            beyond || handed_ > ancestor.end ||
            (newest && newest->timeline == ancestor.timeline && newest->end_lsn > ancestor.end);
      }
      return beyond;
    }
    case HaltReason::kTableReplaced:
      return foreign_.table || ForgottenDecision();
    case HaltReason::kPublicationMissing:
      return foreign_.publication || foreign_.edited;
    case HaltReason::kInitIncomplete:
      return prefix_adopted_ && !server_.prefix_configured();
    case HaltReason::kProgressUnreadable:
      return kafka_.progress_rejections() >= kRejectionsOfAMinute ||
             (!newest && (foreign_.progress || foreign_.slot));
    default:
      return false;
  }
}

// The server crashed right after an operator's decision, and its slot knows nothing of that.
std::optional<base::Lsn> Simulation::ForgottenDecision() const {
  for (const auto& known : {kafka_.progress().newest(), pipeline_->remembered_progress()}) {
    if (known && decided_epoch_ && known->epoch >= *decided_epoch_ &&
        known->last_transactions.empty() && server_.confirmed_flush() < known->end_lsn) {
      return known->end_lsn;
    }
  }
  return std::nullopt;
}

void Simulation::DeleteProgress() {
  kafka_.DeleteProgress();
  prefix_adopted_ = prefix_adopted_ && server_.prefix_configured();
}

// `slot advance` without a position, or `slot recreate`.
void Simulation::SeeToForeignHands() {
  const bool late = std::exchange(late_halt_, false);
  if (foreign_halt_ && prefix_adopted_ && !server_.prefix_configured()) {
    foreign_halt_ = false;
    server_.ConfigurePrefix();
    Trace("its configuration becomes that of the other one");
    return;
  }
  if (!foreign_halt_ || (!foreign_.any() && !ForgottenDecision() && !late)) {
    foreign_halt_ = false;
    return;
  }
  foreign_halt_ = false;
  if (!foreign_.any() && ForgottenDecision()) {
    server_.Confirm(*ForgottenDecision());  // `slot advance --to`, once more
  }
  if (foreign_.elsewhere) {
    server_.GoElsewhere(false);
    foreign_ = Foreign();
    Trace("the address is corrected");
    return;
  }
  if (server_.taken_out()) {
    server_.PutBack();
  }
  if (!plan_.remembers()) {
    foreign_ = Foreign();
    return;
  }
  if (server_.SlotHoldsReplaced() || (foreign_.publication && random_.Chance(500))) {
    server_.MakeSlotAnew();
  }
  const std::optional<base::Progress>& newest = kafka_.progress().newest();
  const base::SourceFacts facts = server_.Facts();
  base::Progress progress = facts.DecisionAt(facts.confirmed_flush_lsn, now_.wall, newest);
  progress.recorded_at = now_.wall;
  decided_epoch_ = progress.epoch;
  prefix_adopted_ = server_.prefix_configured();
  if (plan_.adopts && server_.configured()) {
    server_.AdoptByDecision(progress.tables.at(plan_.tables - 1).since);
  }
  if (!newest) {
    DeleteProgress();  // also what is still on its way there, from days ago
  }
  kafka_.progress().BeginAnew();
  kafka_.progress().Append(progress);
  judge_.OnAdopted(progress.end_lsn);
  foreign_ = Foreign();
  dead_letters_.ForgetSent();
  Trace("the operator goes on at", progress.end_lsn.ToString());
  if (server_state_ == ServerState::kUp && Happens(Fault::set_back, 300)) {
    SetBack();  // to before the decision, of which the server's log shows nothing
  } else if (server_state_ == ServerState::kUp && Happens(Fault::failover_loses, 300)) {
    LosingFailover();  // the decision was made on the server of before
  }
}

}  // namespace walpost::simulation
