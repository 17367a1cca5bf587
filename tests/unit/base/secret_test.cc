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
  for (const char* name : {"bootstrap.servers", "linger.ms", "acks", "sasl.username", "env",
                           "socket.keepalive.enable", "ssl.key.location", "compression.type"}) {
    EXPECT_FALSE(MayHoldSecret(name)) << name;
  }
}

}  // namespace
}  // namespace walpost::base
