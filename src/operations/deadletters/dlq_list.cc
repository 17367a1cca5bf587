#include "operations/deadletters/dlq_list.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/deadletters/dlq_text.h"

namespace walpost::operations {
namespace {

constexpr std::size_t kKeyCharsMax = 40;

std::string OrDash(std::string text) { return text.empty() ? "-" : std::move(text); }

// Headings and rows, each column as wide as its widest cell.
class Table {
 public:
  static constexpr std::size_t kColumns = 7;
  using Cells = std::array<std::string, kColumns>;

  explicit Table(Cells headings) { Add(std::move(headings)); }

  void Add(Cells cells) {
    for (std::size_t i = 0; i < kColumns; ++i) {
      widths_[i] = std::max(widths_[i], cells[i].size());
    }
    rows_.push_back(std::move(cells));
  }

  std::string Text() const {
    std::string text;
    for (const Cells& cells : rows_) {
      for (std::size_t i = 0; i + 1 < kColumns; ++i) {
        text += absl::StrFormat("%-*s", static_cast<int>(widths_[i] + 2), cells[i]);
      }
      text += cells.back() + "\n";
    }
    return text;
  }

  bool empty() const { return rows_.size() == 1; }

 private:
  std::vector<Cells> rows_;
  std::array<std::size_t, kColumns> widths_ = {};
};

struct Counts {
  std::size_t matching = 0;
  std::size_t dead_letters = 0;
  std::size_t parked = 0;
  std::set<base::ParkedKeyId> keys;
  std::size_t closed = 0;
  std::size_t foreign = 0;
  std::size_t decided = 0;  // and not yet carried out

  void Take(const base::DeadLetter& row) {
    ++matching;
    if (row.foreign) {
      ++foreign;
      return;
    }
    if (row.closed) {
      ++closed;
      return;
    }
    decided += row.decision == base::DeadLetter::Decision::kNone ? 0 : 1;
    if (row.parked) {
      ++parked;
      keys.insert(base::ParkedKeyIdOf(row.topic, row.key.value_or("")));
    } else {
      ++dead_letters;
    }
  }
};

std::string Summary(const Counts& counts, const DlqListOptions& list) {
  std::string text = Count(counts.dead_letters, "dead letter");
  if (counts.parked > 0) {
    text += ", " + Count(counts.parked, "parked event") + " of " + Count(counts.keys.size(), "key");
  }
  if (list.all) {
    text += absl::StrFormat(", %u closed", counts.closed);
  }
  if (list.limit > 0 && counts.matching > list.limit) {
    text += absl::StrFormat("; the first %u are shown", list.limit);
  }
  text += "\n";
  if (counts.decided > 0) {
    text += Count(counts.decided, "decision") + " that `walpost run` has not carried out yet\n";
  }
  if (counts.foreign > 0) {
    text += Count(counts.foreign, "row") +
            " of another cluster: they came with a dump, or the server was replaced, and do not "
            "count\n";
  }
  return text;
}

absl::StatusOr<Outcome> TryList(const PipelineSettings& options, const DlqListOptions& list) {
  ASSIGN_OR_RETURN(postgres::DeadLetterTable dead_letters, OpenDeadLetters(options));
  Table table({"TIME", "STATE", "ID", "TYPE", "TOPIC", "KEY", "REASON"});
  DeadLetterJson items = DeadLetterJson::array();
  Counts counts;
  const auto on_row = [&](const base::DeadLetter& row) {
    if (!list.filter.Matches(row)) {
      return absl::OkStatus();
    }
    counts.Take(row);
    if (list.limit > 0 && counts.matching > list.limit) {
      return absl::OkStatus();
    }
    if (list.json) {
      items.push_back(AsJson(row));
      return absl::OkStatus();
    }
    table.Add({TimeText(row.written_at_ms), StateName(row),
               Printable(row.event_id.empty() ? row.position : row.event_id, 0),
               OrDash(Printable(row.event_type, kKeyCharsMax)), OrDash(Printable(row.topic, 0)),
               row.key ? Printable(*row.key, kKeyCharsMax) : "-", OrDash(row.reason)});
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(dead_letters.ForEach(list.all ? "true" : "closed_at IS NULL", {},
                                       /*whole=*/false, on_row));
  if (list.json) {
    return Outcome{0, Dump(items), "", /*as_it_is=*/true};
  }
  if (table.empty()) {
    return Outcome{
        0, list.filter.empty() ? "there are no open dead letters\n" : "no dead letter matches\n",
        ""};
  }
  return Outcome{0, table.Text() + Summary(counts, list), ""};
}

}  // namespace

Outcome DlqList(const PipelineSettings& options, const DlqListOptions& list) {
  absl::StatusOr<Outcome> outcome = TryList(options, list);
  return outcome.ok() ? *std::move(outcome) : Failed(outcome.status());
}

}  // namespace walpost::operations
