// Fields of protobuf's wire format, measured and written: what the writers of values share.
// Thread: free functions.
// Limits: field numbers below 16; sizes fit an int.
// Source: protobuf manual, "Encoding".
#pragma once

#include <google/protobuf/io/coded_stream.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/time.h"

namespace walpost::envelope {

inline constexpr std::uint32_t kVarint = 0;
inline constexpr std::uint32_t kLengthDelimited = 2;

// Every field number here is below 16, so a tag is one byte.
inline constexpr std::size_t kTagBytes = 1;

inline std::size_t VarintSize(std::uint64_t value) {
  return google::protobuf::io::CodedOutputStream::VarintSize64(value);
}

inline char* WriteVarint(std::uint64_t value, char* out) {
  return reinterpret_cast<char*>(google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(
      value, reinterpret_cast<std::uint8_t*>(out)));
}

inline char* WriteTag(std::uint32_t field, std::uint32_t type, char* out) {
  *out = static_cast<char>(field << 3 | type);
  return out + kTagBytes;
}

inline std::size_t BytesFieldSize(std::size_t size) { return kTagBytes + VarintSize(size) + size; }

inline char* WriteBytesField(std::uint32_t field, std::string_view bytes, char* out) {
  out = WriteTag(field, kLengthDelimited, out);
  out = WriteVarint(bytes.size(), out);
  if (!bytes.empty()) {  // an empty view may point nowhere, which memcpy does not allow
    std::memcpy(out, bytes.data(), bytes.size());
  }
  return out + bytes.size();
}

// Fields without presence are left out when empty or zero, as protobuf does.
inline std::size_t TextSize(std::string_view text) {
  return text.empty() ? 0 : BytesFieldSize(text.size());
}

inline char* WriteText(std::uint32_t field, std::string_view text, char* out) {
  return text.empty() ? out : WriteBytesField(field, text, out);
}

inline std::size_t NumberSize(std::uint64_t number) {
  return number == 0 ? 0 : kTagBytes + VarintSize(number);
}

inline char* WriteNumber(std::uint32_t field, std::uint64_t number, char* out) {
  return number == 0 ? out : WriteVarint(number, WriteTag(field, kVarint, out));
}

struct TimeParts {
  std::int64_t seconds = 0;
  std::int32_t nanos = 0;
};

// Rounds seconds down. Not by std::chrono::floor, which overflows at the earliest times.
inline TimeParts Split(base::WallTime time) {
  constexpr std::int64_t kMicrosPerSecond = 1'000'000;
  const std::int64_t micros = time.time_since_epoch().count();
  std::int64_t seconds = micros / kMicrosPerSecond;
  std::int64_t rest = micros % kMicrosPerSecond;
  if (rest < 0) {
    rest += kMicrosPerSecond;
    --seconds;
  }
  return {seconds, static_cast<std::int32_t>(rest * 1'000)};
}

inline std::size_t TimeBodySize(const TimeParts& time) {
  return NumberSize(static_cast<std::uint64_t>(time.seconds)) +
         NumberSize(static_cast<std::uint64_t>(time.nanos));
}

inline char* WriteTime(std::uint32_t field, const TimeParts& time, char* out) {
  out = WriteTag(field, kLengthDelimited, out);
  out = WriteVarint(TimeBodySize(time), out);
  out = WriteNumber(1, static_cast<std::uint64_t>(time.seconds), out);
  return WriteNumber(2, static_cast<std::uint64_t>(time.nanos), out);
}

}  // namespace walpost::envelope
