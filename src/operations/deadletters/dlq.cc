#include "operations/deadletters/dlq.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "envelope/control_records.h"
#include "operations/deadletters/dlq_list.h"
#include "operations/rows/row_encoder.h"
#include "operations/setup/pipeline_record.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {
namespace {

// docs/dead-letters.md, reason.
constexpr std::array<const char*, 19> kReasons = {
    "record_too_large",  "record_invalid",       "topic_unknown",   "partition_unknown",
    "topic_invalid",     "topic_not_authorized", "rejected",        "row_invalid",
    "topic_not_allowed", "header_invalid",       "payload_invalid", "cloudevent_invalid",
    "key_parked",        kTransactionsSkipped,   "schema_rejected", "schema_name_invalid",
    "event_too_large",   "message_malformed",    "id_too_long"};

}  // namespace

bool DeadLetterFilter::empty() const {
  return id.empty() && position.empty() && key.empty() && type.empty() && topic.empty() &&
         reason.empty() && !since_ms && !until_ms;
}

bool DeadLetterFilter::Matches(const base::DeadLetter& row) const {
  return (id.empty() || row.event_id == id) && (position.empty() || row.position == position) &&
         (key.empty() || row.key == key) && (type.empty() || row.event_type == type) &&
         (topic.empty() || row.topic == topic) && (reason.empty() || row.reason == reason) &&
         (!since_ms || row.written_at_ms >= *since_ms) &&
         (!until_ms || row.written_at_ms <= *until_ms);
}

absl::StatusOr<std::int64_t> ParseTime(const std::string& text) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error) || time == absl::InfiniteFuture() ||
      time == absl::InfinitePast()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is not a time: give RFC 3339, for example 2026-05-01T12:00:00Z, or how long ago, for "
        "example 90s, 15min, 2h or 7d",
        text));
  }
  return absl::ToUnixMillis(time);
}

absl::Status CheckFilter(const DeadLetterFilter& filter) {
  if (!filter.reason.empty() &&
      std::find(kReasons.begin(), kReasons.end(), filter.reason) == kReasons.end()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("no dead letter has the reason '%s'; the reasons are %s", filter.reason,
                        absl::StrJoin(kReasons, ", ")));
  }
  return filter.position.empty() ? absl::OkStatus()
                                 : envelope::Position::Parse(filter.position).status();
}

base::WallTime WallNow() {
  return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
}

absl::StatusOr<postgres::DeadLetterTable> OpenDeadLetters(const PipelineSettings& options) {
  const postgres::ConnectOptions& source = options.source;
  // While the source is away, dead letters that are elsewhere can still be looked at.
  auto connection = postgres::SqlConnection::Connect(source.conninfo, source.application_name);
  if (connection.ok()) {
    RETURN_IF_ERROR(CheckRecordFits(&*connection, options.name, source.slot));
  }
  if (options.dead_letter_conninfo.empty()) {
    return postgres::DeadLetterTable::Open(source.conninfo, source.application_name, options.name,
                                           {});
  }
  postgres::DeadLetterTable::Source streamed;
  if (connection.ok()) {
    ASSIGN_OR_RETURN(
        const std::vector<postgres::Row> rows,
        connection->Query(
            "SELECT system_identifier::text, current_database() FROM pg_control_system()"));
    std::int64_t identifier = 0;  // half of them show as negative
    if (absl::SimpleAtoi(rows.at(0).at(0).value_or(""), &identifier)) {
      streamed.system_identifier = static_cast<std::uint64_t>(identifier);
    }
    streamed.database = rows[0].at(1).value_or("");
  }
  return postgres::DeadLetterTable::Open(options.dead_letter_conninfo, source.application_name,
                                         options.name, streamed);
}

absl::StatusOr<std::optional<postgres::DeadLetterTable>> FindDeadLetters(
    const PipelineSettings& options) {
  absl::StatusOr<postgres::DeadLetterTable> table = OpenDeadLetters(options);
  if (absl::IsNotFound(table.status())) {
    return std::optional<postgres::DeadLetterTable>();
  }
  RETURN_IF_ERROR(table.status());
  return std::optional(*std::move(table));
}

namespace {

using base::DeadLetter;
using postgres::DeadLetterTable;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookEvery{200};

// One row, or a parked key as a whole.
struct Target {
  DeadLetter row;   // the first of it; without its key, which may be large
  std::string key;  // to be shown
  base::ParkedKeyId id;
  bool of_key = false;
  std::vector<std::int64_t> rows;
  std::string problem;  // why nothing was decided
};

class Undeliverables {
 public:
  Undeliverables(const PipelineSettings& options, const DlqDecideOptions& decide,
                 DeadLetter::Decision decision, DeadLetterTable table)
      : decide_(decide),
        decision_(decision),
        table_(std::move(table)),
        truncated_(options, &table_) {}

  absl::StatusOr<Outcome> Run() {
    const auto take = [this](const DeadLetter& row) { return Take(row); };
    RETURN_IF_ERROR(table_.ForEach(kOpen, {}, /*whole=*/false, take));
    if (targets_.empty()) {
      return Outcome{0, text_ + "no open dead letter matches\n", ""};
    }
    if (decide_.dry_run || (discards() && !decide_.yes)) {
      return Describe();
    }
    for (Target& target : targets_) {
      RETURN_IF_ERROR(Decide(&target));
    }
    RETURN_IF_ERROR(Await());
    if (open_rows_ + open_keys_ + otherwise_ == 0) {
      return Outcome{0, text_, ""};
    }
    if (open_rows_ + open_keys_ == 0) {
      return Outcome{kExitRetryLater, text_,
                     absl::StrFormat("decided otherwise meanwhile: %u", otherwise_)};
    }
    return Outcome{kExitRetryLater, text_,
                   absl::StrFormat("still undecided: %s, %s", Count(open_rows_, "dead letter"),
                                   Count(open_keys_, "parked key"))};
  }

 private:
  static constexpr const char* kOpen =
      "closed_at IS NULL AND system_identifier = (SELECT system_identifier FROM "
      "pg_control_system())";

  bool discards() const { return decision_ == DeadLetter::Decision::kDiscard; }

  absl::Status Take(const DeadLetter& row) {
    const base::ParkedKeyId id = base::ParkedKeyIdOf(row.topic, row.key.value_or(""));
    if (row.parked) {
      rows_of_key_[id].push_back(row.seq);
    }
    if (!decide_.filter.Matches(row)) {
      return absl::OkStatus();
    }
    // It stands for rows that may be nowhere else: who means it names it.
    if (row.reason == kTransactionsSkipped && decide_.filter.reason != kTransactionsSkipped &&
        !decide_.filter.one_event()) {
      text_ += absl::StrFormat("left as it is, %s: %s; --reason %s is for it\n", row.reason,
                               Printable(row.detail), row.reason);
      return absl::OkStatus();
    }
    if (row.parked && !decide_.to_topic.empty()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("event %s at %s is parked: its key's order is that of topic '%s', so "
                          "--to-topic is only for events whose key is not parked",
                          Printable(row.event_id), row.position, Printable(row.topic)));
    }
    const bool of_key = row.parked && !(discards() && decide_.filter.one_event());
    if (of_key && !keys_.insert(id).second) {
      return absl::OkStatus();
    }
    Target& target = targets_.emplace_back();
    target.key = Printable(row.key.value_or(""), base::kShownBytesMax);
    target.row = row;
    target.row.key.reset();
    target.id = id;
    target.of_key = of_key;
    target.rows = {row.seq};
    return absl::OkStatus();
  }

  std::string Name(const Target& target) const {
    if (target.of_key) {
      return absl::StrFormat("parked key %s of topic '%s', the whole of it since its order is kept",
                             target.key, Printable(target.row.topic));
    }
    return absl::StrFormat("%sevent %s at %s", target.row.parked ? "parked " : "",
                           Printable(target.row.event_id, 0), target.row.position);
  }

  Outcome Describe() {
    for (const Target& target : targets_) {
      text_ += absl::StrFormat("would %s %s\n", discards() ? "discard" : "retry", Name(target));
    }
    return decide_.dry_run ? Outcome{0, text_ + "nothing was changed\n", ""}
                           : Outcome{kExitUsage, text_, "nothing was changed; add --yes to do it"};
  }

  // All of it or nothing: records that came back and a decision that did not would be half a retry.
  absl::Status Decide(Target* target) {
    RETURN_IF_ERROR(table_.connection()->BeginTransaction());
    const absl::Status decided = DecideTogether(target);
    const absl::Status ended = table_.connection()->EndTransaction(decided);
    return decided.ok() || target->problem.empty() ? ended : absl::OkStatus();
  }

  // A retry needs every record that it sends.
  absl::Status DecideTogether(Target* target) {
    const std::vector<std::int64_t> meant =
        target->of_key ? rows_of_key_[target->id] : target->rows;
    target->rows.clear();
    RETURN_IF_ERROR(table_.ForEach(absl::StrFormat("%s AND seq = ANY ($2::bigint[])", kOpen),
                                   {Numbers(meant)},
                                   /*whole=*/false, [&](const DeadLetter& row) {
                                     if (discards() || !target->of_key || !row.discard()) {
                                       target->rows.push_back(row.seq);
                                     }
                                     return discards() ? absl::OkStatus() : Complete(row, target);
                                   }));
    return table_.Decide(target->rows, decision_, target->of_key, decide_.to_topic).status();
  }

  // A row without a record gets it back, or the target a problem.
  absl::Status Complete(const DeadLetter& row, Target* target) {
    const bool incomplete = row.truncated_bytes || row.reason == envelope::kMessageMalformed;
    if (row.discard() || !incomplete) {
      return absl::OkStatus();
    }
    const absl::Status restored = Restore(row);
    if (!restored.ok() && !absl::IsUnavailable(restored)) {
      target->problem = absl::StrFormat("event %s at %s: %s", Printable(row.event_id, 0),
                                        row.position, Printable(std::string(restored.message())));
    }
    return restored;
  }

  absl::Status Restore(const DeadLetter& row) {
    if (row.reason == envelope::kMessageMalformed) {
      return absl::FailedPreconditionError(
          "it is the content of a logical message that became no event: `walpost dlq show "
          "--payload` prints it; have the application emit it as it should be, then discard it");
    }
    ASSIGN_OR_RETURN(const DeadLetter whole, truncated_.Read(row));
    return table_.Restore(whole).status();
  }

  static std::string Numbers(const std::vector<std::int64_t>& rows) {
    return "{" + absl::StrJoin(rows, ",") + "}";
  }

  // Each is done, or says why it is not.
  absl::Status Await() {
    const auto deadline = steady_clock::now() + decide_.wait;
    std::vector<Target*> open;
    for (Target& target : targets_) {
      if (target.problem.empty()) {
        open.push_back(&target);
      } else {
        Answer(target, "failed: " + target.problem, /*decided=*/false);
      }
    }
    for (;;) {
      std::map<std::int64_t, DeadLetter> rows;
      RETURN_IF_ERROR(Look(open, &rows));
      std::erase_if(open, [&](Target* target) { return IsDone(*target, rows); });
      if (open.empty() || steady_clock::now() >= deadline) {
        break;
      }
      poll(nullptr, 0, static_cast<int>(kLookEvery.count()));
    }
    for (const Target* target : open) {
      Answer(
          *target,
          absl::StrFormat("not carried out within %d s; the decision stays, and `walpost run` "
                          "carries it out when it streams",
                          std::chrono::duration_cast<std::chrono::seconds>(decide_.wait).count()),
          /*decided=*/false);
    }
    return absl::OkStatus();
  }

  absl::Status Look(const std::vector<Target*>& open, std::map<std::int64_t, DeadLetter>* rows) {
    std::vector<std::int64_t> wanted;
    for (const Target* target : open) {
      wanted.insert(wanted.end(), target->rows.begin(), target->rows.end());
    }
    return table_.ForEach("seq = ANY ($2::bigint[])", {Numbers(wanted)}, /*whole=*/false,
                          [&](const DeadLetter& row) {
                            (*rows)[row.seq] = row;
                            (*rows)[row.seq].key.reset();
                            return absl::OkStatus();
                          });
  }

  bool IsDone(const Target& target, const std::map<std::int64_t, DeadLetter>& rows) {
    for (const std::int64_t seq : target.rows) {
      const auto found = rows.find(seq);
      if (found == rows.end() || found->second.closed) {
        continue;
      }
      if (found->second.decision != DeadLetter::Decision::kNone) {
        return false;
      }
      Answer(target,
             absl::StrFormat("failed: event %s at %s: %s", Printable(found->second.event_id, 0),
                             found->second.position, Printable(found->second.detail)),
             /*decided=*/false);
      return true;
    }
    const std::string otherwise = DecidedOtherwise(target, rows);
    const std::string& topic = decide_.to_topic.empty() ? target.row.topic : decide_.to_topic;
    Answer(target,
           !otherwise.empty() ? otherwise
           : discards()       ? "discarded"
                              : absl::StrFormat("delivered to topic '%s'", Printable(topic)),
           /*decided=*/true);
    otherwise_ += otherwise.empty() ? 0 : 1;
    return true;
  }

  // What was sent to its own topic leaves the table; whatever else was decided stands in the closed
  // row.
  std::string DecidedOtherwise(const Target& target,
                               const std::map<std::int64_t, DeadLetter>& rows) const {
    std::size_t discarded = 0;
    std::size_t elsewhere = 0;
    std::string by;
    for (const std::int64_t seq : target.rows) {
      const auto found = rows.find(seq);
      const bool gone = found == rows.end();
      if (!gone && found->second.discard()) {
        ++discarded;
      } else if ((gone ? "" : found->second.send_to) != decide_.to_topic) {
        ++elsewhere;
      }
      if (!gone && !found->second.decided_by.empty()) {
        by = " by " + Printable(found->second.decided_by);
      }
    }
    const std::size_t all = target.rows.size();
    if (discards()) {
      return discarded == all
                 ? ""
                 : absl::StrFormat("not discarded: %u of %u were sent before, by another decision",
                                   all - discarded, all);
    }
    if (discarded > 0) {
      return absl::StrFormat("not delivered: %u of %u discarded meanwhile%s", discarded, all, by);
    }
    return elsewhere == 0 ? ""
                          : absl::StrFormat("sent to another topic, by another decision%s", by);
  }

  void Answer(const Target& target, const std::string& answer, bool decided) {
    text_ += absl::StrFormat("%s: %s\n", Name(target), answer);
    if (!decided) {
      ++(target.of_key ? open_keys_ : open_rows_);
    }
  }

  const DlqDecideOptions& decide_;
  const DeadLetter::Decision decision_;
  DeadLetterTable table_;
  TruncatedRow truncated_;
  std::vector<Target> targets_;                                         // in the order of the rows
  std::set<base::ParkedKeyId> keys_;                                    // of targets
  std::map<base::ParkedKeyId, std::vector<std::int64_t>> rows_of_key_;  // of all that are open
  std::string text_;
  std::size_t open_rows_ = 0;
  std::size_t open_keys_ = 0;
  std::size_t otherwise_ = 0;  // somebody else's decision was quicker
};

absl::StatusOr<Outcome> TryDecide(const PipelineSettings& options, const DlqDecideOptions& decide,
                                  DeadLetter::Decision decision) {
  ASSIGN_OR_RETURN(DeadLetterTable table, OpenDeadLetters(options));
  return Undeliverables(options, decide, decision, std::move(table)).Run();
}

Outcome Decide(const PipelineSettings& options, const DlqDecideOptions& decide,
               DeadLetter::Decision decision) {
  if (decide.filter.empty() && !decide.all_undecided) {
    return Outcome{kExitUsage, "",
                   "which ones? Give at least one of --id, --position, --key, --type, --topic, "
                   "--reason, --since, --until, or --all-undecided"};
  }
  absl::StatusOr<Outcome> outcome = TryDecide(options, decide, decision);
  return outcome.ok() ? *std::move(outcome) : Failed(outcome.status());
}

}  // namespace

Outcome DlqRetry(const PipelineSettings& options, const DlqDecideOptions& decide) {
  return Decide(options, decide, DeadLetter::Decision::kRetry);
}

Outcome DlqDiscard(const PipelineSettings& options, const DlqDecideOptions& decide) {
  return Decide(options, decide, DeadLetter::Decision::kDiscard);
}

}  // namespace walpost::operations
