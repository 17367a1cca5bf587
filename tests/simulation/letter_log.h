// LetterLog - the dead-letter topic as it stands, and an operator who writes commands to it.
// Why: it is the truth about what is parked; what walpost believes is judged by it.
// Thread: one owner.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "envelope/letter.h"
#include "envelope/record.h"
#include "pipeline/parking_lot.h"
#include "random.h"

namespace walpost::simulation {

class LetterLog {
 public:
  static constexpr char kTopic[] = "walpost-dlq";
  static constexpr char kPipeline[] = "orders";

  explicit LetterLog(std::uint64_t seed) : random_(seed, 6) {}

  // With bytes of its own, as a broker would keep them.
  static envelope::LoggedLetter Copy(const envelope::Record& record);

  // It landed. Other pipelines' records may stand before it.
  const envelope::LoggedLetter& Append(envelope::LoggedLetter letter);

  const envelope::LoggedLetter& AppendCommand(envelope::LetterAction action,
                                              const std::string& topic, const std::string& key,
                                              const std::string& position);

  // The command at this offset; null when there is none.
  const envelope::LoggedLetter* CommandAt(std::int64_t offset) const;

  // No decision that answers the newest command about this key has landed.
  bool IsWaiting(const std::string& topic, const std::string& key) const;

  // As the runtime reads it: everything that stands there now, or the beginning of that.
  pipeline::LettersRead Read(const pipeline::LetterRead& wanted);

  std::size_t size() const { return letters_.size(); }

 private:
  Random random_;
  std::vector<envelope::LoggedLetter> letters_;
  std::int64_t end_ = 0;
};

}  // namespace walpost::simulation
