#include "config/encryption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace walpost::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kRight[] =
    "security: {require_encryption: true}\n"
    "source: {conninfo: 'host=db1 sslmode=verify-full'}\n"
    "monitor: {conninfo: 'host=db2 sslmode=require'}\n"
    "schema_registry: {url: 'https://registry'}\n"
    "sink: {kafka: {properties: {bootstrap.servers: 'kafka:9093', security.protocol: SSL}}}\n";

std::string ProblemsWith(const std::vector<std::string>& sets) {
  return std::string(Parse(kRight, "w.yaml", sets).status().message());
}

TEST(RequireEncryptionTest, WhatIsEncryptedThroughoutIsTaken) {
  EXPECT_EQ(ProblemsWith({}), "");
  EXPECT_EQ(ProblemsWith({"source.conninfo=host=/run/postgresql"}), "");
}

TEST(RequireEncryptionTest, EachConnectionThatMayBeInClearTextIsRejectedByName) {
  EXPECT_THAT(ProblemsWith({"source.conninfo=host=db1"}),
              AllOf(HasSubstr("source.conninfo"), HasSubstr("sslmode=verify-full")));
  EXPECT_THAT(ProblemsWith({"monitor.conninfo=host=db2 sslmode=prefer"}),
              HasSubstr("monitor.conninfo"));
  EXPECT_THAT(ProblemsWith({"schema_registry.url=http://registry"}),
              HasSubstr("schema_registry.url"));
  EXPECT_THAT(ProblemsWith({"sink.kafka.properties={bootstrap.servers: 'localhost:9092'}"}),
              AllOf(HasSubstr("sink.kafka.properties"), HasSubstr("SASL_SSL")));
}

TEST(RequireEncryptionTest, WithoutItAllIsTaken) {
  EXPECT_EQ(ProblemsWith({"security.require_encryption=false", "source.conninfo=host=db1",
                          "sink.kafka.properties={bootstrap.servers: 'kafka:9092'}"}),
            "");
}

TEST(RequireEncryptionTest, ItIsShownAndConninfosOfVerbsAreLookedAt) {
  const auto config = Parse(kRight, "w.yaml", {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(Show(*config), HasSubstr("require_encryption: true"));
  EXPECT_FALSE(CheckConninfo(*config, "--standby", "host=db3").ok());
  EXPECT_TRUE(CheckConninfo(*config, "--standby", "host=db3 sslmode=verify-full").ok());
  EXPECT_TRUE(CheckConninfo(*config, "--standby", "").ok());
}

}  // namespace
}  // namespace walpost::config
