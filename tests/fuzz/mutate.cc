#include "fuzz/mutate.h"

#include <algorithm>

namespace walpost::fuzz {
namespace {

// What often decides something: signs, limits of lengths and counts, quotes, brackets, blanks.
constexpr char kTelling[] = "\0\1\x7f\x80\xff\"'\\{}[]:,.-$&*!|#\n\t 019tnbe";

void MutateOnce(std::string* bytes, Random* random) {
  const std::size_t place = Below(bytes->size() + 1, random);
  const std::size_t few = 1 + Below(8, random);
  const char telling = kTelling[Below(sizeof(kTelling) - 1, random)];
  switch (Below(9, random)) {
    case 0:
      if (place < bytes->size()) {
        (*bytes)[place] = static_cast<char>((*bytes)[place] ^ (1 << Below(8, random)));
      }
      break;
    case 1:
      if (place < bytes->size()) {
        (*bytes)[place] = static_cast<char>(Below(256, random));
      }
      break;
    case 2:
      if (place < bytes->size()) {
        (*bytes)[place] = telling;
      }
      break;
    case 3:
      bytes->insert(place, 1, telling);
      break;
    case 4:
      bytes->insert(place, few, static_cast<char>(Below(256, random)));
      break;
    case 5:
      bytes->erase(place, few);
      break;
    case 6:
      bytes->resize(place);
      break;
    case 7:  // a piece of itself, somewhere else
      bytes->insert(place, bytes->substr(Below(bytes->size() + 1, random), few * 4));
      break;
    default:  // an extreme where a length, a count or a time may be
      for (std::size_t i = place; i < std::min(place + few, bytes->size()); ++i) {
        (*bytes)[i] = telling == '\0' ? '\0' : '\xff';
      }
  }
}

}  // namespace

std::size_t Below(std::size_t limit, Random* random) {
  return limit == 0 ? 0 : static_cast<std::size_t>((*random)() % limit);
}

void Mutate(std::string* bytes, Random* random) {
  for (std::size_t times = 1 + Below(4, random); times > 0; --times) {
    MutateOnce(bytes, random);
  }
}

}  // namespace walpost::fuzz
