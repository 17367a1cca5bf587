// WideHash - 128 bits of one or two texts, so that no two are taken for one by chance.
// Why: what is kept of each of many texts of any size must be small, and 64 bits may be the same for
//   two. More calls alone give no more bits: of a text of more than 16 bytes Abseil makes one hash of 64
//   bits, and the rest is a function of that, whatever is hashed before or behind it. So the second half
//   is of another text: the same one, cut behind its first byte.
//   They are absl::string_view because Abseil may hash another type as the standard library does:
//   without a seed, so that anybody can make two texts with one hash.
// Thread: free functions.
// Limits: the same only within one process.
// Source: Abseil, hash/internal/hash.h, CombineContiguousImpl and HashSelect.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace walpost::base {

using WideHash = std::pair<std::uint64_t, std::uint64_t>;

inline WideHash WideHashOf(std::string_view a, std::string_view b = {}) {
  const absl::string_view first(a.data(), a.size());
  const absl::string_view second(b.data(), b.size());
  const std::size_t first_cut = first.empty() ? 0 : 1;
  const std::size_t second_cut = second.empty() ? 0 : 1;
  return {absl::HashOf(first, second),
          absl::HashOf(first.substr(0, first_cut), first.substr(first_cut),
                       second.substr(0, second_cut), second.substr(second_cut))};
}

}  // namespace walpost::base
