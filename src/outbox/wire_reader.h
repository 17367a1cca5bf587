// WireReader - protobuf's wire format, one field after another.
// Why: a logical message's content becomes an event without a copy; a generated class would copy
//   every field. A fuzz target holds what is read against the generated class.
// Thread: a value.   Lifetime: views live as long as the bytes it was given.
// Errors: ok() is false after Next() has returned false before the end: a field that is cut, too
//   long or of an unknown kind, or one of the groups that proto3 does not have.
// Source: protobuf manual, "Encoding".
#pragma once

#include <cstdint>
#include <string_view>

namespace walpost::outbox {

class WireReader {
 public:
  enum class Kind : std::uint8_t { kVarint, kFixed64, kBytes, kFixed32 };

  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  // The next field, or false: at the end, or where nothing can be read.
  bool Next();

  bool ok() const { return ok_; }

  std::uint32_t field() const { return field_; }

  Kind kind() const { return kind_; }

  // Of a field of kind kVarint.
  std::uint64_t number() const { return number_; }

  // Of a field of kind kBytes.
  std::string_view bytes() const { return bytes_; }

 private:
  bool Fail();
  bool Varint(std::size_t bytes_max, std::uint64_t* value);
  bool Take(std::size_t size);

  std::string_view rest_;
  bool ok_ = true;
  std::uint32_t field_ = 0;
  Kind kind_ = Kind::kVarint;
  std::uint64_t number_ = 0;
  std::string_view bytes_;
};

}  // namespace walpost::outbox
