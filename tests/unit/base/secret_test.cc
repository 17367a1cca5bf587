#include "base/secret.h"

#include <gtest/gtest.h>

namespace walpost::base {
namespace {

TEST(SecretTest, NameSaysWhetherAValueIsShown) {
  for (const char* name :
       {"sasl.password", "ssl.key.pem", "SASL.OAuthBearer.Client.Secret", "sasl.oauthbearer.config",
        "sasl.kerberos.kinit.cmd", "authorization", "X-Api-Key", "cookie", "token", "passphrase",
        "aws_credentials", "sasl.jaas.config"}) {
    EXPECT_TRUE(MayHoldSecret(name)) << name;
  }
  // Whoever chooses the name of a header may choose one that ends so.
  EXPECT_TRUE(MayHoldSecret("x-auth.file"));
  EXPECT_FALSE(PropertyMayHoldSecret("ssl.key.location"));
  EXPECT_TRUE(PropertyMayHoldSecret("ssl.key.password"));
  for (const char* name : {"bootstrap.servers", "linger.ms", "acks", "sasl.username", "env",
                           "socket.keepalive.enable", "compression.type"}) {
    EXPECT_FALSE(MayHoldSecret(name)) << name;
  }
}

TEST(SecretTest, PiecesOfASecretAreHidden) {
  EXPECT_EQ(HideRuns("bad: 'hunter2hunter2'", "hunter2hunter2"), "bad: '***'");
  EXPECT_EQ(HideRuns("bad: hunter2hu", "hunter2hunter2"), "bad: ***") << "cut";
  EXPECT_EQ(HideRuns("12345678 and 1234567", "x12345678x"), "*** and 1234567");
  EXPECT_EQ(HideRuns("aaaaaaaaaaaa", "aaaaaaaa"), "***aaaa");
  EXPECT_EQ(HideRuns("", "aaaaaaaa"), "");
  EXPECT_EQ(HideRuns("short", "short"), "short");
}

}  // namespace
}  // namespace walpost::base
