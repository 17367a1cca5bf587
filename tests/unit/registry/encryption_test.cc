#include "registry/encryption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace walpost::registry {
namespace {

using ::testing::HasSubstr;

RegistryOptions Options(std::vector<std::string> urls) {
  RegistryOptions options;
  options.urls = std::move(urls);
  return options;
}

TEST(RegistryEncryptionTest, HttpOverANetworkIsFound) {
  EXPECT_EQ(ClearTextUrl(Options({"https://one", "http://two:8081/path"})), "http://two:8081/path");
  EXPECT_EQ(ClearTextUrl(Options({"http://[2001:db8::1]:8081"})), "http://[2001:db8::1]:8081");
  EXPECT_THAT(ClearTextWarning(Options({"http://two"})), HasSubstr("http://two"));
}

TEST(RegistryEncryptionTest, HttpsAndThisMachineAreQuiet) {
  EXPECT_EQ(ClearTextUrl(Options({"https://one", "http://localhost:8081", "http://127.0.0.1/x",
                                  "http://[::1]:8081"})),
            "");
  EXPECT_EQ(ClearTextWarning(Options({})), "");
}

}  // namespace
}  // namespace walpost::registry
