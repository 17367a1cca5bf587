#include "operations/reconcile/audit_report.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "operations/deadletters/dlq_text.h"

namespace walpost::operations {
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
                ? ", of a partition Kafka has deleted all"
                : absl::StrFormat(", what is older than %s Kafka has deleted",
                                  TimeText(*topic.gaps.begins_ms));
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
      json["topics"].push_back({{"name", topic.name},
                                {"exists", topic.unseen != kafka::Unseen::kUnknown},
                                {"hidden", topic.unseen == kafka::Unseen::kHidden},
                                {"records", topic.records},
                                {"sent_again", topic.redelivered},
                                {"without_id", topic.without_id},
                                {"without_position", topic.without_position}});
    }
  }
  json["notes"] = notes;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace walpost::operations
