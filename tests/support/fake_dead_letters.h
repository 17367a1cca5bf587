// FakeDeadLetters - walpost.dead_letters in memory, as the runtime carries out what the pipeline
// asks.
// Thread: one owner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dead_letter.h"
#include "pipeline/dead_letters.h"

namespace walpost::testing {

class FakeDeadLetters {
 public:
  pipeline::DeadLetterReply CarryOut(const pipeline::DeadLetterRequest& request);

  // As the verb: about the row, or the whole of its parked key.
  void Decide(std::size_t row, base::DeadLetter::Decision decision, bool of_key);

  // With what was closed.
  std::vector<base::DeadLetter> rows;
  std::size_t rows_per_reading = 1'000;
  std::uint64_t written = 0;
  std::uint64_t looks = 0;  // for decisions
  bool in_recovery = false;

 private:
  std::int64_t next_seq_ = 1;
};

}  // namespace walpost::testing
