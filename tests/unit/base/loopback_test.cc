#include "base/loopback.h"

#include <gtest/gtest.h>

namespace walpost::base {
namespace {

TEST(LoopbackTest, NamesAndAddressesOfThisMachine) {
  for (const char* host : {"localhost", "127.0.0.1", "127.8.9.1", "::1", "[::1]"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  }
}

TEST(LoopbackTest, AnyOtherNameMayLeadAnywhere) {
  for (const char* host :
       {"", "db", "127.0.0.1.evil.example", "127.evil.example", "localhost.evil.example",
        "10.127.0.1", "128.0.0.1", "0.0.0.0", "::", "fe80::1", "12"}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
  }
}

}  // namespace
}  // namespace walpost::base
