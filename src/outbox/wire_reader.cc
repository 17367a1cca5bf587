#include "outbox/wire_reader.h"

#include <limits>

namespace walpost::outbox {
namespace {

constexpr std::size_t kVarintBytesMax = 10;
// Tags and lengths have 32 bits.
constexpr std::size_t kShortVarintBytesMax = 5;

unsigned char ByteAt(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// Bytes behind the first one of a character, and what the second may be; 0 = no first byte.
struct Sequence {
  std::size_t more = 0;
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xBF;
};

Sequence SequenceOf(unsigned char first) {
  if (first >= 0xC2 && first <= 0xDF) {
    return {1};
  }
  if (first >= 0xE0 && first <= 0xEF) {
    return {2, static_cast<unsigned char>(first == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(first == 0xED ? 0x9F : 0xBF)};
  }
  if (first >= 0xF0 && first <= 0xF4) {
    return {3, static_cast<unsigned char>(first == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(first == 0xF4 ? 0x8F : 0xBF)};
  }
  return {};
}

}  // namespace

bool WireReader::Next() {
  if (!ok_ || rest_.empty()) {
    return false;
  }
  std::uint64_t tag = 0;
  if (!Varint(kShortVarintBytesMax, &tag) || tag > std::numeric_limits<std::uint32_t>::max() ||
      tag >> 3 == 0) {
    return Fail();
  }
  field_ = static_cast<std::uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0:
      kind_ = Kind::kVarint;
      return Varint(kVarintBytesMax, &number_) || Fail();
    case 1:
      kind_ = Kind::kFixed64;
      return Take(8);
    case 2: {
      kind_ = Kind::kBytes;
      std::uint64_t size = 0;
      return (Varint(kShortVarintBytesMax, &size) && size <= rest_.size() && Take(size)) || Fail();
    }
    case 5:
      kind_ = Kind::kFixed32;
      return Take(4);
    default:
      return Fail();
  }
}

bool WireReader::Fail() {
  ok_ = false;
  return false;
}

bool WireReader::Varint(std::size_t bytes_max, std::uint64_t* value) {
  *value = 0;
  for (std::size_t i = 0; i < rest_.size() && i < bytes_max; ++i) {
    const std::uint64_t byte = ByteAt(rest_, i);
    *value |= (byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      rest_.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

bool WireReader::Take(std::size_t size) {
  if (size > rest_.size()) {
    return Fail();
  }
  bytes_ = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return true;
}

bool IsUtf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    if (ByteAt(text, i) < 0x80) {
      ++i;
      continue;
    }
    const Sequence sequence = SequenceOf(ByteAt(text, i));
    if (sequence.more == 0 || text.size() - i <= sequence.more ||
        ByteAt(text, i + 1) < sequence.second_min || ByteAt(text, i + 1) > sequence.second_max) {
      return false;
    }
    for (std::size_t j = 2; j <= sequence.more; ++j) {
      if ((ByteAt(text, i + j) & 0xC0) != 0x80) {
        return false;
      }
    }
    i += sequence.more + 1;
  }
  return true;
}

}  // namespace walpost::outbox
