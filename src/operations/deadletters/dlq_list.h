// DlqList, DlqShow - what lies in walpost.dead_letters, for people and as JSON.
// Thread: blocking.
// Errors: in Outcome. Values are shown only when asked for: they may be secret.
// Source: docs/dead-letters.md.
#pragma once

#include <cstddef>
#include <string>

#include "operations/deadletters/dlq.h"
#include "operations/outcome.h"

namespace walpost::operations {

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
