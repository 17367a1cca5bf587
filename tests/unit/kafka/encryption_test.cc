#include "kafka/encryption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace walpost::kafka {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

KafkaOptions Options(std::vector<std::pair<std::string, std::string>> properties) {
  KafkaOptions options;
  options.name = "shop";
  options.properties = std::move(properties);
  return options;
}

TEST(KafkaEncryptionTest, ClearTextIsTheDefaultAndIsWarnedOf) {
  const KafkaOptions options =
      Options({{"bootstrap.servers", "kafka-1:9092,localhost:9092, 10.0.0.7:1"}});
  EXPECT_THAT(ClearTextWarning(options),
              AllOf(HasSubstr("plaintext"), HasSubstr("kafka-1:9092"), HasSubstr("10.0.0.7:1"),
                    Not(HasSubstr("localhost"))));
  EXPECT_THAT(WhyMayBeClearText(options), HasSubstr("plaintext"));
}

TEST(KafkaEncryptionTest, SaslAloneEncryptsNothing) {
  const KafkaOptions options =
      Options({{"metadata.broker.list", "kafka-1:9092"}, {"security.protocol", "SASL_PLAINTEXT"}});
  EXPECT_THAT(ClearTextWarning(options), HasSubstr("kafka-1:9092"));
  EXPECT_THAT(WhyMayBeClearText(options), HasSubstr("sasl_plaintext"));
}

TEST(KafkaEncryptionTest, TlsIsQuiet) {
  for (const char* protocol : {"SSL", "ssl", "SASL_SSL", "sasl_ssl"}) {
    const KafkaOptions options =
        Options({{"bootstrap.servers", "kafka-1:9093"}, {"security.protocol", protocol}});
    EXPECT_EQ(ClearTextWarning(options, {"kafka-2:9093"}), "") << protocol;
    EXPECT_EQ(WhyMayBeClearText(options), "") << protocol;
  }
}

TEST(KafkaEncryptionTest, AddressOfThisMachineIsQuietButTheClusterNamesItsBrokersItself) {
  const KafkaOptions options = Options({{"bootstrap.servers", "127.0.0.1:9092,[::1]:9092"}});
  EXPECT_EQ(ClearTextWarning(options, {"localhost:9092"}), "");
  EXPECT_THAT(ClearTextWarning(options, {"kafka-7:9092"}), HasSubstr("kafka-7:9092"));
  EXPECT_NE(WhyMayBeClearText(options), "");
}

TEST(KafkaEncryptionTest, AddressWithAProtocolOfItsOwnCounts) {
  const KafkaOptions options =
      Options({{"bootstrap.servers", "PLAINTEXT://kafka-1:9092,SSL://kafka-2:9093"},
               {"security.protocol", "SSL"}});
  EXPECT_THAT(ClearTextWarning(options), AllOf(HasSubstr("kafka-1"), Not(HasSubstr("kafka-2"))));
  EXPECT_THAT(WhyMayBeClearText(options), HasSubstr("PLAINTEXT://kafka-1:9092"));
}

TEST(KafkaEncryptionTest, TlsWithoutACipherMayBeClearText) {
  const auto why = [](const std::string& suites) {
    return WhyMayBeClearText(Options({{"bootstrap.servers", "kafka-1:9093"},
                                      {"security.protocol", "SSL"},
                                      {"ssl.cipher.suites", suites}}));
  };
  for (const char* suites :
       {"NULL-SHA256:@SECLEVEL=0", "ECDHE-RSA-AES256-GCM-SHA384:ADH-AES256-GCM-SHA384:@SECLEVEL=0",
        "HIGH:@SECLEVEL=0", "AECDH-AES256-SHA:@SECLEVEL=0", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"}) {
    EXPECT_NE(why(suites), "") << suites;
  }
  for (const char* suites : {"HIGH:!aNULL:-eNULL", "ECDHE-RSA-AES256-GCM-SHA384", "DEFAULT",
                             "HIGH:!aNULL:!eNULL:@SECLEVEL=0"}) {
    EXPECT_EQ(why(suites), "") << suites;
  }
  EXPECT_EQ(why("HIGH"), "") << "OpenSSL offers none without authentication at its level";
}

TEST(KafkaEncryptionTest, SecretThatGoesToAnHttpUrlMayBeClearText) {
  const auto why = [](const std::string& url) {
    return WhyMayBeClearText(Options({{"bootstrap.servers", "kafka-1:9093"},
                                      {"security.protocol", "SASL_SSL"},
                                      {"sasl.oauthbearer.token.endpoint.url", url}}));
  };
  EXPECT_NE(why("http://login/token"), "");
  EXPECT_EQ(why("HTTPS://login/token"), "");
}

}  // namespace
}  // namespace walpost::kafka
