#include "outbox/time_value.h"

#include <limits>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "base/byte_reader.h"
#include "base/status.h"

namespace walpost::outbox {
namespace {

using pgoutput::Value;

constexpr std::int64_t kUnixDaysOf2000 = 10'957;

absl::StatusOr<std::int64_t> ReadBinary(const Value& value, bool wide) {
  base::ByteReader reader(value.bytes);
  const std::int64_t number = wide ? reader.I64() : reader.I32();
  if (!reader.AtEnd()) {
    return absl::InvalidArgumentError("a binary time of another size");
  }
  const std::int64_t last = wide ? std::numeric_limits<std::int64_t>::max()
                                 : std::int64_t{std::numeric_limits<std::int32_t>::max()};
  const std::int64_t first = wide ? std::numeric_limits<std::int64_t>::min()
                                  : std::int64_t{std::numeric_limits<std::int32_t>::min()};
  if (number == last || number == first) {
    return absl::InvalidArgumentError("an infinite time");
  }
  return number;
}

absl::StatusOr<absl::Time> Parse(std::string_view text, const char* format) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(format, absl::string_view(text.data(), text.size()), &time, &error) ||
      time == absl::InfiniteFuture() || time == absl::InfinitePast()) {
    return absl::InvalidArgumentError("a time that is infinite or not in ISO form");
  }
  return time;
}

// The year that 44 BC is has the number -43, since no year 0 lies between 1 BC and 1.
std::string WithSignedYear(std::string_view text) {
  constexpr std::string_view kBeforeChrist = " BC";
  std::int64_t year = 0;
  const std::size_t end = text.find('-');
  if (!text.ends_with(kBeforeChrist) || end == std::string_view::npos ||
      !absl::SimpleAtoi(std::string(text.substr(0, end)), &year) || year < 1) {
    return std::string(text);
  }
  text.remove_suffix(kBeforeChrist.size());
  return std::to_string(1 - year) + std::string(text.substr(end));
}

}  // namespace

absl::StatusOr<std::int64_t> ToUnixDays(const Value& value) {
  if (value.is_binary()) {
    ASSIGN_OR_RETURN(const std::int64_t days, ReadBinary(value, false));
    return days + kUnixDaysOf2000;
  }
  ASSIGN_OR_RETURN(const absl::Time time, Parse(WithSignedYear(value.bytes), "%Y-%m-%d"));
  return absl::ToCivilDay(time, absl::UTCTimeZone()) - absl::CivilDay(1970, 1, 1);
}

absl::StatusOr<std::int64_t> ToDayMicros(const Value& value) {
  if (value.is_binary()) {
    return ReadBinary(value, true);
  }
  if (value.bytes == "24:00:00") {
    return std::int64_t{86'400'000'000};
  }
  ASSIGN_OR_RETURN(const absl::Time time, Parse(value.bytes, "%H:%M:%E*S"));
  return absl::ToUnixMicros(time);
}

absl::StatusOr<base::WallTime> ToInstant(const Value& value) {
  constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();
  constexpr const char* kTooLate = "a time so late that no count of microseconds reaches it";
  if (value.is_binary()) {
    ASSIGN_OR_RETURN(const std::int64_t micros, ReadBinary(value, true));
    return micros > kLast - base::kPostgresEpochUnixMicros
               ? absl::StatusOr<base::WallTime>(absl::InvalidArgumentError(kTooLate))
               : base::FromPostgresMicros(micros);
  }
  const std::string text = WithSignedYear(value.bytes);
  const bool offset = text.find_first_of("+-", text.find(' ')) != std::string::npos;
  ASSIGN_OR_RETURN(const absl::Time time,
                   Parse(text, offset ? "%Y-%m-%d %H:%M:%E*S%Ez" : "%Y-%m-%d %H:%M:%E*S"));
  if (time > absl::FromUnixMicros(kLast)) {
    return absl::InvalidArgumentError(kTooLate);
  }
  return base::WallTime(std::chrono::microseconds(absl::ToUnixMicros(time)));
}

}  // namespace walpost::outbox
