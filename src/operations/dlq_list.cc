#include "operations/dlq_list.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "operations/dlq_text.h"

namespace walpost::operations {
namespace {

using envelope::Letter;
using envelope::LetterKind;
using envelope::LetterLog;
using kafka::StoredLetter;

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
  std::size_t letters = 0;
  std::size_t parked = 0;
  std::set<LetterLog::Key> keys;
  std::size_t decided = 0;

  void Take(const StoredLetter& stored, const LetterState& state) {
    ++matching;
    if (state.decision != nullptr) {
      ++decided;
    } else if (stored.letter.kind == LetterKind::kLetter) {
      ++letters;
    } else {
      ++parked;
      keys.insert({stored.letter.topic, std::string(stored.key.value_or(""))});
    }
  }
};

std::string Summary(const Counts& counts, const LetterLog& log, const DlqListOptions& list) {
  std::string text = Count(counts.letters, "letter");
  if (counts.parked > 0) {
    text += ", " + Count(counts.parked, "parked event") + " of " + Count(counts.keys.size(), "key");
  }
  if (list.all) {
    text += absl::StrFormat(", %u decided", counts.decided);
  }
  if (list.limit > 0 && counts.matching > list.limit) {
    text += absl::StrFormat("; the first %u are shown", list.limit);
  }
  text += "\n";
  if (!log.pending().empty()) {
    text +=
        Count(log.pending().size(), "command") + " without an answer: `walpost run` does them\n";
  }
  return text;
}

absl::StatusOr<Outcome> TryList(const DlqOptions& options, const DlqListOptions& list) {
  const absl::StatusOr<ReadLogResult> log = ReadLog(options, list.all);
  if (absl::IsNotFound(log.status())) {
    return list.json ? Outcome{0, "[]\n", ""} : Outcome{0, NoLog(options) + "\n", ""};
  }
  RETURN_IF_ERROR(log.status());
  Table table({"TIME", "STATE", "ID", "TYPE", "TOPIC", "KEY", "REASON"});
  LetterJson items = LetterJson::array();
  Counts counts;
  const auto on_visit = [&](const StoredLetter& stored, const LetterState& state) {
    if (!list.filter.Matches(stored)) {
      return absl::OkStatus();
    }
    counts.Take(stored, state);
    if (list.limit > 0 && counts.matching > list.limit) {
      return absl::OkStatus();
    }
    if (list.json) {
      items.push_back(LetterAsJson(stored, state));
      return absl::OkStatus();
    }
    const Letter& letter = stored.letter;
    table.Add({TimeText(stored.timestamp_ms), StateName(stored, state),
               Printable(letter.id.empty() ? letter.position : letter.id, 0),
               OrDash(Printable(letter.type, kKeyCharsMax)), OrDash(Printable(letter.topic, 0)),
               stored.key ? Printable(*stored.key, kKeyCharsMax) : "-", OrDash(letter.reason)});
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(VisitLetters(options, *log, on_visit));
  if (list.json) {
    return Outcome{0, Dump(items), ""};
  }
  if (table.empty()) {
    return Outcome{
        0, list.filter.empty() ? "there are no undecided letters\n" : "no letter matches\n", ""};
  }
  return Outcome{0, table.Text() + Summary(counts, log->log, list), ""};
}

}  // namespace

Outcome DlqList(const DlqOptions& options, const DlqListOptions& list) {
  absl::StatusOr<Outcome> outcome = TryList(options, list);
  return outcome.ok() ? *std::move(outcome) : Failed(outcome.status());
}

}  // namespace walpost::operations
