// Id - the id of an event as rows, records and dead letters have it, to find what is about the same event.
// Why: a record of another writer's, or a row, may have an id of any length; a dead letter has a longer one cut.
// Thread: a value.
#pragma once

#include <array>
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

}  // namespace walpost::operations
