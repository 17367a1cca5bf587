// DlqList, DlqShow - what lies in walpost.dead_letters, for people and as JSON.
// Thread: blocking.
// Errors: in Outcome. Values are shown only when asked for: they may be secret.
// Source: docs/dead-letters.md.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/text.h"
#include "operations/deadletters/dlq.h"
#include "operations/outcome.h"
#include "outbox/kept_row.h"

namespace walpost::operations {

// What verbs say about one dead letter, in words and as JSON.
// Thread: free functions.
using DeadLetterJson = nlohmann::ordered_json;

using base::Printable;

// "1 event", "2 events".
std::string Count(std::size_t count, std::string_view noun);

// Milliseconds since 1970 as RFC 3339 in UTC.
std::string TimeText(std::int64_t milliseconds);

// "dead_letter" or "parked", or how it was closed.
std::string StateName(const base::DeadLetter& row);

// All that is known, but for value and headers.
DeadLetterJson AsJson(const base::DeadLetter& row);

// Each column as the server shows it; what has no form that walpost knows, in hexadecimal.
DeadLetterJson AsJson(const outbox::KeptRow& row);

// Bytes that are not UTF-8 are replaced.
std::string Dump(const DeadLetterJson& json);

// NoteSkipped - a dead letter that stands for rows which an operator had left out.
// Why: they can be found where undeliverable events are looked for, and outbox.maintain keeps all
//   rows until somebody discards it: these may be nowhere else.
// Thread: blocking.

// Its reason.
inline constexpr char kTransactionsSkipped[] = "transactions_skipped";

// False = not noted: there is no such table. `position`: up to where; empty = of no position, and
// then a standby need not take it, since outbox.maintain drops nothing there.
absl::StatusOr<bool> NoteSkipped(const PipelineSettings& options, const std::string& position,
                                 const std::string& detail);

struct DlqListOptions {
  DeadLetterFilter filter;
  bool all = false;       // also what was closed
  std::size_t limit = 0;  // of lines; 0 = none
  bool json = false;
};

Outcome DlqList(const PipelineSettings& options, const DlqListOptions& list);

struct DlqShowOptions {
  std::string event;  // id or position
  // The value and nothing else: an Envelope and a row that is kept as JSON, any other as it is.
  bool payload = false;
  bool json = false;
};

// The open one of several with the same id, else the last of them.
Outcome DlqShow(const PipelineSettings& options, const DlqShowOptions& show);

}  // namespace walpost::operations
