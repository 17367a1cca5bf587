// DlqList, DlqShow - what lies in the dead-letter topic, for people and as JSON.
// Thread: blocking.
// Errors: in Outcome. Values are shown only when asked for: they may be secret.
// Source: docs/dead-letters.md.
#pragma once

#include <cstddef>
#include <string>

#include "operations/dlq.h"
#include "operations/outcome.h"

namespace walpost::operations {

struct DlqListOptions {
  LetterFilter filter;
  bool all = false;       // also what was decided
  std::size_t limit = 0;  // of lines; 0 = none
  bool json = false;
};

Outcome DlqList(const DlqOptions& options, const DlqListOptions& list);

struct DlqShowOptions {
  std::string event;     // id or position
  bool payload = false;  // the value and nothing else: an Envelope as JSON, any other as it is
  bool json = false;
};

// The undecided one of several with the same id, else the last of them.
Outcome DlqShow(const DlqOptions& options, const DlqShowOptions& show);

}  // namespace walpost::operations
