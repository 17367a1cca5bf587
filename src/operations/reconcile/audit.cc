#include "operations/reconcile/audit.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"
#include "operations/deadletters/dlq_list.h"
#include "operations/rows/row_reader.h"

namespace walpost::operations {
namespace {

using base::Lsn;
using std::chrono::milliseconds;

constexpr std::uint64_t kReportEveryRead = 10'000;

class Auditor {
 public:
  Auditor(const AuditOptions& options, Reconciliation reconciliation,
          std::vector<SharedIds::Pair> sharing)
      : options_(options),
        reconciliation_(std::move(reconciliation)),
        sharing_(std::move(sharing)) {}

  absl::StatusOr<AuditReport> Run() {
    ASSIGN_OR_RETURN(const auto sources, TablesOf(options_.filter, options_.pipeline.outboxes));
    for (const std::uint32_t source : sources) {
      report_.tables.push_back(NameOf(options_.pipeline.outboxes[source]));
      RETURN_IF_ERROR(base::Annotate(ReadTable(source), report_.tables.back()));
    }
    // Before the topics are read: what is confirmed by now is in them.
    RETURN_IF_ERROR(Await());
    ReportProgress("topics", 0, 0);
    RETURN_IF_ERROR(reconciliation_.Look(options_.pipeline,
                                         {.from_oldest_row = options_.filter.from_ms.has_value()}));
    RETURN_IF_ERROR(reconciliation_.CompareClocks());
    RETURN_IF_ERROR(Judge());
    Describe();
    return std::move(report_);
  }

 private:
  void ReportProgress(const std::string& what, std::uint64_t done, std::uint64_t of) const {
    if (options_.on_progress) {
      options_.on_progress(what, done, of);
    }
  }

  absl::Status ReadTable(std::uint32_t source) {
    const envelope::OutboxOptions& outbox = options_.pipeline.outboxes[source];
    Lsn end;
    ASSIGN_OR_RETURN(RowReader reader, BeginReading({options_.standby, options_.wait},
                                                    options_.pipeline, source, &schemas_, &end));
    end_ = std::max(end_, end);
    ASSIGN_OR_RETURN(const std::string where, options_.filter.Where(reader, outbox.table));
    RETURN_IF_ERROR(reader.Open(where, RowReader::Reading::kAsTheyLie));
    if (reader.IdsMayRepeat()) {
      ids_may_repeat_.push_back(NameOf(outbox));
    }
    return reader.ForEach([&](const ReadRow& row) {
      if (row.number % kReportEveryRead == 0 || row.number + 1 == reader.count()) {
        ReportProgress(NameOf(outbox), row.number + 1, reader.count());
      }
      return reconciliation_.Add(row, source, NameOf(outbox));
    });
  }

  absl::Status Await() {
    const absl::Status confirmed = AwaitConfirmed(options_.pipeline.source, end_, options_.wait);
    if (absl::IsDeadlineExceeded(confirmed) || absl::IsNotFound(confirmed)) {
      confirmed_ = false;
      report_.notes.emplace_back(confirmed.message());
      return absl::OkStatus();
    }
    return confirmed;
  }

  absl::Status Judge() {
    std::ofstream file;
    if (!options_.report.empty()) {
      file.open(options_.report, std::ios::trunc);
    }
    RETURN_IF_ERROR(reconciliation_.Judge([&](const Reconciled& reconciled) {
      const ReconciledTopic& topic = reconciliation_.topics()[reconciled.row.topic];
      Finding finding = FindingOn(reconciled, topic, confirmed_);
      if (finding == Finding::kUndeliverable && !options_.skips) {
        finding = Finding::kMissing;  // nobody has left it out: the topic may take less than it did
      }
      report_.Count(reconciled, finding);
      if (file.is_open() && finding != Finding::kOk) {
        const nlohmann::ordered_json line{
            {"finding", NameOf(finding)},
            {"id", reconciled.row.id},
            {"table", NameOf(options_.pipeline.outboxes[reconciled.row.number])},
            {"topic", topic.name}};
        file << base::JsonText(line) << "\n";
      }
      return absl::OkStatus();
    }));
    if (!options_.report.empty() && !file.flush()) {
      return absl::UnavailableError(absl::StrFormat("cannot write to %s", options_.report));
    }
    return absl::OkStatus();
  }

  void Describe() {
    report_.pipeline = options_.pipeline.name;
    report_.topics = reconciliation_.topics();
    report_.order = reconciliation_.order();
    for (const std::string& table : ids_may_repeat_) {
      if (const std::string text = reconciliation_.RepeatedIdsText(table); !text.empty()) {
        report_.notes.push_back(text);
      }
    }
    for (const ReconciledTopic& topic : report_.topics) {
      if (report_[Finding::kCompactionUnknown] > 0 &&
          topic.gaps.compaction == kafka::Compaction::kUnknown) {
        report_.notes.push_back(
            kafka::UnknownCompactionText(topic.name, topic.gaps.compaction_unknown));
      }
    }
    for (const SharedIds::Pair& pair : sharing_) {
      if (report_[Finding::kIdsShared] > 0) {
        report_.notes.push_back(SharedIds::TextOf(pair) + ": " + kSharedIdsCure);
      }
    }
    if (options_.has_messages) {
      report_.notes.emplace_back(
          "events that are messages stand in no table: nothing is said about them");
    }
    if (options_.filter.from_ms || options_.filter.to_ms) {
      report_.notes.emplace_back("rows are chosen by created_at, when their transaction began");
    }
  }

  const AuditOptions& options_;
  Reconciliation reconciliation_;
  AuditReport report_;
  envelope::SchemaTable schemas_;
  Lsn end_;
  bool confirmed_ = true;
  std::vector<std::string> ids_may_repeat_;  // tables
  std::vector<SharedIds::Pair> sharing_;
};

absl::StatusOr<AuditReport> TryAudit(const AuditOptions& options) {
  ASSIGN_OR_RETURN(const SharedIds shared, SharedIds::Read(options.pipeline));
  ASSIGN_OR_RETURN(Reconciliation reconciliation,
                   Reconciliation::Create(options.temp_folder, shared));
  return Auditor(options, std::move(reconciliation), shared.pairs()).Run();
}

}  // namespace

Finding FindingOn(const Reconciled& reconciled, const ReconciledTopic& topic, bool confirmed) {
  if (reconciled.in_topic) {
    return Finding::kOk;
  }
  switch (reconciled.fate) {
    case DeadLetterFate::kDeadLettered:
      return Finding::kDeadLettered;
    case DeadLetterFate::kParked:
      return Finding::kParked;
    case DeadLetterFate::kDiscarded:
      return Finding::kDiscarded;
    case DeadLetterFate::kSentElsewhere:
      return Finding::kSentElsewhere;
    case DeadLetterFate::kNone:
      break;
  }
  if (reconciled.id_unproven) {
    return Finding::kIdsShared;
  }
  if (!confirmed) {
    return Finding::kNotConfirmed;
  }
  if (reconciled.row.undeliverable || reconciled.too_large) {
    return Finding::kUndeliverable;
  }
  if (topic.without_id > 0) {
    return Finding::kRecordsWithoutId;
  }
  const auto begins_ms = topic.gaps.BeginsMs(reconciled.row.partition);
  if (begins_ms && reconciled.row.at_ms - topic.clocks.allowed_ms() < *begins_ms) {
    return Finding::kTopicBeginsLater;
  }
  switch (topic.gaps.compaction) {
    case kafka::Compaction::kYes:
      return Finding::kTopicCompacted;
    case kafka::Compaction::kUnknown:
      return Finding::kCompactionUnknown;
    case kafka::Compaction::kNo:
      break;
  }
  return Finding::kMissing;
}

Outcome Audit(const AuditOptions& options) {
  const absl::StatusOr<AuditReport> report = TryAudit(options);
  if (!report.ok()) {
    return Failed(report.status());
  }
  return Outcome{report->ExitCode(), options.json ? report->Json() : report->Text(), "",
                 options.json};
}

namespace {

struct Words {
  std::string_view name;
  const char* text;
};

// By Finding.
constexpr std::array<Words, AuditReport::kFindings> kWords = {{
    {"ok", "in Kafka"},
    {"missing", "MISSING"},
    {"not_confirmed", "unknown: not confirmed yet"},
    {"topic_begins_later", "unknown: the topic begins later"},
    {"topic_compacted", "unknown: the topic is compacted"},
    {"records_without_id", "unknown: records without id"},
    {"ids_shared", "unknown: another row has this id"},
    {"compaction_unknown", "unknown: is the topic compacted?"},
    {"dead_lettered", "dead-lettered"},
    {"parked", "parked"},
    {"discarded", "discarded"},
    {"sent_elsewhere", "sent to another topic"},
    {"undeliverable", "skipped: can be no record"},
}};

std::string Grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t place = text.size(); place > 3; place -= 3) {
    text.insert(place - 3, ",");
  }
  return text;
}

std::string Line(const std::string& what, std::uint64_t count) {
  return absl::StrFormat("  %-38s %15s\n", what, Grouped(count));
}

std::string Ids(const std::vector<std::string>& ids) {
  return absl::StrJoin(ids, " ", [](std::string* text, const std::string& id) {
    *text += base::Printable(id, base::kShownBytesMax);
  });
}

std::string TopicText(const ReconciledTopic& topic) {
  if (topic.unseen == kafka::Unseen::kUnknown) {
    return absl::StrFormat("topic %s does not exist\n", base::Printable(topic.name));
  }
  if (topic.unseen == kafka::Unseen::kHidden) {
    return absl::StrFormat(
        "topic %s: walpost's Kafka user may not DESCRIBE it, so its records are not seen\n",
        base::Printable(topic.name));
  }
  std::string text =
      absl::StrFormat("topic %s: %s records", base::Printable(topic.name), Grouped(topic.records));
  if (topic.redelivered > 0) {
    text +=
        absl::StrFormat(", %s of them by a verb, beside the stream", Grouped(topic.redelivered));
  }
  if (topic.gaps.begins_ms) {
    text += *topic.gaps.begins_ms == INT64_MAX
                ? ", Kafka has deleted some, and nothing left shows up to when"
                : absl::StrFormat(", what is older than %s Kafka may have deleted",
                                  TimeText(*topic.gaps.begins_ms));
    if (!topic.clocks.id().empty()) {
      text += absl::StrFormat(", where rows seem up to %d s younger than their records (event %s)",
                              (topic.clocks.allowed_ms() + 999) / 1'000,
                              base::Printable(topic.clocks.id(), base::kShownBytesMax));
    }
  }
  if (topic.without_position > 0) {
    text += absl::StrFormat(", %s without position: of these the order is not known",
                            Grouped(topic.without_position));
  }
  return text + "\n";
}

}  // namespace

std::string_view NameOf(Finding finding) { return kWords[static_cast<std::size_t>(finding)].name; }

void AuditReport::Count(const Reconciled& reconciled, Finding finding) {
  ++rows;
  ++counts[static_cast<std::size_t>(finding)];
  if (finding == Finding::kMissing && missing.size() < kExamplesMax) {
    missing.emplace_back(reconciled.row.id);
  }
}

std::uint64_t AuditReport::Unknown() const {
  std::uint64_t count = 0;
  for (auto i = static_cast<std::size_t>(Finding::kNotConfirmed);
       i < static_cast<std::size_t>(Finding::kDeadLettered); ++i) {
    count += counts[i];
  }
  return count;
}

int AuditReport::ExitCode() const {
  if ((*this)[Finding::kMissing] > 0 || order.out_of_order > 0) {
    return kExitData;
  }
  return Unknown() > 0 ? kExitRetryLater : 0;
}

std::string AuditReport::Text() const {
  std::string text =
      absl::StrFormat("%s: %s rows of %s\n", pipeline, Grouped(rows), absl::StrJoin(tables, ", "));
  for (std::size_t i = 0; i < kFindings; ++i) {
    const bool always = i <= static_cast<std::size_t>(Finding::kMissing);
    if (always || counts[i] > 0) {
      text += Line(kWords[i].text, counts[i]);
    }
  }
  for (const ReconciledTopic& topic : topics) {
    if (!topic.name.empty()) {
      text += TopicText(topic);
    }
  }
  text += Line("records of other ids", order.unknown_ids);
  text += Line("repeats", order.repeats);
  text += Line("out of order", order.out_of_order);
  for (const std::string& note : notes) {
    text += absl::StrFormat("note: %s\n", base::Printable(note));
  }
  if (!missing.empty()) {
    text += absl::StrFormat("missing: %s%s\n", Ids(missing),
                            (*this)[Finding::kMissing] > missing.size() ? " ..." : "");
  }
  if (!order.examples.empty()) {
    text += absl::StrFormat("out of order: %s\n", Ids(order.examples));
  }
  const std::string unknown =
      Unknown() > 0 ? absl::StrFormat(", %s unknown", Grouped(Unknown())) : "";
  return text + absl::StrFormat("%s missing of %s%s\n", Grouped((*this)[Finding::kMissing]),
                                Grouped(rows), unknown);
}

std::string AuditReport::Json() const {
  nlohmann::ordered_json json;
  json["pipeline"] = pipeline;
  json["tables"] = tables;
  json["rows"] = rows;
  for (std::size_t i = 0; i < kFindings; ++i) {
    json[std::string(kWords[i].name)] = counts[i];
  }
  json["repeats"] = order.repeats;
  json["repeated_ids"] = order.repeated_ids;
  json["other_ids"] = order.unknown_ids;
  json["out_of_order"] = order.out_of_order;
  json["missing_ids"] = missing;
  json["out_of_order_ids"] = order.examples;
  json["topics"] = nlohmann::ordered_json::array();
  for (const ReconciledTopic& topic : topics) {
    if (!topic.name.empty()) {
      const std::optional<std::int64_t>& ahead_ms = topic.clocks.ahead_ms();
      json["topics"].push_back({{"name", topic.name},
                                {"exists", topic.unseen != kafka::Unseen::kUnknown},
                                {"hidden", topic.unseen == kafka::Unseen::kHidden},
                                {"records", topic.records},
                                {"sent_again", topic.redelivered},
                                {"without_id", topic.without_id},
                                {"without_position", topic.without_position},
                                {"rows_ahead_ms", ahead_ms ? nlohmann::json(*ahead_ms) : nullptr},
                                {"rows_ahead_id", topic.clocks.id()}});
    }
  }
  json["notes"] = notes;
  return base::JsonText(json, 2) + "\n";
}

}  // namespace walpost::operations
