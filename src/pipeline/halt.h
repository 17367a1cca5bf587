// Halt - a decision that only an operator can undo.
#pragma once

#include <optional>
#include <string>

#include "base/state.h"
#include "pipeline/event_reference.h"

namespace walpost::pipeline {

struct Halt {
  base::HaltReason reason = base::HaltReason::kProtocolError;
  std::string detail;                        // one line: what, where, what to do
  std::optional<EventReference> event = {};  // when it is about one
};

}  // namespace walpost::pipeline
