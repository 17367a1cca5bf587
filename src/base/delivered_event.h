// DeliveredEvent - an event that Kafka has taken, as people are shown it: never its payload or key.
// Why here: pipeline fills it in, observe shows it; neither may use the other.
// Thread: a value.
#pragma once

#include <cstdint>
#include <string>

#include "base/lsn.h"
#include "base/time.h"

namespace walpost::base {

struct DeliveredEvent {
  std::string id;    // empty = its record says none
  std::string type;  // the same
  std::string topic;
  std::int32_t partition = -1;  // -1 = not known
  std::int64_t offset = -1;     // the same
  Lsn commit_lsn;
  WallTime committed_at;
  WallTime delivered_at;
};

}  // namespace walpost::base
