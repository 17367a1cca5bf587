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
  kServes,    // or whatever else does not say that it stops; about the slot it says nothing
  kStopping,  // it rejects connections: once streaming, that is a shutdown
  kNone,      // nobody answered in time
  kOurs,      // the slot is streamed to this process
  kNotOurs,   // it is not: nobody reads it, or another process does
  kNotSaid,   // the server answered, and does not let this role ask
};

}  // namespace walpost::base
