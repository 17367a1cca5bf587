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

TEST(AdmitsTest, EverythingElseIsRejected) {
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
  for (const char* listen :
       {"0.0.0.0:9464", "9464", ":9464", "+9464", "[::]:9464", "10.0.0.7:9464",
        "127.0.0.1:9464,10.0.0.7:9464", "[::1:2]:9464", "[fd00::1]:1", "127.evil.example:1"}) {
    EXPECT_FALSE(IsLoopbackOnly(listen)) << listen;
    EXPECT_NE(OpenToAll(listen).find(listen), std::string::npos);
  }
}

TEST(ParseListenTest, TakesAddressesPortsAndLists) {
  const auto one = ParseListen("127.0.0.1:9464");
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_EQ(one->size(), 1U);
  EXPECT_EQ(one->front().host, "127.0.0.1");
  EXPECT_EQ(one->front().port, "9464");
  const auto two = ParseListen("0.0.0.0:9464, [::1]:0");
  ASSERT_TRUE(two.ok()) << two.status();
  ASSERT_EQ(two->size(), 2U);
  EXPECT_EQ(two->back().host, "::1");
  EXPECT_EQ(two->back().port, "0");
  EXPECT_EQ(ParseListen("9464")->front().host, "");
  EXPECT_TRUE(ParseListen("")->empty());
}

TEST(ParseListenTest, RejectsWhatIsNoAddressAndPort) {
  for (const char* listen :
       {":9464", "localhost", "127.0.0.1:", "127.0.0.1:65536", "::1:9464", "127.0.0.1:9464,",
        "127.0.0.1:+80", "127.0.0.1:94 64", "[::1]x:9464", "[::1:9464", "[localhost]:9464"}) {
    EXPECT_EQ(ParseListen(listen).status().code(), absl::StatusCode::kInvalidArgument) << listen;
  }
}

TEST(IsOwnHostTest, TakesAddressesAndNamesThatNoForeignSiteCanHave) {
  const std::vector<std::string> names = {"walpost.example.com"};
  for (const char* host :
       {"", "localhost", "localhost:9464", "127.0.0.1", "10.0.0.7:9464", "[::1]:9464", "walpost",
        "walpost:9464", "walpost.shop.svc:9464", "walpost.shop.svc.cluster.local", "db.internal",
        "printer.local.", "WALPOST.example.COM:443"}) {
    EXPECT_TRUE(IsOwnHost(host, names)) << host;
  }
  for (const char* host : {"evil.example", "evil.example:9464", "127.0.0.1.evil.example",
                           "walpost.example.com.evil.example", "x.walpost.example.com",
                           "evilsvc.com", "1.2.3.4.5", "local.evil", "[::1].evil.example", "[evil]",
                           "walpost:9464.evil.example", "a:.evil.example"}) {
    EXPECT_FALSE(IsOwnHost(host, names)) << host;
  }
}

}  // namespace
}  // namespace walpost::observe
