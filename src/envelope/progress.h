// EncodeProgress, DecodeProgress - remembered progress as the bytes of a record's value.
// Why: `run`, the verbs and operators' own tools read the same records; the message is
//   walpost.v1.Progress.
// Thread: any.
// Errors: kDataLoss for bytes that are no such message, or say what no walpost writes; kUnimplemented
//   for a format this version does not know.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/source_facts.h"

namespace walpost::envelope {

std::string EncodeProgress(const base::Progress& progress);
absl::StatusOr<base::Progress> DecodeProgress(std::string_view value);

// Also of a format that this version does not know: its fields keep their meaning.
std::uint64_t EpochOf(std::string_view value);

}  // namespace walpost::envelope
