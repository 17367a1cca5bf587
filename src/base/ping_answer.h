// PingQuestion, PingAnswer - what a new connection to the source server is for, and what it comes to.
// Thread: a value.
#pragma once

#include <cstdint>

namespace walpost::base {

enum class PingQuestion : std::uint8_t {
  kServes,  // does the server take connections? No SQL
  kSlot,    // and is the slot still streamed to this process?
};

enum class PingAnswer : std::uint8_t {
  kServes,    // or whatever else does not say that it stops
  kStopping,  // it rejects connections: once streaming, that is a shutdown
  kNone,      // nobody answered in time
  kOurs,      // the slot is streamed to this process
  kNotOurs,   // it is not: nobody reads it, or another process does
};

}  // namespace walpost::base
