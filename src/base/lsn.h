// Lsn, Xid - a position in PostgreSQL's write-ahead log, and a transaction id, as types of their
// own.
// Why: a bare uint64_t lets a commit_lsn be confirmed where an end_lsn is meant; that mistake is
//   data loss or duplicates, so positions never travel as integers.
// Thread: values.
// Units: an Lsn is a byte position; text form is two hex numbers, "16/B374D848".
// Source: PostgreSQL manual, "pg_lsn Type".
#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace walpost::base {

class Lsn {
 public:
  constexpr Lsn() = default;

  constexpr explicit Lsn(std::uint64_t value) : value_(value) {}

  // Accepts what PostgreSQL prints: 1-8 hex digits, a slash, 1-8 hex digits. kInvalidArgument
  // otherwise.
  static absl::StatusOr<Lsn> Parse(std::string_view text);

  constexpr std::uint64_t value() const { return value_; }

  // 0/0 means "no position" everywhere in the replication protocol.
  constexpr bool valid() const { return value_ != 0; }

  std::string ToString() const;

  friend constexpr auto operator<=>(Lsn, Lsn) = default;

 private:
  std::uint64_t value_ = 0;
};

std::ostream& operator<<(std::ostream& out, Lsn lsn);

struct Xid {
  std::uint32_t value = 0;

  friend constexpr auto operator<=>(Xid, Xid) = default;
};

// An id that no other transaction of a cluster ever has, as PostgreSQL's xid8. 0 = none.
struct FullXid {
  std::uint64_t value = 0;

  // That of a transaction of the same time, of whose id the stream has the lower half.
  constexpr FullXid OfTheTimeOf(Xid xid) const {
    const auto away = static_cast<std::int32_t>(xid.value - static_cast<std::uint32_t>(value));
    return {value + static_cast<std::uint64_t>(std::int64_t{away})};
  }

  friend constexpr auto operator<=>(FullXid, FullXid) = default;
};

}  // namespace walpost::base
