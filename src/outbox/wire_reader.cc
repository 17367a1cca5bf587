#include "outbox/wire_reader.h"

#include <limits>

namespace walpost::outbox {
namespace {

constexpr std::size_t kVarintBytesMax = 10;
// Tags and lengths have 32 bits.
constexpr std::size_t kShortVarintBytesMax = 5;

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
    const std::uint64_t byte = static_cast<unsigned char>(rest_[i]);
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

}  // namespace walpost::outbox
