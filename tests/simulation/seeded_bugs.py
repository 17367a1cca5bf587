#!/usr/bin/env python3
"""Writes copies of the core's sources that hold mistakes, each of which can be switched on at run time.

A test that has never failed proves nothing: simulation_bugs plays one mistake at a time and must catch every one. The sources themselves
stay clean; each place below must be found in them exactly once, or the build stops and says which one is to be brought up to date.

    seeded_bugs.py SOURCE_FOLDER OUTPUT_FOLDER    writes the copies and seeded_bug_names.inc
    seeded_bugs.py --files                        the sources that hold a mistake, relative to SOURCE_FOLDER
"""

import pathlib
import re
import sys

# (file, the code as it is, the code with mistakes: BUG(name) is true when that one is switched on)
BUGS = [
    ("delivery/tracker.cc",
     "PushCheckpoint(next_sequence(), end_lsn);",
     "PushCheckpoint(next_sequence(), BUG(confirm_commit_lsn) ? transaction_commit_lsn_ : end_lsn);"),
    ("delivery/tracker.cc",
     "PushCheckpoint(next_sequence(), wal_end);",
     "PushCheckpoint(BUG(keepalive_with_in_flight) ? first_sequence_ : next_sequence(), wal_end);"),
    ("delivery/tracker.cc",
     "entry->settled = true;\n  in_flight_bytes_ -= entry->bytes;",
     "entry->settled = true;\n  in_flight_bytes_ -= BUG(in_flight_bytes_leak) ? 0 : entry->bytes;"),
    ("delivery/tracker.cc",
     "newest.lsn = lsn;",
     "newest.lsn = BUG(checkpoint_not_raised) ? newest.lsn : lsn;"),
    ("pipeline/dispatcher.cc",
     "if (entry.settled) {",
     "if (entry.settled && !BUG(settled_resubmitted)) {"),
    ("pipeline/dispatcher.cc",
     "if (result.outcome == SubmitResult::Outcome::kNotNow) {\n      return;",
     "if (result.outcome == SubmitResult::Outcome::kNotNow) {\n      if (BUG(not_now_skipped)) { ++cursor_; continue; }\n      return;"),
    ("pipeline/dispatcher.cc",
     "      if (!Decide(cursor_, result.failure, 1)) {",
     "      if (BUG(refused_settled)) { tracker_->Settle(cursor_); continue; }\n"
     "      if (!Decide(cursor_, result.failure, 1)) {"),
    ("pipeline/dispatcher.cc",
     "    if (cursor_ < resubmit_below_) {",
     "    if (BUG(bytes_freed_early)) tracker_->arena()->Release(entry.record.block);\n    if (cursor_ < resubmit_below_) {"),
    ("pipeline/dispatcher.cc",
     "void Dispatcher::OnDelivered(delivery::Sequence sequence, delivery::PartitionOffset where) {",
     "void Dispatcher::OnDelivered(delivery::Sequence sequence, delivery::PartitionOffset where) {\n"
     "  if (BUG(report_dropped) && sequence % 8 == 5) return;\n"
     "  if (BUG(late_report_ignored) && phase_ == Phase::kClosing) return;"),
    ("pipeline/dispatcher.cc",
     "  if (phase_ == Phase::kFast || failure.kind == FailureKind::kGenerationEnded) {",
     "  if (BUG(failure_ignored)) return;\n"
     "  if ((phase_ == Phase::kFast && !BUG(innocent_blamed)) || failure.kind == FailureKind::kGenerationEnded) {"),
    ("pipeline/dispatcher.cc",
     "      decider_->Decide(sequence, failure, static_cast<std::uint32_t>(attempts));",
     "      decider_->Decide(BUG(wrong_event_blamed) ? tracker_->oldest_unsettled() + 1 : sequence, failure,\n"
     "                       static_cast<std::uint32_t>(attempts));"),
    ("pipeline/dispatcher.cc",
     "void Dispatcher::OnGenerationFailed(const delivery::Failure&) {",
     "void Dispatcher::OnGenerationFailed(const delivery::Failure&) {\n  if (BUG(generation_failure_ignored)) return;"),
    ("pipeline/dispatcher.cc",
     "  cursor_ = tracker_->oldest_unsettled();\n}",
     "  cursor_ = tracker_->oldest_unsettled();\n  if (BUG(resubmission_forgets_first) && !tracker_->empty()) ++cursor_;\n}"),
    ("pipeline/intake.cc",
     "void Intake::Forget() {",
     "void Intake::Forget() {\n  if (BUG(taken_not_forgotten)) return;"),
    ("pipeline/intake.cc",
     "transaction_.timeline = facts_.TimelineOf(begin.commit_lsn);",
     "transaction_.timeline = BUG(server_timeline) ? facts_.timeline : facts_.TimelineOf(begin.commit_lsn);"),
    ("pipeline/status_clock.cc",
     "reply_now_ = true;",
     "reply_now_ = !BUG(reply_not_sent);"),
    ("pipeline/status_clock.cc",
     "return undelivered && requests_ >= kStoppingRequests;",
     "return undelivered && requests_ >= kStoppingRequests && !BUG(burst_ignored);"),
    ("delivery/tracker.cc",
     "  while (!checkpoints_.empty()) {\n    checkpoints_.PopFront();",
     "  while (!checkpoints_.empty() && !BUG(positions_survive_discard)) {\n    checkpoints_.PopFront();"),
    ("pipeline/intake.cc",
     "  tracker_->CommitTransaction(commit.end_lsn);",
     "  if (BUG(empty_transaction_ignored) && transaction_.next_ordinal == 0) {\n"
     "    tracker_->LeaveTransaction();\n    return std::nullopt;\n  }\n"
     "  tracker_->CommitTransaction(commit.end_lsn);"),
    ("pipeline/intake.cc",
     "  if (found != nullptr) {\n    // Reported",
     "  if (found != nullptr && !(BUG(ddl_ignored) && outbox_by_oid_.contains(oid))) {\n    // Reported"),
    ("pipeline/intake.cc",
     "  if (last_outbox_ == nullptr) {",
     "  if (last_outbox_ == nullptr) {\n    transaction_.next_ordinal -= BUG(ignored_row_not_counted) ? 1 : 0;"),
    ("pipeline/intake.cc",
     "  const std::uint32_t ordinal = transaction_.next_ordinal++;\n  const std::vector<std::string>& prefixes",
     "  const std::uint32_t ordinal = transaction_.next_ordinal;\n"
     "  transaction_.next_ordinal += BUG(message_not_counted) ? 0 : 1;\n  const std::vector<std::string>& prefixes"),
    ("pipeline/intake.cc",
     "  return transaction_.commit_lsn < taken_commit_lsn_ ||",
     "  const std::int64_t taken_ordinal =\n"
     "      taken_ordinal_ + (BUG(drops_one_too_many) ? 1 : 0) - (BUG(repeats_last_row) ? 1 : 0);\n"
     "  if (BUG(repeats_not_dropped)) return false;\n"
     "  return transaction_.commit_lsn < taken_commit_lsn_ ||"),
    ("pipeline/intake.cc",
     "static_cast<std::int64_t>(ordinal) <= taken_ordinal_);",
     "static_cast<std::int64_t>(ordinal) <= taken_ordinal);"),
    ("pipeline/pipeline.cc",
     "    ReconnectAfter(standby_backoff_.Next(), reason, now);",
     "    if (!BUG(standby_gives_up)) ReconnectAfter(standby_backoff_.Next(), reason, now);"),
    ("pipeline/pipeline.cc",
     "  phase_ = Phase::kConnecting;\n  return tracker_.safe_lsn();",
     "  phase_ = Phase::kConnecting;\n  return BUG(start_at_received) ? intake_.received_lsn() : tracker_.safe_lsn();"),
    ("pipeline/pipeline.cc",
     "status.flush = confirmable();",
     "status.flush = BUG(confirm_received)          ? intake_.received_lsn()\n"
     "               : BUG(confirm_before_progress) ? tracker_.safe_lsn() : confirmable();"),
    ("pipeline/pipeline.cc",
     "void Pipeline::OnServerStopping(base::Now now) {",
     "void Pipeline::OnServerStopping(base::Now now) {\n  if (BUG(server_stop_ignored)) return;"),
    ("pipeline/pipeline.cc",
     "tracker_.in_flight_bytes() < options_.in_flight_bytes_max;",
     "(tracker_.in_flight_bytes() < options_.in_flight_bytes_max || BUG(no_pause_at_limit));"),
    ("pipeline/pipeline.cc",
     "  if (!connected_ || !paused_ || now.mono < next_ping_) {",
     "  if (!connected_ || !paused_ || now.mono < next_ping_ || BUG(no_ping)) {"),
    ("pipeline/pipeline.cc",
     "tracker_.empty() && !intake_.in_transaction()) {",
     "tracker_.empty() && (!intake_.in_transaction() || BUG(recheck_spins))) {"),
    ("pipeline/pipeline.cc",
     "  counters_.events_discarded += tracker_.DiscardAll();",
     "  const std::size_t discarded = tracker_.DiscardAll();\n"
     "  counters_.events_discarded += BUG(discard_not_counted) ? 0 : discarded;"),
    ("pipeline/pipeline.cc",
     "end.context.empty() ?",
     "end.context.empty() && !BUG(errors_without_place) ?"),
    ("pipeline/pipeline.cc",
     "  if (same_errors_ < kSameErrorMax) {",
     "  if (same_errors_ < (BUG(poison_at_second_error) ? 2 : kSameErrorMax)) {"),
    ("pipeline/status_clock.cc",
     "(safe > last_flush_ ? kConfirmWithin : interval_);",
     "(safe > last_flush_ && !BUG(confirm_late) ? kConfirmWithin : interval_ * (BUG(status_too_seldom) ? 3 : 1));"),
    ("pipeline/decider.cc",
     "    if (entry.stub || !StubMayHelp(failure.kind)) {",
     "    if (BUG(refused_letter_settled)) { tracker_->Settle(sequence); return std::nullopt; }\n"
     "    if (entry.stub || !StubMayHelp(failure.kind)) {"),
    ("pipeline/decider.cc",
     "    ++counters_->events_skipped;\n    Tell(Decision::Kind::kSkipped, letter, entry.record.key);\n    tracker_->Settle(sequence);",
     "    counters_->events_skipped += BUG(skip_not_counted) ? 0 : 1;\n    Tell(Decision::Kind::kSkipped, letter, entry.record.key);\n    tracker_->Settle(sequence);"),
    ("pipeline/decider.cc",
     "    letter->kind = LetterKind::kParked;\n    lot_->Park(",
     "    letter->kind = BUG(parked_as_letter) ? LetterKind::kLetter : LetterKind::kParked;\n    lot_->Park("),
    ("pipeline/dispatcher.cc",
     "    if (lot_->any() && !MayGo(entry)) {",
     "    if (lot_->any() && !BUG(follower_not_parked) && !MayGo(entry)) {"),
    ("pipeline/dispatcher.cc",
     "Form::kParked && !lot_->MayWrite(cursor_)) {",
     "Form::kParked && !lot_->MayWrite(cursor_) && !BUG(letter_overtakes)) {"),
    ("pipeline/dispatcher.cc",
     "    ++cursor_;\n  }\n}\n\n// An event of a parked key",
     "    ++cursor_;\n    if (BUG(letter_settled_when_submitted) && entry.form != delivery::Tracker::Form::kEvent) {\n"
     "      ++counters_->events_parked;\n      tracker_->Settle(cursor_ - 1);\n    }\n  }\n}\n\n// An event of a parked key"),
    ("pipeline/dispatcher.cc",
     "      lot_->OnRefused(failure, phase_ == Phase::kCareful, now_);",
     "      lot_->OnRefused(failure, phase_ == Phase::kCareful || BUG(company_is_a_verdict), now_);"),
    ("delivery/tracker.cc",
     "  in_flight_bytes_ -= entry->bytes;\n  entry->record = letter;",
     "  in_flight_bytes_ -= BUG(replaced_bytes_leak) ? 0 : entry->bytes;\n  entry->record = letter;"),
    ("pipeline/parking_lot.cc",
     "  ready_ = false;\n  at_end_ = false;\n  reading_ = false;",
     "  ready_ = BUG(stream_before_log);\n  at_end_ = false;\n  if (BUG(parked_forgotten_at_reconnect)) { keys_.clear(); commands_.clear(); }\n  reading_ = false;"),
    ("pipeline/parking_lot.cc",
     "  if (!reading_ || read.id != read_id_) {",
     "  if (!reading_ || (read.id != read_id_ && !BUG(stale_read_taken))) {"),
    ("pipeline/parking_lot.cc",
     "  return release_ && release_->held &&",
     "  return release_ && release_->held && !BUG(line_not_held) &&"),
    ("pipeline/parking_lot.cc",
     "    if (parked.last() <= letter.through) {",
     "    if (parked.last() <= letter.through || BUG(decision_releases_all)) {"),
    ("pipeline/parking_lot.cc",
     "    parked.discarded.insert(letter.position);",
     "    if (!BUG(discarded_event_sent)) parked.discarded.insert(letter.position);"),
    ("pipeline/parking_lot.cc",
     "    commands_.erase(*letter.answers);",
     "    if (!BUG(command_obeyed_again)) commands_.erase(*letter.answers);"),
    ("pipeline/parking_lot.cc",
     "      EndRelease();",
     "      if (BUG(release_gone_while_sending)) release_.reset(); else EndRelease();"),
    ("pipeline/parking_lot_release.cc",
     "    if (release_->sent_through >= parked->last()) {",
     "    if (release_->sent_through >= parked->last() || BUG(decided_before_the_end)) {"),
    ("pipeline/parking_lot_release.cc",
     "  letter.through = parked.last();",
     "  letter.through = BUG(decision_too_far) ? parked.last().substr(0, 27) + \"ffffffffffffffff-ffffffff\" : parked.last();"),
    ("pipeline/parking_lot_release.cc",
     "  if (next.letter.left_out_bytes || next.letter.reason == envelope::kMessageMalformed) {",
     "  if ((next.letter.left_out_bytes || next.letter.reason == envelope::kMessageMalformed) && !BUG(stub_sent)) {"),
    ("pipeline/parking_lot_release.cc",
     "    const std::string position = release_->events.front().letter.position;\n    Drop();",
     "    const std::string position = release_->events.front().letter.position;\n"
     "    if (BUG(refused_retry_passed)) { OnAcknowledged(); return; }\n    Drop();"),
    ("pipeline/parking_lot_release.cc",
     "    retry_at_ = base::MonotonicTime();  // the sink may take it any time",
     "    if (!BUG(passed_deadline_kept)) retry_at_ = base::MonotonicTime();  // the sink may take it any time"),
    ("pipeline/parking_lot_release.cc",
     "    found->second.discarded.insert(command.position);  // is it the last one?\n  }",
     "    found->second.discarded.insert(command.position);\n  } else if (BUG(discard_at_once) && command.action == LetterAction::kDiscard) {\n"
     "    Decide(LetterAction::kDiscarded);\n  }"),
    ("pipeline/parking_lot_release.cc",
     "position > parked->decided_through &&",
     "(position > parked->decided_through || BUG(decided_sent_again)) &&"),
    ("pipeline/parking_lot_release.cc",
     "  release_->settled_below = tracker_->next_sequence();",
     "  release_->settled_below = BUG(release_waits_for_nothing) ? 0 : tracker_->next_sequence();"),
    ("pipeline/pipeline_progress.cc",
     "  keeper_.Tick(tracker_.safe_lsn(),",
     "  keeper_.Tick(BUG(progress_before_delivery) ? intake_.received_lsn() : tracker_.safe_lsn(),"),
    ("pipeline/progress_keeper.cc",
     "  acknowledged_ = base::Lsn();",
     "  acknowledged_ = BUG(acknowledged_of_before) ? acknowledged_ : base::Lsn();"),
    ("pipeline/progress_keeper.cc",
     "  progress_.epoch = remembered_ ? remembered_->epoch : 0;",
     "  progress_.epoch = remembered_ && !BUG(epoch_not_kept) ? remembered_->epoch : 0;"),
    ("pipeline/progress_keeper.cc",
     "  if (phase_ == Phase::kOutstanding) {\n    phase_ = Phase::kWaiting;",
     "  if (phase_ == Phase::kOutstanding) {\n    if (BUG(lost_progress_counts)) {\n      OnAcknowledged();\n      return;\n    }\n    phase_ = Phase::kWaiting;"),
    ("pipeline/remembered_progress.cc",
     "    if (chosen == nullptr || rank(progress) > rank(*chosen)) {",
     "    if (chosen == nullptr || rank(progress) > rank(*chosen) || BUG(last_record_counts)) {"),
    ("pipeline/remembered_progress.cc",
     "    return std::tuple(progress.epoch,",
     "    return std::tuple(BUG(epoch_ignored) ? 0 : progress.epoch,"),
    ("pipeline/remembered_progress.cc",
     "    if (progress.end_lsn > ancestor.end) {",
     "    if (progress.end_lsn > ancestor.end && !BUG(lost_timeline_ignored)) {"),
    ("pipeline/remembered_progress.cc",
     "  if (!halt && facts.confirmed_flush_lsn > progress->end_lsn) {",
     "  if (!halt && facts.confirmed_flush_lsn > progress->end_lsn && !BUG(moved_slot_ignored)) {"),
    ("pipeline/remembered_progress.cc",
     "  if (progress->system_identifier != facts.system_identifier) {",
     "  if (progress->system_identifier != facts.system_identifier && !BUG(other_cluster_ignored)) {"),
    ("pipeline/remembered_progress.cc",
     "  if (!facts.consistent_point.valid() ||",
     "  if (BUG(deleted_progress_ignored) || !facts.consistent_point.valid() ||"),
    ("pipeline/remembered_progress.cc",
     "    halt = JudgeFingerprint(*progress, facts);",
     "    halt = BUG(replaced_ignored) ? std::nullopt : JudgeFingerprint(*progress, facts);"),
    ("pipeline/remembered_progress.cc",
     "              : ProgressVerdict{std::nullopt, *progress};",
     "              : ProgressVerdict{std::nullopt, BUG(start_at_confirmed) ? std::nullopt : std::optional(*progress)};"),
    ("pipeline/remembered_progress.cc",
     "         facts.confirmed_flush_lsn <= known->end_lsn;",
     "         (facts.confirmed_flush_lsn <= known->end_lsn || BUG(known_always_suffices));"),
    ("pipeline/source_change.cc",
     "    if (ancestor.timeline == before.timeline && seen_lsn > ancestor.end) {",
     "    if (ancestor.timeline == before.timeline && seen_lsn > ancestor.end && !BUG(lost_while_streaming_ignored)) {"),
    ("pipeline/source_change.cc",
     "  if (now.publication_oid != before.publication_oid) {",
     "  if (now.publication_oid != before.publication_oid && !BUG(replaced_ignored)) {"),
    ("pipeline/intake.cc",
     "  return std::max({received_lsn_, complete_lsn_, taken});",
     "  return BUG(open_transaction_forgotten) ? received_lsn_ : std::max({received_lsn_, complete_lsn_, taken});"),
    ("pipeline/progress_keeper.cc",
     "    refusing_ += std::min(gap, kRefusingMax);",
     "    refusing_ += BUG(outage_is_a_refusal) ? gap : std::min(gap, kRefusingMax);"),
    ("pipeline/intake.cc",
     "    if (same_name && outboxes_[i].oid != oid) {",
     "    if (same_name && outboxes_[i].oid != oid && !BUG(other_oid_ignored)) {"),
    ("pipeline/pipeline.cc",
     "  const bool done = Drained() && keeper_.Settled(tracker_.safe_lsn());\n  if (done || now.mono",
     "  const bool done = Drained() && (BUG(stop_without_progress) || keeper_.Settled(tracker_.safe_lsn()));\n  if (done || now.mono"),
]

HEADER = """// Written by seeded_bugs.py.
#define WALPOST_SEEDED_BUG_LIST(X) {list}
"""


def names():
    return list(dict.fromkeys(name for _, _, mistaken in BUGS for name in re.findall(r"BUG\((\w+)\)", mistaken)))


def write_copies(source, output):
    for file in sorted({bug[0] for bug in BUGS}):
        text = (source / file).read_text(encoding="utf-8")
        for name, original, mistaken in BUGS:
            if name != file:
                continue
            if text.count(original) != 1:
                sys.exit(f"seeded_bugs.py: {file} holds this {text.count(original)} times instead of once; bring the list up to date:\n{original}")
            text = text.replace(original, mistaken)
        target = output / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text('#include "simulation/seeded_bug.h"\n' + text, encoding="utf-8")
    listed = " ".join(f"X({name})" for name in names())
    (output / "seeded_bug_names.inc").write_text(HEADER.format(list=listed), encoding="utf-8")


def main():
    if sys.argv[1:] == ["--files"]:
        print("\n".join(sorted({bug[0] for bug in BUGS})))
    elif len(sys.argv) == 3:
        write_copies(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
