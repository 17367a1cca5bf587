// PingAnswer - what a new connection to the source server comes to.
// Thread: a value.
#pragma once

#include <cstdint>

namespace walpost::base {

enum class PingAnswer : std::uint8_t {
  kServes,    // or whatever else does not say that it stops
  kStopping,  // it rejects connections: once streaming, that is a shutdown
  kNone,      // nobody answered in time
};

}  // namespace walpost::base
