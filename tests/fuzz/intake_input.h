// IntakeInput - the bytes of an input of intake_fuzz as what they stand for, and back.
// Why: blind changes mostly destroy the lengths; the mutator changes one entry, or one column of
//   one row, and leaves the rest in shape.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace walpost::fuzz {

struct IntakeInput {
  // Bits of `settings`.
  static constexpr std::uint8_t kRawValue = 1;
  static constexpr std::uint8_t kDebeziumHeaders = 2;
  static constexpr std::uint8_t kRoutedByRow = 4;  // columns topic and partition, header from note
  static constexpr std::uint8_t kNullsAllowed = 8;
  static constexpr std::uint8_t kTemplate = 16;    // topic from aggregate type and column note
  static constexpr std::uint8_t kDeadLetter = 32;  // rows that become no event become dead letters
  static constexpr std::uint8_t kSkip = 64;        // ... are skipped
  // CloudEvents: binary, with kRawValue as protobuf, with kDebeziumHeaders as JSON.
  static constexpr std::uint8_t kCloudEvents = 128;

  // What an entry is that is no frame. No server sends a frame like these.
  static constexpr std::string_view kReconnect = "";
  static constexpr std::string_view kGiveUp = "f";  // everything in flight is given up
  static constexpr char kSettle = 's';  // and one byte: which of the events in flight is delivered

  std::uint8_t settings = 0;
  std::vector<std::string> entries;

  // One byte of settings, then entries, each a length of two bytes and that many bytes. The last
  // one may be short.
  static IntakeInput Split(std::string_view bytes);
  std::string Join() const;
};

}  // namespace walpost::fuzz
