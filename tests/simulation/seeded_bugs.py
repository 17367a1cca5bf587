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
    ("outbox/topic_rules.cc",
     "if (IsReservedTopic(topic) || own_.find(topic) != own_.end()) {",
     "if (!BUG(own_topics_open) && (IsReservedTopic(topic) || own_.find(topic) != own_.end())) {"),
    ("delivery/tracker.cc",
     "PushCheckpoint(next_sequence(), end_lsn);",
     "PushCheckpoint(next_sequence(), BUG(confirm_commit_lsn) ? transaction_commit_lsn_ : end_lsn);"),
    ("delivery/tracker.cc",
     "PushCheckpoint(next_sequence(), wal_end);",
     "PushCheckpoint(BUG(keepalive_with_in_flight) ? first_sequence_ : next_sequence(), wal_end);"),
    ("delivery/tracker.cc",
     "entry->settled = true;\n  in_flight_bytes_ -= entry->bytes;",
     "entry->settled = true;\n  in_flight_bytes_ -= BUG(in_flight_bytes_leak) ? 0 : entry->bytes;"),
    ("delivery/partition_gate.cc",
     "alone_ = !known_ || now - known_at_ >= known_for;",
     "alone_ = !known_ || (now - known_at_ >= known_for && !BUG(idle_partition_trusted));"),
    ("delivery/partition_gate.cc",
     "void PartitionGate::OnMadeAnew() {",
     "void PartitionGate::OnMadeAnew() {\n  if (BUG(topic_made_anew_trusted)) return;"),
    ("delivery/tracker.cc",
     "newest.lsn = lsn;",
     "newest.lsn = BUG(checkpoint_not_raised) ? newest.lsn : lsn;"),
    ("pipeline/dispatcher.cc",
     "const Fate fate = behind",
     "const Fate fate = behind && !BUG(held_overtaken)"),
    ("pipeline/dispatcher.cc",
     "return !entry.settled && entry.form",
     "return (!entry.settled || BUG(settled_resubmitted)) && entry.form"),
    ("pipeline/dispatcher.cc",
     "      case SubmitResult::Outcome::kNotNow:\n        return Fate::kStopped;",
     "      case SubmitResult::Outcome::kNotNow:\n        return BUG(not_now_skipped) ? Fate::kGone : Fate::kStopped;"),
    ("pipeline/dispatcher.cc",
     "    if (!Decide(sequence, result.failure, 1)) {",
     "    if (BUG(rejected_settled)) { tracker_->Settle(sequence); continue; }\n"
     "    if (!Decide(sequence, result.failure, 1)) {"),
    ("pipeline/dispatcher.cc",
     "        if (sequence < resubmit_below_) {",
     "        if (BUG(bytes_freed_early)) tracker_->arena()->Release(entry.record.block);\n        if (sequence < resubmit_below_) {"),
    ("pipeline/dispatcher.cc",
     "void Dispatcher::OnDelivered(delivery::Sequence sequence, delivery::PartitionOffset where) {",
     "void Dispatcher::OnDelivered(delivery::Sequence sequence, delivery::PartitionOffset where) {\n"
     "  if (BUG(report_dropped) && sequence % 8 == 5) return;\n"
     "  if (BUG(late_report_ignored) && phase_ == Phase::kClosing) return;"),
    ("pipeline/dispatcher.cc",
     "  if (phase_ == Phase::kPipelined || failure.kind == FailureKind::kSessionEnded) {",
     "  if (BUG(failure_ignored)) return;\n"
     "  if ((phase_ == Phase::kPipelined && !BUG(innocent_blamed)) || failure.kind == FailureKind::kSessionEnded) {"),
    ("pipeline/held_topics.cc",
     "failure.kind == FailureKind::kTopicInvalid || trouble.same_for >= unknown_wait_;",
     "BUG(unknown_topic_believed_at_once) || failure.kind == FailureKind::kTopicInvalid || trouble.same_for >= unknown_wait_;"),
    ("pipeline/held_topics.cc",
     ": trouble.unclear_for >= kUnclearFor && delivered > trouble.delivered;",
     ": BUG(unclear_answer_believed) || (trouble.unclear_for >= kUnclearFor && delivered > trouble.delivered);"),
    ("pipeline/dispatcher.cc",
     "undeliverables_->Decide(sequence, failure, attempts);",
     "undeliverables_->Decide(BUG(wrong_event_blamed) ? tracker_->oldest_unsettled() + 1 : sequence, failure, attempts);"),
    ("pipeline/dispatcher.cc",
     "void Dispatcher::OnSessionFailed(const delivery::Failure&) {",
     "void Dispatcher::OnSessionFailed(const delivery::Failure&) {\n  if (BUG(session_failure_ignored)) return;"),
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
    ("pipeline/intake_relations.cc",
     "  if (found != nullptr) {\n    // Reported",
     "  const bool again = found != nullptr && found->announced;\n"
     "  if (found != nullptr && !(BUG(ddl_ignored) && again)) {\n    // Reported"),
    ("pipeline/intake.cc",
     "IsOlderThanAdoption(last_outbox_)) {\n    ++counters_->changes_ignored;",
     "IsOlderThanAdoption(last_outbox_)) {\n    transaction_.next_ordinal += BUG(ignored_row_counted) ? 1 : 0;\n    ++counters_->changes_ignored;"),
    ("pipeline/intake.cc",
     "  if (prefix == prefixes.end()) {",
     "  if (prefix == prefixes.end()) {\n    transaction_.next_ordinal += BUG(ignored_message_counted) ? 1 : 0;"),
    ("pipeline/known_transactions.cc",
     "  taken_through_ = expected.end.valid() ? Taken{kWhole, expected.end} : newest_;",
     "  taken_through_ = expected.end.valid() ? Taken{kWhole, expected.end} : newest_;\n"
     "  if (!expected.end.valid()) {\n    taken_through_.ordinal += (BUG(drops_one_too_many) ? 1 : 0) - (BUG(repeats_last_row) ? 1 : 0);\n  }\n"
     "  if (BUG(repeats_not_dropped)) taken_through_ = Taken();"),
    ("pipeline/known_transactions.cc",
     "  if (begun != expected.transaction) {",
     "  if (BUG(xid_not_compared) && begun.commit_lsn == expected.transaction.commit_lsn) {\n"
     "    // any transaction there will do\n"
     "  } else if (begun != expected.transaction && !BUG(other_transaction_taken)) {"),
    ("pipeline/known_transactions.cc",
     "  return entries_.empty() ? base::Lsn() : entries_.front().transaction.commit_lsn;",
     "  return entries_.empty() ? base::Lsn()\n"
     "         : BUG(start_after_the_last) ? base::Lsn(entries_.front().transaction.commit_lsn.value() + 1)\n"
     "                                     : entries_.front().transaction.commit_lsn;"),
    ("pipeline/known_transactions.cc",
     "  while (next_ > 0 && entries_.size() > 1",
     "  while ((next_ > 0 || BUG(forgotten_while_awaited)) && entries_.size() > 1"),
    ("pipeline/intake.cc",
     "  if (std::optional<Halt> halt = known_.OnPosition(complete)) {",
     "  if (std::optional<Halt> halt = BUG(missing_transaction_ignored) ? std::nullopt : known_.OnPosition(complete)) {"),
    ("pipeline/intake.cc",
     "(begin.commit_lsn < complete_lsn_ || !known_.verified());",
     "(begin.commit_lsn < complete_lsn_ || !known_.verified()) && !BUG(other_history_taken);"),
    ("pipeline/intake_events.cc",
     "  if (since.Covers(transaction_.commit_lsn, transaction_.commit_time)) {",
     "  if (since.Covers(transaction_.commit_lsn, BUG(since_without_a_clock) ? since.at : transaction_.info.commit_time)) {"),
    ("pipeline/intake.cc",
     "    complete_lsn_ = std::max(complete_lsn_, facts.progress->end_lsn);",
     "    if (!BUG(remembered_position_forgotten)) complete_lsn_ = std::max(complete_lsn_, facts.progress->end_lsn);"),
    ("pipeline/pipeline_source.cc",
     "  timers_.OnAloneForLong();\n",
     "  timers_.OnAloneForLong();\n  if (BUG(publishes_alone)) return;\n"),
    ("pipeline/pipeline_source.cc",
     "  return timers_.alone_for_long() ? std::nullopt",
     "  return timers_.alone_for_long() && !BUG(kafka_not_asked) ? std::nullopt"),
    ("pipeline/pipeline_source.cc",
     "  if (TakenOver(facts)) {",
     "  if (TakenOver(facts) && !BUG(take_over_ignored)) {"),
    ("pipeline/pipeline_source.cc",
     "  if (timers_.OnPassed(intake_.connection_lsn(),",
     "  if (timers_.OnPassed(BUG(planned_before_caught_up) ? base::Lsn(UINT64_MAX) : intake_.connection_lsn(),"),
    ("pipeline/pipeline_source.cc",
     "  status_clock_.Start(facts.wal_sender_timeout_ms, now, timers_.Doublings(intake_.received_lsn()));",
     "  status_clock_.Start(facts.wal_sender_timeout_ms, now, BUG(silence_not_doubled) ? 0 : timers_.Doublings(intake_.received_lsn()));"),
    ("pipeline/pipeline.cc",
     "    ReconnectAfter(standby_backoff_.Next(), reason, now);",
     "    if (!BUG(standby_gives_up)) ReconnectAfter(standby_backoff_.Next(), reason, now);"),
    ("pipeline/pipeline.cc",
     "  attempt_unanswered_ = true;\n  return intake_.TakeStart();",
     "  attempt_unanswered_ = true;\n  const base::Lsn start = intake_.TakeStart();\n  return BUG(start_at_received) ? intake_.received_lsn() : start;"),
    ("pipeline/pipeline.cc",
     "status.flush = flush;",
     "status.flush = BUG(confirm_received)          ? intake_.received_lsn()\n"
     "               : BUG(confirm_before_progress) ? tracker_.safe_lsn() : flush;"),
    ("pipeline/pipeline_source.cc",
     "void Pipeline::LeaveServer(const std::string& why, base::Now now) {",
     "void Pipeline::LeaveServer(const std::string& why, base::Now now) {\n  if (BUG(server_stop_ignored)) return;"),
    ("pipeline/pipeline.cc",
     "retained_bytes < options_.in_flight_bytes_max);",
     "((BUG(retained_not_counted) ? tracker_.in_flight_bytes() : retained_bytes) < options_.in_flight_bytes_max || BUG(no_pause_at_limit)));"),
    ("pipeline/pipeline.cc",
     "  return connected_ ? pings_.Take(now)",
     "  return connected_ && !BUG(no_ping) ? pings_.Take(now)"),
    ("pipeline/pipeline.cc",
     "      !intake_.in_transaction()) {\n    deadline",
     "      (!intake_.in_transaction() || BUG(planned_reconnect_spins))) {\n    deadline"),
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
    ("pipeline/undeliverables.cc",
     "  ++counters_->events_skipped;\n  Report(Decision::Kind::kSkipped, row, tracker_->entry(sequence)",
     "  counters_->events_skipped += BUG(skip_not_counted) ? 0 : 1;\n  Report(Decision::Kind::kSkipped, row, tracker_->entry(sequence)"),
    ("pipeline/undeliverables.cc",
     "  if (row->parked) {\n    dead_letters_->Add(",
     "  row->parked = row->parked && !BUG(parked_as_dead_letter);\n  if (row->parked) {\n    dead_letters_->Add("),
    ("pipeline/undeliverables.cc",
     "  if (undeliverable.row) {",
     "  if (undeliverable.row && !BUG(row_not_kept)) {"),
    ("pipeline/dispatcher.cc",
     "    if (dead_letters_->any()) {\n      const std::optional<Fate> fate",
     "    if (dead_letters_->any() && !BUG(follower_not_parked)) {\n      const std::optional<Fate> fate"),
    ("pipeline/dispatcher.cc",
     "    ++cursor_;\n  }\n}\n\n// What waits with its topic",
     "    ++cursor_;\n    if (BUG(settled_before_written) && !entry.settled && entry.form != delivery::Tracker::Form::kEvent) {\n"
     "      ++counters_->events_parked;\n      tracker_->Settle(cursor_ - 1);\n    }\n  }\n}\n\n// What waits with its topic"),
    ("pipeline/dispatcher.cc",
     "      dead_letters_->OnRejected(failure, phase_ == Phase::kOneAtATime, now_);",
     "      dead_letters_->OnRejected(failure, phase_ == Phase::kOneAtATime || BUG(company_decides), now_);"),
    ("pipeline/dead_letters.cc",
     "  loaded_ = !may_be_open &&",
     "  may_be_open = may_be_open && !BUG(stream_before_load);\n  loaded_ = !may_be_open &&"),
    ("pipeline/dead_letters.cc",
     "  if (!asked_ || reply.id != request_id_) {",
     "  if (!asked_ || (reply.id != request_id_ && !BUG(stale_reply_taken))) {"),
    ("pipeline/dead_letters.cc",
     "  if (!id) {\n    return true;",
     "  if (!id || BUG(row_overtakes)) {\n    return true;"),
    ("pipeline/dead_letters.cc",
     "  if (!reply.status.ok()) {",
     "  if (!reply.status.ok() && BUG(failed_insert_counts) && asked_kind_ == Kind::kInsert) {\n"
     "    reply.open.assign(inserting_.size(), true);\n  } else if (!reply.status.ok()) {"),
    ("pipeline/dead_letters_release.cc",
     "  if (found->second.waiting == 0) {\n    keys_.erase(found);",
     "  if (found->second.waiting == 0 || BUG(key_goes_too_soon)) {\n    keys_.erase(found);"),
    ("pipeline/dead_letters_release.cc",
     "      release_->phase = Release::Phase::kReading;\n    } else {",
     "      if (BUG(not_read_to_the_end)) { KeyIsDone(); return; }\n      release_->phase = Release::Phase::kReading;\n    } else {"),
    ("pipeline/dead_letters_release.cc",
     "  release_->phase = Release::Phase::kLooking;\n}\n\n// As the row",
     "  if (BUG(decision_read_once)) { Send(); return; }\n  release_->phase = Release::Phase::kLooking;\n}\n\n// As the row"),
    ("pipeline/dead_letters_release.cc",
     "  if (next.truncated_bytes || next.reason == envelope::kMessageMalformed) {",
     "  if ((next.truncated_bytes || next.reason == envelope::kMessageMalformed) && !BUG(truncated_sent)) {"),
    ("pipeline/dead_letters_release.cc",
     "    Drop();\n    Fail(failure.detail);",
     "    if (BUG(rejected_retry_passed)) { OnLost(); sending_ = Sending::kOutstanding; OnAcknowledged(); return; }\n"
     "    Drop();\n    Fail(failure.detail);"),
    ("pipeline/dead_letters_release.cc",
     "    retry_at_ = base::MonotonicTime();  // the sink may take it any time",
     "    if (!BUG(passed_deadline_kept)) retry_at_ = base::MonotonicTime();  // the sink may take it any time"),
    ("pipeline/dead_letters_release.cc",
     "  CHECK(sending_ == Sending::kOutstanding);\n  Drop();",
     "  CHECK(sending_ == Sending::kOutstanding);\n  Drop();\n"
     "  if (BUG(sent_row_stays)) { release_->cursor = release_->rows.front().seq; release_->rows.pop_front(); SendNext(); return; }"),
    ("pipeline/pipeline.cc",
     "  dead_letters_.GiveUp();",
     "  if (!BUG(waiting_kept_at_halt)) dead_letters_.GiveUp();"),
    ("pipeline/pipeline_progress.cc",
     "  keeper_.Tick(tracker_.safe_lsn(),",
     "  keeper_.Tick(BUG(progress_before_delivery) ? intake_.received_lsn() : tracker_.safe_lsn(),"),
    ("pipeline/progress_keeper.cc",
     "  acknowledged_ = base::Lsn();",
     "  acknowledged_ = BUG(acknowledged_of_before) ? acknowledged_ : base::Lsn();"),
    ("pipeline/progress_keeper.cc",
     "  progress_.epoch = epoch();",
     "  progress_.epoch = BUG(epoch_not_kept) ? 0 : epoch();"),
    ("pipeline/progress_keeper.cc",
     "    progress_.last_transaction = known_->LastBefore(position);",
     "    if (!BUG(last_transaction_not_remembered)) progress_.last_transaction = known_->LastBefore(position);"),
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
    ("pipeline/fingerprint.cc",
     "  if (before.publication_oid != 0 && now",
     "  if (BUG(replaced_ignored)) return std::nullopt;\n  if (before.publication_oid != 0 && now"),
    ("pipeline/fingerprint.cc",
     "      if (!StaysPublished(old, table)) {",
     "      if (!StaysPublished(old, table) && !BUG(table_out_and_in_ignored)) {"),
    ("pipeline/fingerprint.cc",
     "  if (before.publication_xmin != 0 && now",
     "  if (!BUG(altered_publication_ignored) && before.publication_xmin != 0 && now"),
    ("pipeline/intake_relations.cc",
     "    must_look_ = true;",
     "    must_look_ = !BUG(announcement_ignored);"),
    ("pipeline/intake_relations.cc",
     "transaction_.commit_lsn >= facts_.looked_lsn) {",
     "transaction_.commit_lsn >= facts_.looked_lsn && !(BUG(only_the_first_announced) && again)) {"),
    ("pipeline/intake.cc",
     "  must_look_ = !facts_.KnowsTimelineUpTo(",
     "  must_look_ = !BUG(standby_rows_believed) && !facts_.KnowsTimelineUpTo("),
    ("pipeline/intake.cc",
     "position_waits() ? facts_.looked_lsn : reported;",
     "position_waits() && !BUG(standby_position_believed) ? facts_.looked_lsn : reported;"),
    ("pipeline/pipeline_look.cc",
     "  if (!intake_.position_waits()) {",
     "  if (!intake_.position_waits() || BUG(position_waits_for_ever)) {"),
    ("pipeline/pipeline_look.cc",
     "  if (std::optional<Halt> halt = FindSourceChange(*facts_, facts, looks_.seen_lsn)) {",
     "  if (std::optional<Halt> halt = BUG(look_not_compared) ? std::nullopt : FindSourceChange(\n"
     "          *facts_, facts, BUG(look_compared_with_what_came_later) ? intake_.seen_lsn() : looks_.seen_lsn)) {"),
    ("pipeline/remembered_progress.cc",
     '              : ProgressCheck{std::nullopt, "", *progress};',
     '              : ProgressCheck{std::nullopt, "", BUG(start_at_confirmed) ? std::nullopt : std::optional(*progress)};'),
    ("pipeline/remembered_progress.cc",
     "         facts.confirmed_flush_lsn <= known->end_lsn;",
     "         (facts.confirmed_flush_lsn <= known->end_lsn || BUG(known_always_suffices));"),
    ("pipeline/source_change.cc",
     "    if (ancestor.timeline == before.timeline && seen_lsn > ancestor.end) {",
     "    if (ancestor.timeline == before.timeline && seen_lsn > ancestor.end && !BUG(lost_while_streaming_ignored)) {"),
    ("pipeline/intake.cc",
     "  return std::max({received_lsn_, complete_lsn_, taken});",
     "  return BUG(open_transaction_forgotten) ? received_lsn_ : std::max({received_lsn_, complete_lsn_, taken});"),
    ("pipeline/progress_keeper.cc",
     "    rejecting_ += std::min(gap, kRejectingMax);",
     "    rejecting_ += BUG(outage_is_a_rejection) ? gap : std::min(gap, kRejectingMax);"),
    ("pipeline/intake_relations.cc",
     "    if (same_name && !same_oid) {",
     "    if (same_name && !same_oid && !BUG(other_oid_ignored)) {"),
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
