// An input is what walpost reads back from where operators may write as well: the first byte says
// which parser reads the rest. A row of walpost.dead_letters, an outbox row that one of them keeps,
// what is noted there of its schema, what `walpost.pipeline.backfill` says, the envelope that a
// verb shows, or a conninfo.
#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/text.h"
#include "envelope/envelope_writer.h"
#include "envelope/schema.h"
#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "operations/deadletters/dlq_list.h"
#include "operations/reconcile/backfill.h"
#include "outbox/kept_row.h"
#include "postgres/conninfo.h"
#include "postgres/dead_letter_cells.h"
#include "postgres/sql_connection.h"

namespace walpost::fuzz {
namespace {

// A cell that is NULL.
constexpr std::string_view kNull = "\x01";
// Where an input has it, it is a password.
constexpr std::string_view kSecret = "hunter2";

// Cells are apart by a zero byte, which no text of PostgreSQL has.
void CheckDeadLetter(std::string_view bytes) {
  postgres::Row cells;
  for (const absl::string_view cell :
       absl::StrSplit(absl::string_view(bytes.data(), bytes.size()), '\0')) {
    cells.push_back(std::string_view(cell.data(), cell.size()) == kNull
                        ? postgres::Cell()
                        : postgres::Cell(std::string(cell)));
  }
  cells.resize(postgres::kWholeCells);
  const base::DeadLetter row = postgres::DeadLetterOf(cells, /*whole=*/true);
  CHECK(!row.parked || row.key) << "without a key there is nothing to park";
  CHECK_LE(row.headers.size(), bytes.size());
  CHECK(postgres::Unhex(postgres::Bytea(row.value).has_value()
                            ? postgres::Cell(postgres::Bytea(row.value)->substr(2))
                            : postgres::Cell()) == row.value);
  const std::string shown = postgres::Text(row.detail, base::DeadLetter::kTextBytesMax, false);
  CHECK_LE(shown.size(), base::DeadLetter::kTextBytesMax);
  CHECK(base::IsUtf8(shown) && shown.find('\0') == std::string::npos);
}

void CheckKeptRow(std::string_view bytes) {
  const auto row = outbox::KeptRow::Parse(bytes);
  if (!row.ok()) {
    CHECK(absl::IsDataLoss(row.status())) << row.status();
    return;
  }
  CHECK_EQ(row->values().size(), row->relation().columns.size());
  CHECK(base::IsUtf8(operations::Dump(operations::AsJson(*row))));
}

void CheckSchemaNeed(std::string_view text) {
  const auto need = envelope::ParseNeed(text);
  if (!need.ok()) {
    CHECK(absl::IsDataLoss(need.status())) << need.status();
    return;
  }
  const auto again = envelope::ParseNeed(envelope::NeedAsText(*need));
  CHECK(again.ok() && *again == *need) << text;
}

constexpr char kHere[] = "7";

void CheckBackfill(std::string_view text) {
  const auto gap = operations::Gap::FromJson(std::string(text), kHere);
  if (!gap.ok()) {
    return;
  }
  const auto again = operations::Gap::FromJson(gap->ToJson(), kHere);
  CHECK(again.ok());
  CHECK(again->from == gap->from && again->notes == gap->notes && again->since_ms == gap->since_ms);
}

bool IsPassword(const std::string& keyword) {
  return keyword.find("password") != std::string::npos ||
         keyword.find("scram") != std::string::npos;
}

void CheckConninfo(std::string_view text) {
  const std::string conninfo(text.substr(0, text.find('\0')));
  if (conninfo.find("service") != std::string::npos) {
    return;  // it names a file
  }
  const auto settings = postgres::ResolveConninfo(conninfo);
  const std::string shown = postgres::RedactConninfo(conninfo);
  if (settings.ok()) {
    const bool elsewhere = std::any_of(settings->begin(), settings->end(), [](const auto& setting) {
      return !IsPassword(setting.first) && setting.second.find(kSecret) != std::string::npos;
    });
    CHECK(elsewhere || shown.find(kSecret) == std::string::npos) << shown;
    CHECK_EQ(postgres::RedactConninfo(shown), shown)
        << "what is shown is a conninfo, and shows as it is";
    return;
  }
  CHECK(absl::IsInvalidArgument(settings.status())) << settings.status();
  CHECK_EQ(settings.status().message().find(kSecret.data()), absl::string_view::npos)
      << settings.status();
}

}  // namespace

std::vector<std::string> MoreInputs() {
  std::string headers = "r";
  headers.append(postgres::kWholeCells - 1, '\0');
  for (int i = 0; i < 100'000; ++i) {
    headers += "6964:61,";
  }
  std::string nested = "g";
  nested.append(100'000, '[');
  return {std::move(headers), std::move(nested), "c" + std::string(100'000, '\'')};
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const walpost::fuzz::Bounds bounds;
  switch (data[0]) {
    case 'r':
      walpost::fuzz::CheckDeadLetter(rest);
      break;
    case 'k':
      walpost::fuzz::CheckKeptRow(rest);
      break;
    case 's':
      walpost::fuzz::CheckSchemaNeed(rest);
      break;
    case 'g':
      walpost::fuzz::CheckBackfill(rest);
      break;
    case 'e':
      (void)walpost::envelope::EnvelopeAsJson(rest);
      break;
    default:
      walpost::fuzz::CheckConninfo(rest);
  }
  bounds.Check();
  return 0;
}
