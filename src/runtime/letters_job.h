// ReadForLot - the blocking half of what Pipeline::TakeLetterRead asks for.
// Thread: the helper thread.
// Limits: ends early, to be asked for again, when it holds kLettersMax or kValueBytesMax.
#pragma once

#include <chrono>
#include <cstddef>

#include "kafka/letters.h"
#include "pipeline/parking_lot.h"

namespace walpost::runtime {

inline constexpr std::size_t kLettersMax = 10'000;
inline constexpr std::size_t kValueBytesMax = std::size_t{1} << 20U;
inline constexpr std::chrono::milliseconds kReadLettersStep{5'000};

pipeline::LettersRead ReadForLot(const kafka::KafkaOptions& options, kafka::LetterPlace place,
                                 const pipeline::LetterRead& wanted);

}  // namespace walpost::runtime
