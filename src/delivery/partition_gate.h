// PartitionGate - whether a partition may be given a record while others of it are not acknowledged.
// Why: a broker accepts any first sequence of a producer that it does not know. Then a record behind
//   one that it rejects becomes visible, and idempotence prevents nothing. So the first record for a
//   broker that may not know this producer is sent alone: of a new producer, of a partition that was
//   idle (a broker forgets a producer after producer.id.expiration.ms without a record of it, 24 h
//   unless configured), and of a topic that was made anew.
// Thread: one owner.   Lifetime: a value, of one producer.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/time.h"

namespace walpost::delivery {

class PartitionGate {
 public:
  // A broker is taken to know the producer for so long after it acknowledged a record.
  static constexpr std::chrono::milliseconds kKnownFor{60'000};

  bool MaySend() const { return outstanding_ == 0 || !alone_; }

  // Nothing may follow the oldest that is outstanding.
  bool alone() const { return alone_; }

  // CHECK-fails unless MaySend.
  void OnSent(base::MonotonicTime now, std::chrono::milliseconds known_for = kKnownFor);

  // `offset` negative = not known. True when it lies before an earlier one: the topic was made anew.
  bool OnAcknowledged(base::MonotonicTime now, std::int64_t offset);

  void OnFailed();

  // The topic was deleted, or is another one of the same name.
  void OnMadeAnew();

 private:
  std::uint32_t outstanding_ = 0;
  bool alone_ = true;  // until an acknowledgement, nothing follows what is outstanding
  bool known_ = false;
  base::MonotonicTime known_at_;  // by an acknowledgement
  std::int64_t next_offset_ = 0;
};

}  // namespace walpost::delivery
