// Halt - a decision that only an operator can undo.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/state.h"

namespace walpost::pipeline {

// EventReference - the one event that a decision or a halt is about, as the log names it: never its
// payload.
struct EventReference {
  static constexpr std::size_t kKeyBytesMax = 256;  // a longer key is cut

  std::string id;
  std::string type;
  std::optional<std::string> key;
  std::string table;
  std::string topic;  // empty = not known
  std::string position;
  std::string reason;  // stable code, e.g. record_too_large; empty = none
  std::uint32_t attempts = 0;
};

struct Halt {
  base::HaltReason reason = base::HaltReason::kProtocolError;
  std::string detail;                        // one line: what, where, what to do
  std::optional<EventReference> event = {};  // when it is about one
};

}  // namespace walpost::pipeline
