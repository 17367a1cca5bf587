#include "operations/reconcile/replay.h"

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "operations/deadletters/dlq_list.h"
#include "operations/reconcile/settled_rows.h"
#include "operations/rows/row_reader.h"
#include "operations/rows/row_sender.h"
#include "operations/setup/slot.h"
#include "outbox/topic_rules.h"

namespace walpost::operations {
namespace {

using base::Lsn;
using std::chrono::steady_clock;

constexpr std::string_view kKind = "replay";
constexpr std::uint64_t kReportEverySent = 1'000;
constexpr std::chrono::milliseconds kMadeUpFor{100};  // what a busy machine slept too long

// Lets so many pass in a second. What did not pass while the verb waited is not made up for.
class Pace {
 public:
  explicit Pace(std::uint64_t rate) : rate_(rate) {}

  void Await() {
    if (rate_ == 0) {
      return;
    }
    while (steady_clock::now() < due_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(due_ - steady_clock::now());
      poll(nullptr, 0, static_cast<int>(left.count()));
    }
    due_ = std::max(due_, steady_clock::now() - kMadeUpFor) +
           std::chrono::nanoseconds(1'000'000'000 / rate_);
  }

 private:
  const std::uint64_t rate_;
  steady_clock::time_point due_ = steady_clock::now();
};

class Replayer {
 public:
  explicit Replayer(const ReplayOptions& options)
      : options_(options),
        sender_(options.pipeline.kafka, options.pipeline.registry, options.pipeline.outboxes, kKind,
                options.patience, options.on_warning),
        pace_(options.rate) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(const auto sources, TablesOf(options_.filter, options_.pipeline.outboxes));
    RETURN_IF_ERROR(CheckSharedIds(sources));
    absl::Status still_open;
    if (options_.missing && !options_.dry_run) {
      still_open = AwaitOpenTransactions(options_.pipeline, options_.wait);
    }
    if (!still_open.ok() && !absl::IsDeadlineExceeded(still_open)) {
      return still_open;
    }
    Lsn end;
    std::vector<RowReader> readers;
    for (const std::uint32_t source : sources) {
      RETURN_IF_ERROR(base::Annotate(Open(source, &readers, &end), Name(source)));
    }
    RETURN_IF_ERROR(CheckIds());
    if (options_.dry_run && !options_.missing) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(AwaitConfirmed(options_.pipeline.source, end, options_.wait));
    for (std::size_t i = 0; i < sources.size(); ++i) {
      RETURN_IF_ERROR(base::Annotate(Compare(Name(sources[i]), &readers[i]), Name(sources[i])));
    }
    RETURN_IF_ERROR(CheckKeys(sources, &readers));
    if (options_.in_place) {
      sender_.KnowUnseen(unseen_topics_);
    }
    for (std::size_t i = 0; i < sources.size() && !options_.dry_run; ++i) {
      RETURN_IF_ERROR(
          base::Annotate(Send(Name(sources[i]), settled_[i], &readers[i]), Name(sources[i])));
    }
    return still_open;  // what is there was sent
  }

  const std::string& text() const { return text_; }

  std::uint64_t curable_out() const { return sender_.curable_out(); }

 private:
  std::string Name(std::uint32_t source) const {
    return NameOf(options_.pipeline.outboxes[source]);
  }

  absl::Status Open(std::uint32_t source, std::vector<RowReader>* readers, Lsn* end) {
    const envelope::OutboxOptions& outbox = options_.pipeline.outboxes[source];
    Lsn table_end;
    ASSIGN_OR_RETURN(RowReader reader,
                     BeginReading({options_.standby, options_.wait}, options_.pipeline, source,
                                  &schemas_, &table_end));
    *end = std::max(*end, table_end);
    ASSIGN_OR_RETURN(const std::string where, options_.filter.Where(reader, outbox.table));
    RETURN_IF_ERROR(FindIds(outbox.table, &reader));
    RETURN_IF_ERROR(CheckBegin(&reader));
    RETURN_IF_ERROR(reader.Open(
        where, options_.missing ? RowReader::Reading::kTwice : RowReader::Reading::kInOrder));
    text_ += absl::StrFormat("%s: %s\n", Name(source), Count(reader.count(), "event"));
    readers->push_back(std::move(reader));
    return absl::OkStatus();
  }

  // What is asked for must not have left the table already, or nobody would know.
  absl::Status CheckBegin(RowReader* reader) {
    if (!options_.filter.from_ms) {
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const auto begins_ms, reader->BeginsMs());
    if (!begins_ms || *begins_ms <= *options_.filter.from_ms) {
      return absl::OkStatus();
    }
    const std::string text = absl::StrFormat(
        "what is older than %s is not in the table, or no longer; what is left begins with --from "
        "%s",
        TimeText(*begins_ms), TimeText(*begins_ms));
    if (options_.dry_run) {
      text_ += "warning: " + text + "\n";
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(text);
  }

  // Before anything is sent or waited for.
  absl::Status CheckSharedIds(const std::vector<std::uint32_t>& sources) {
    if (!options_.missing) {
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(shared_ids_, SharedIds::Read(options_.pipeline));
    std::vector<std::string> tables;
    for (const std::uint32_t source : sources) {
      tables.push_back(Name(source));
    }
    return Doubt(shared_ids_.TextAbout(tables));
  }

  // `text`: what is not known, empty = nothing. A dry run warns of it; sending needs
  // --send-unproven.
  absl::Status Doubt(const std::string& text) {
    if (text.empty() || options_.send_unproven) {
      return absl::OkStatus();
    }
    if (options_.dry_run) {
      text_ += "warning: " + text + "\n";
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(text);
  }

  // By themselves: an id may be in several tables, and be named twice.
  absl::Status FindIds(const outbox::TableOptions& table, RowReader* reader) {
    for (const std::string& id : options_.filter.ids) {
      if (found_ids_.contains(id)) {
        continue;
      }
      RowFilter alone = options_.filter;
      alone.ids = {id};
      ASSIGN_OR_RETURN(const std::string where, alone.Where(*reader, table));
      ASSIGN_OR_RETURN(const bool found, reader->HasAny(where));
      if (found) {
        found_ids_.insert(id);
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckIds() const {
    constexpr std::size_t kNamed = 10;
    std::vector<std::string> missing;
    for (const std::string& id : options_.filter.ids) {
      if (!found_ids_.contains(id)) {
        missing.push_back(id);
      }
    }
    const std::size_t named = std::min(missing.size(), kNamed);
    return missing.empty()
               ? absl::OkStatus()
               : absl::NotFoundError(absl::StrFormat(
                     "with these conditions %s not in the tables, or no longer: %s%s",
                     Count(missing.size(), "id") + (missing.size() == 1 ? " is" : " are"),
                     absl::StrJoin(missing.begin(),
                                   missing.begin() + static_cast<std::ptrdiff_t>(named), ", "),
                     missing.size() > named ? ", ..." : ""));
  }

  // Of every table, before anything of one is sent.
  absl::Status Compare(const std::string& name, RowReader* reader) {
    std::vector<bool>& settled = settled_.emplace_back(reader->count(), false);
    if (!options_.missing) {
      return absl::OkStatus();
    }
    SettledRowsOptions settled_options;
    settled_options.temp_folder = options_.temp_folder;
    settled_options.on_progress = options_.on_progress;
    settled_options.from_oldest_row = options_.filter.from_ms.has_value();
    settled_options.shared_ids = shared_ids_;
    ASSIGN_OR_RETURN(SettledRows settled_rows,
                     FindSettledRows(options_.pipeline, settled_options, name, reader));
    settled = std::move(settled_rows.settled);
    unseen_topics_.merge(settled_rows.unseen_topics);
    const std::uint64_t missing = reader->count() - settled_rows.in_topic -
                                  settled_rows.dead_letters - settled_rows.superseded -
                                  settled_rows.unproven;
    text_ += absl::StrFormat("%s: %s missing in Kafka%s%s\n", name, Count(missing, "event"),
                             settled_rows.SupersededText(), settled_rows.UnprovenText());
    if (!settled_rows.warning.empty()) {
      text_ += "warning: " + settled_rows.warning + "\n";
    }
    RETURN_IF_ERROR(CheckCompacted(settled_rows));
    // In another topic nothing newer is in front of it.
    return options_.to_topic.empty() ? Doubt(settled_rows.doubt) : absl::OkStatus();
  }

  absl::Status CheckKeys(const std::vector<std::uint32_t>& sources,
                         std::vector<RowReader>* readers) {
    if (!options_.missing || !options_.to_topic.empty() || options_.send_unproven) {
      return absl::OkStatus();
    }
    std::vector<RowsToSend> tables;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      tables.push_back({Name(sources[i]), &(*readers)[i], &settled_[i]});
    }
    ASSIGN_OR_RETURN(const std::string shared, SharedKeysText(tables, options_.temp_folder));
    return Doubt(shared);
  }

  // What looks missing may have been compacted, for a newer one that the filter leaves out.
  absl::Status CheckCompacted(const SettledRows& settled_rows) {
    if (settled_rows.missing_of_compacted == 0 || !options_.filter.MayLeaveOutNewer() ||
        !options_.to_topic.empty()) {
      return absl::OkStatus();
    }
    const std::string text = absl::StrFormat(
        "%s may have been removed by compaction, for newer ones of their keys that --to, --id or "
        "--type leave out, and would come behind these: choose with --from, --key and --table only",
        Count(settled_rows.missing_of_compacted, "event"));
    if (options_.dry_run) {
      text_ += "warning: " + text + "\n";
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(text);
  }

  absl::Status Send(const std::string& name, const std::vector<bool>& settled, RowReader* reader) {
    if (options_.in_place) {
      RETURN_IF_ERROR(sender_.FollowParkedKeys(options_.pipeline, name));
    }
    std::uint64_t sent = 0;
    const absl::Status status = reader->ForEach([&](const ReadRow& row) {
      if (settled[row.number]) {
        return absl::OkStatus();
      }
      pace_.Await();
      RETURN_IF_ERROR(SendRow(row));
      if (++sent % kReportEverySent == 0 && options_.on_progress) {
        options_.on_progress(name, sent, reader->count());
      }
      return absl::OkStatus();
    });
    // What was written before a row that cannot be is waited for, too: it is there.
    const absl::Status flushed = sender_.Flush();
    if (options_.on_progress) {
      options_.on_progress(name, sent, sent);
    }
    RETURN_IF_ERROR(flushed);
    text_ += absl::StrFormat("%s%s: %s\n", name,
                             options_.in_place ? "" : " to topic " + options_.to_topic,
                             sender_.TakeAccount());
    return status;
  }

  absl::Status SendRow(const ReadRow& row) {
    if (row.record.ok() && !options_.in_place) {
      if (row.record->topic == options_.to_topic) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "'%s' is its own topic, where it would follow newer events: --in-place says that it "
            "may",
            options_.to_topic));
      }
      row.record->topic = options_.to_topic;
      row.record->partition = -1;  // of its own topic
    }
    return sender_.SendRow(row, schemas_, options_.skip_undeliverable);
  }

  const ReplayOptions& options_;
  RowSender sender_;
  Pace pace_;
  envelope::SchemaTable schemas_;
  std::set<std::string> found_ids_;  // of filter.ids
  SharedIds shared_ids_;
  std::vector<std::vector<bool>> settled_;  // by table and the row's number: not to be sent
  kafka::UnseenTopics unseen_topics_;
  std::string text_;
};

}  // namespace

Outcome Replay(const ReplayOptions& options) {
  if (options.filter.empty() && !options.all && !options.missing) {
    return Outcome{kExitUsage, "",
                   "which events: --from, --to, --id, --key, --type, --table, --missing, or --all"};
  }
  if (!options.dry_run && options.to_topic.empty() != options.in_place) {
    return Outcome{
        kExitUsage, "",
        "where to: --to-topic TOPIC, or --in-place for the events' own topics, where old "
        "values will follow newer ones; --dry-run only counts"};
  }
  const bool own = !options.to_topic.empty() &&
                   std::any_of(options.pipeline.outboxes.begin(), options.pipeline.outboxes.end(),
                               [&](const envelope::OutboxOptions& outbox) {
                                 const std::vector<std::string>& topics = outbox.table.topics.own;
                                 return std::find(topics.begin(), topics.end(), options.to_topic) !=
                                        topics.end();
                               });
  if (own || outbox::IsReservedTopic(options.to_topic)) {
    return Outcome{kExitUsage, "",
                   "topic '" + options.to_topic +
                       "' belongs to walpost or to Kafka itself: no event goes there"};
  }
  Replayer replayer(options);
  const absl::Status status = replayer.Run();
  Outcome outcome = status.ok() ? Done(replayer.curable_out()) : Failed(status);
  outcome.output = replayer.text();
  return outcome;
}

}  // namespace walpost::operations
