// Halt - a decision that only an operator can undo.
#pragma once

#include <string>

#include "base/state.h"

namespace walpost::pipeline {

struct Halt {
  base::HaltReason reason = base::HaltReason::kProtocolError;
  std::string detail;  // one line: what, where, what to do
};

}  // namespace walpost::pipeline
