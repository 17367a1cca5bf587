// Id - the id of an event as rows, records and dead letters have it, to find what is about the same event.
// Why: a record of another writer's, or a row, may have an id of any length; a dead letter has a longer one cut.
// Thread: a value.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/dead_letter.h"
#include "base/wide_hash.h"
#include "outbox/undeliverable.h"
#include "postgres/dead_letter_cells.h"

namespace walpost::operations {

// Of an id that is longer than it may be, all of it: base::WideHash, in a form that has no constructor.
using WholeId = std::array<std::uint64_t, 2>;

struct Id {
  std::string text;  // as a dead letter has it: a longer one is cut
  WholeId whole{};   // 0 = `text` is
};

inline Id IdOf(std::string_view id) {
  if (id.size() <= outbox::kIdBytesMax) {
    return {std::string(id)};
  }
  const base::WideHash whole = base::WideHashOf(id);
  return {postgres::Text(id, base::DeadLetter::kTextBytesMax, /*ascii=*/false),
          {whole.first, whole.second}};
}

// No two events have the same one, whoever made them.
inline bool IsUuid(std::string_view id) {
  constexpr std::string_view kShape = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  return std::equal(id.begin(), id.end(), kShape.begin(), kShape.end(), [](char c, char shape) {
    return shape == '-' ? c == '-' : std::isxdigit(static_cast<unsigned char>(c)) != 0;
  });
}

}  // namespace walpost::operations
