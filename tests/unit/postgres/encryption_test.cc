#include "postgres/encryption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace walpost::postgres {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Why(const std::string& conninfo) {
  const auto settings = ResolveConninfo(conninfo);
  EXPECT_TRUE(settings.ok()) << settings.status();
  return settings.ok() ? WhyMayBeClearText(*settings) : "";
}

TEST(EncryptionTest, DefaultOfLibpqGoesOnInClearText) {
  EXPECT_THAT(Why("host=db1 dbname=shop"), AllOf(HasSubstr("sslmode is prefer"), HasSubstr("db1")));
  EXPECT_THAT(Why("postgresql://db1/shop?sslmode=allow"), HasSubstr("sslmode is allow"));
  EXPECT_THAT(Why("host=db1 sslmode=disable"), HasSubstr("sslmode is disable"));
}

TEST(EncryptionTest, ModesThatInsistAreEnough) {
  for (const char* mode :
       {"sslmode=require", "sslmode=verify-ca", "sslmode=verify-full", "gssencmode=require"}) {
    EXPECT_EQ(Why(std::string("host=db1 ") + mode), "") << mode;
  }
}

TEST(EncryptionTest, SocketsAndLoopbackStayOnThisMachine) {
  for (const char* conninfo : {"dbname=shop", "host=/run/postgresql", "host=@abstract",
                               "host=localhost", "host=127.0.0.1", "hostaddr=::1"}) {
    EXPECT_EQ(Why(conninfo), "") << conninfo;
  }
}

TEST(EncryptionTest, OneHostOfSeveralIsEnough) {
  EXPECT_THAT(Why("host=localhost,db2"), HasSubstr("db2"));
  EXPECT_THAT(Why("host=/run/postgresql,db2,db3"), HasSubstr("db2"));
}

TEST(EncryptionTest, AddressCountsAndNotTheNameThatGoesWithIt) {
  EXPECT_THAT(Why("host=localhost hostaddr=192.0.2.7"), HasSubstr("192.0.2.7"));
  EXPECT_EQ(Why("host=db1 hostaddr=127.0.0.1"), "");
  EXPECT_THAT(Why("host=localhost,db2 hostaddr=127.0.0.1,"), HasSubstr("db2"));
}

}  // namespace
}  // namespace walpost::postgres
