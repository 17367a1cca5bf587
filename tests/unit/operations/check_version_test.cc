#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operations/status/check_parts.h"

namespace walpost::operations {
namespace {

TEST(VersionTest, EachLineIsAProgramOrLibraryAndItsVersion) {
  EXPECT_THAT(VersionText("1.2.3"), ::testing::MatchesRegex("walpost 1\\.2\\.3\nlibpq [0-9.]+\n"
                                                            "librdkafka [0-9.]+\n"));
}

bool Mended(int server_version) {
  return server_version >= FirstThatLearnsOfAddedTables(server_version);
}

TEST(MinorReleaseTest, ReleasesFromBeforeMay2025DoNotLearnOfAddedTables) {
  for (const int last_without : {130'020, 140'017, 150'012, 160'008, 170'004}) {
    EXPECT_FALSE(Mended(last_without)) << last_without;
    EXPECT_TRUE(Mended(last_without + 1)) << last_without + 1;
  }
  EXPECT_FALSE(Mended(130'000));
  EXPECT_FALSE(Mended(170'000));
}

TEST(MinorReleaseTest, NewerMajorReleasesLearnOfThemFromTheFirstOn) {
  EXPECT_TRUE(Mended(180'000));
  EXPECT_TRUE(Mended(190'001));
}

}  // namespace
}  // namespace walpost::operations
