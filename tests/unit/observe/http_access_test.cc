#include "observe/http_access.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"

namespace walpost::observe {
namespace {

constexpr char kToken[] = "0123456789abcdef:+/=";

std::string Basic(const std::string& pair) { return "Basic " + absl::Base64Escape(pair); }

TEST(AdmitsTest, TokenIsTakenAsBearerAndAsPasswordOfAnyName) {
  const std::string token = kToken;
  EXPECT_TRUE(Admits("Bearer " + token, kToken));
  EXPECT_TRUE(Admits("bearer   " + token, kToken));
  EXPECT_TRUE(Admits(Basic("prometheus:" + token), kToken));
  EXPECT_TRUE(Admits(Basic(":" + token), kToken));
  EXPECT_TRUE(Admits("BASIC" + Basic("me:" + token).substr(5), kToken));
}

TEST(AdmitsTest, EverythingElseIsRefused) {
  const std::string token = kToken;
  for (const std::string& header : {std::string(),
                                    token,
                                    std::string("Bearer"),
                                    std::string("Bearer "),
                                    "Bearer" + token,
                                    "Bearer " + token + "x",
                                    "Bearer " + token.substr(1),
                                    "Bearer " + token.substr(0, 19),
                                    "Bearer x" + token.substr(1),
                                    "Bearer " + token + token,
                                    "Digest " + token,
                                    Basic(token),
                                    Basic(token + ":"),
                                    Basic("me:"),
                                    Basic("me:" + token + "x"),
                                    Basic("me:" + std::string("\0", 1) + token),
                                    "Basic " + token,
                                    std::string("Basic"),
                                    std::string("Basic !!"),
                                    "Bearer " + Basic("me:" + token)}) {
    EXPECT_FALSE(Admits(header, kToken)) << header;
  }
}

TEST(IsLoopbackOnlyTest, EveryAddressMustBeOfThisHost) {
  for (const char* listen : {"", "127.0.0.1:9464", "localhost:9464", "127.8.0.1:0", "[::1]:9464",
                             "127.0.0.1:9464,[::1]:9464", "127.0.0.1:9464, 127.0.0.2:1"}) {
    EXPECT_TRUE(IsLoopbackOnly(listen)) << listen;
  }
  for (const char* listen : {"0.0.0.0:9464", "9464", ":9464", "+9464", "[::]:9464", "10.0.0.7:9464",
                             "127.0.0.1:9464,10.0.0.7:9464", "[::1:2]:9464", "[fd00::1]:1"}) {
    EXPECT_FALSE(IsLoopbackOnly(listen)) << listen;
    EXPECT_NE(OpenToAll(listen).find(listen), std::string::npos);
  }
}

}  // namespace
}  // namespace walpost::observe
