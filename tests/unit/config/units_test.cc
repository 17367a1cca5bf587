#include "config/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace walpost::config {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(DurationTest, EveryUnitIsRead) {
  EXPECT_EQ(ParseDuration("250ms").value(), milliseconds(250));
  EXPECT_EQ(ParseDuration("25s").value(), milliseconds(25'000));
  EXPECT_EQ(ParseDuration("10min").value(), milliseconds(600'000));
  EXPECT_EQ(ParseDuration("2h").value(), milliseconds(7'200'000));
  EXPECT_EQ(ParseDuration("1d").value(), milliseconds(86'400'000));
  EXPECT_EQ(ParseDuration("0s").value(), milliseconds(0));
  EXPECT_EQ(ParseDuration("10 min").value(), milliseconds(600'000));
}

// A bare number would be seconds to one reader and milliseconds to the next.
TEST(DurationTest, AnythingElseIsRejectedWithWhatIsAccepted) {
  for (const char* text : {"", "s", "25", "-1s", "+1s", "1.5s", "1m", "1S", "1sec", "1s 2ms", " 1s",
                           "1s ", "1 s s", "0x10s", "ten"}) {
    const auto parsed = ParseDuration(text);
    ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(parsed.status().message()),
                HasSubstr("'" + std::string(text) + "' is not a duration"));
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("ms, s, min, h or d"));
  }
}

TEST(DurationTest, TooLargeToCountIsRejectedAndDoesNotWrap) {
  EXPECT_FALSE(ParseDuration("99999999999999999999ms").ok());
  EXPECT_FALSE(ParseDuration("9223372036854775807d").ok());
  EXPECT_FALSE(ParseDuration("18446744073709551615ms").ok());
}

TEST(DurationTest, ShownInTheLargestUnitThatIsExact) {
  EXPECT_EQ(FormatDuration(milliseconds(600'000)), "10min");
  EXPECT_EQ(FormatDuration(milliseconds(90'000)), "90s");
  EXPECT_EQ(FormatDuration(milliseconds(1'500)), "1500ms");
  EXPECT_EQ(FormatDuration(milliseconds(86'400'000)), "1d");
  EXPECT_EQ(FormatDuration(milliseconds(0)), "0ms");
}

TEST(SizeTest, EveryUnitIsRead) {
  EXPECT_EQ(ParseSize("512").value(), 512u);
  EXPECT_EQ(ParseSize("512B").value(), 512u);
  EXPECT_EQ(ParseSize("1KiB").value(), 1'024u);
  EXPECT_EQ(ParseSize("16MiB").value(), 16u * 1'024 * 1'024);
  EXPECT_EQ(ParseSize("2GiB").value(), 2'147'483'648u);
  EXPECT_EQ(ParseSize("1kB").value(), 1'000u);
  EXPECT_EQ(ParseSize("3MB").value(), 3'000'000u);
  EXPECT_EQ(ParseSize("1 GB").value(), 1'000'000'000u);
}

TEST(SizeTest, AnythingElseIsRejectedWithWhatIsAccepted) {
  for (const char* text : {"", "MiB", "-1", "1.5MiB", "16M", "16mib", "1TiB", "1 Ki B", "16MiBs"}) {
    const auto parsed = ParseSize(text);
    ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(parsed.status().message()),
                HasSubstr("'" + std::string(text) + "' is not a size"));
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("KiB, MiB or GiB"));
  }
}

TEST(SizeTest, TooLargeToCountIsRejectedAndDoesNotWrap) {
  EXPECT_FALSE(ParseSize("18446744073709551616").ok());
  EXPECT_FALSE(ParseSize("18446744073709551615").ok());
  EXPECT_FALSE(ParseSize("9999999999999GiB").ok());
}

TEST(UnitsTest, WhatIsShownReadsBackAsTheSame) {
  for (const std::uint64_t value :
       {0ULL, 1ULL, 999ULL, 1'000ULL, 1'024ULL, 1'536ULL, 65'536ULL, 1'000'000ULL, 1'024'000ULL,
        16'777'216ULL, 1'000'000'000ULL, 4'294'967'296ULL, 12'345'678'901ULL}) {
    EXPECT_EQ(ParseSize(FormatSize(value)).value(), value) << FormatSize(value);
    const milliseconds duration(static_cast<std::int64_t>(value));
    EXPECT_EQ(ParseDuration(FormatDuration(duration)).value(), duration)
        << FormatDuration(duration);
  }
}

}  // namespace
}  // namespace walpost::config
