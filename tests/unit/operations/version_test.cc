#include "operations/status/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace walpost::operations {
namespace {

TEST(VersionTest, EachLineIsAProgramOrLibraryAndItsVersion) {
  EXPECT_THAT(VersionText("1.2.3"), ::testing::MatchesRegex("walpost 1\\.2\\.3\nlibpq [0-9.]+\n"
                                                            "librdkafka [0-9.]+\n"));
}

}  // namespace
}  // namespace walpost::operations
