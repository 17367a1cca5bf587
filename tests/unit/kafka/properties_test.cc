#include "kafka/properties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace walpost::kafka {
namespace {

using delivery::Sink;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

using Properties = std::vector<std::pair<std::string, std::string>>;

KafkaOptions Options(Properties properties) {
  KafkaOptions options;
  options.name = "shop";
  options.properties = {{"bootstrap.servers", "localhost:1"}};
  options.properties.insert(options.properties.end(), properties.begin(), properties.end());
  return options;
}

std::string Rejection(const Properties& properties) {
  const absl::StatusOr<Conf> conf = BuildConf(Options(properties), Sink::Mode::kPipelined);
  EXPECT_EQ(conf.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(conf.status().message());
}

// What librdkafka has for `name`, "" when the configuration was rejected.
std::string InForce(const Properties& properties, const char* name,
                    Sink::Mode mode = Sink::Mode::kPipelined) {
  const absl::StatusOr<Conf> conf = BuildConf(Options(properties), mode);
  EXPECT_TRUE(conf.ok()) << conf.status();
  std::array<char, 512> value{};
  std::size_t size = value.size();
  if (!conf.ok() || rd_kafka_conf_get(conf->get(), name, value.data(), &size) != RD_KAFKA_CONF_OK) {
    return "";
  }
  return value.data();
}

struct Unsafe {
  const char* name;
  const char* value;
  const char* reason;
};

constexpr Unsafe kUnsafe[] = {
    {"enable.idempotence", "false", "duplicate and reorder"},
    {"acks", "1", "an acknowledged event can be lost"},
    {"acks", "0", "an acknowledged event can be lost"},
    {"request.required.acks", "1", "an acknowledged event can be lost"},
    {"enable.gapless.guarantee", "false", "later events overtake"},
    {"message.timeout.ms", "30000", "leaves a gap"},
    {"delivery.timeout.ms", "120000", "leaves a gap"},
    {"max.in.flight", "6", "at most 5 requests"},
    {"max.in.flight.requests.per.connection", "1000000", "at most 5 requests"},
    {"retries", "3", "giving up leaves a gap"},
    {"message.send.max.retries", "0", "giving up leaves a gap"},
    {"queuing.strategy", "lifo", "reorders"},
    {"partitioner", "consistent_random", "as Java clients do"},
    {"transactional.id", "shop", "exactly-once mode, which is not built yet"},
    {"delivery.report.only.error", "true", "the report of every event"},
    {"produce.offset.report", "true", "belongs to walpost"},
    {"log.queue", "false", "logs must not be printed by other threads"},
    {"enabled_events", "1", "belongs to walpost"},
    {"enable.sparse.connections", "true", "the only one that is asked"},
    {"topic.blacklist", "^orders$", "does not exist"},
    {"sticky.partitioning.linger.ms", "10", "chooses the partition itself"},
    {"plugin.library.paths", "/nowhere/library.so", "loads foreign code"},
};

TEST(PropertiesTest, UnsafePropertyIsRejectedByNameWithTheReason) {
  for (const Unsafe& unsafe : kUnsafe) {
    const std::string rejection = Rejection({{unsafe.name, unsafe.value}});
    EXPECT_THAT(rejection, HasSubstr(std::string("sink.kafka.properties: ") + unsafe.name));
    EXPECT_THAT(rejection, HasSubstr(unsafe.reason)) << unsafe.name;
    EXPECT_THAT(rejection, HasSubstr("remove it")) << unsafe.name;
  }
}

// librdkafka cuts what it quotes, or quotes it in its own way.
TEST(PropertiesTest, NoPieceOfALongValueIsShownWhenItIsRejected) {
  std::string secret;
  for (int i = 0; i < 200; ++i) {
    secret += "s3cret" + std::to_string(i);
  }
  for (const char* name : {"security.protocol", "compression.type", "debug",
                           "broker.address.family", "queue.buffering.max.messages"}) {
    const std::string rejection = Rejection({{name, secret}});
    EXPECT_THAT(rejection, HasSubstr(name));
    EXPECT_THAT(rejection, ::testing::Not(HasSubstr("s3cret1"))) << name;
  }
  KafkaOptions options;
  options.properties = {{"bootstrap.servers", "127.0.0.1:1"},
                        {"security.protocol", "sasl_plaintext"},
                        {"sasl.mechanism", secret}};
  const absl::Status rejected = CheckOptions(options);
  EXPECT_EQ(rejected.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(rejected.message()), ::testing::Not(HasSubstr("s3cret1")));
}

// What comes from a file may be a secret that stands at a harmless name.
TEST(PropertiesTest, NoPieceOfASecretIsShownWhereverItStands) {
  KafkaOptions options;
  options.properties = {{"bootstrap.servers", "s3cret-of-a-file:9092"}, {"client.rack", "rack-1"}};
  options.secrets = {"s3cret-of-a-file:9092"};
  EXPECT_EQ(Shown("s3cret-of-a-file:9092/bootstrap: rejected, rack-1", options),
            "***/bootstrap: rejected, rack-1");
}

TEST(PropertiesTest, SafeValueOfAGuardedPropertyIsAccepted) {
  const Properties safe = {{"enable.idempotence", "true"},  {"acks", "all"},
                           {"request.required.acks", "-1"}, {"enable.gapless.guarantee", "true"},
                           {"message.timeout.ms", "0"},     {"delivery.timeout.ms", "0"},
                           {"max.in.flight", "5"},          {"retries", "2147483647"},
                           {"queuing.strategy", "fifo"},    {"delivery.report.only.error", "false"},
                           {"log.queue", "true"},           {"enable.sparse.connections", "false"}};
  EXPECT_TRUE(BuildConf(Options(safe), Sink::Mode::kPipelined).ok());
}

// Failure 63.
TEST(PropertiesTest, GuaranteesAreEnforcedInBothModes) {
  for (const Sink::Mode mode : {Sink::Mode::kPipelined, Sink::Mode::kOneAtATime}) {
    EXPECT_EQ(InForce({}, "enable.idempotence", mode), "true");
    EXPECT_EQ(InForce({}, "acks", mode), "-1");
    EXPECT_EQ(InForce({}, "message.timeout.ms", mode), "0");
    EXPECT_EQ(InForce({}, "max.in.flight.requests.per.connection", mode), "5");
    EXPECT_EQ(InForce({}, "retries", mode), "2147483647");
    EXPECT_EQ(InForce({}, "queuing.strategy", mode), "fifo");
  }
  EXPECT_EQ(InForce({}, "enable.gapless.guarantee", Sink::Mode::kPipelined), "true");
  // A verdict on one record must not be a fatal error of its producer.
  EXPECT_EQ(InForce({}, "enable.gapless.guarantee", Sink::Mode::kOneAtATime), "false");
}

TEST(PropertiesTest, OtherPropertiesPassVerbatimAndWinOverDefaults) {
  EXPECT_EQ(InForce({{"compression.type", "zstd"}}, "compression.codec"), "zstd");
  EXPECT_EQ(InForce({{"sasl.username", "a b=c"}}, "sasl.username"), "a b=c");
  EXPECT_EQ(InForce({}, "linger.ms"), "0.5");
  EXPECT_EQ(InForce({{"linger.ms", "20"}}, "linger.ms"), "20");
  EXPECT_EQ(InForce({}, "reconnect.backoff.max.ms"), "2000");
  EXPECT_EQ(InForce({{"queue.buffering.max.ms", "20"}}, "linger.ms"), "20");
  EXPECT_EQ(InForce({}, "client.id"), "shop");
  EXPECT_EQ(InForce({}, "allow.auto.create.topics"), "false");
  EXPECT_EQ(InForce({{"allow.auto.create.topics", "true"}}, "allow.auto.create.topics"), "true");
  EXPECT_EQ(InForce({{"client.id", "other"}}, "client.id"), "other");
}

TEST(PropertiesTest, CarefulProducerDoesNotLingerWhateverTheUserSets) {
  EXPECT_EQ(InForce({{"linger.ms", "20"}}, "linger.ms", Sink::Mode::kOneAtATime), "0");
}

TEST(PropertiesTest, QueueHoldsEveryRecordThatMayBeInFlight) {
  KafkaOptions options = Options({});
  options.in_flight_bytes_max = std::size_t{64} * 1024 * 1024;
  const absl::StatusOr<Properties> effective = EffectiveProperties(options);
  ASSERT_TRUE(effective.ok());
  // The smallest record counts 768 bytes.
  EXPECT_THAT(*effective, Contains(Pair("queue.buffering.max.messages", "88381")));
  EXPECT_THAT(*effective, Contains(Pair("queue.buffering.max.kbytes", "131072")));
}

TEST(PropertiesTest, UnknownPropertyOrValueIsRejectedByName) {
  EXPECT_THAT(Rejection({{"linger.sm", "1"}}), HasSubstr("linger.sm"));
  EXPECT_THAT(Rejection({{"linger.ms", "soon"}}), HasSubstr("linger.ms"));
}

TEST(PropertiesTest, MissingServersAreNamed) {
  KafkaOptions options;
  options.properties = {{"linger.ms", "1"}};
  const absl::StatusOr<Conf> conf = BuildConf(options, Sink::Mode::kPipelined);
  ASSERT_EQ(conf.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(conf.status().message()), HasSubstr("bootstrap.servers is missing"));
  options.properties = {{"metadata.broker.list", "localhost:1"}};  // librdkafka's older name
  EXPECT_TRUE(BuildConf(options, Sink::Mode::kPipelined).ok());
}

TEST(EffectivePropertiesTest, SecretsAreHidden) {
  const Properties secrets = {{"sasl.password", "hunter2"},
                              {"ssl.key.password", "hunter2"},
                              {"ssl.keystore.password", "hunter2"},
                              {"sasl.oauthbearer.config", "hunter2"},
                              {"sasl.kerberos.kinit.cmd", "hunter2"}};
  const absl::StatusOr<Properties> effective = EffectiveProperties(Options(secrets));
  ASSERT_TRUE(effective.ok()) << effective.status();
  for (const auto& [name, value] : secrets) {
    EXPECT_THAT(*effective, Contains(Pair(name, "***")));
  }
  EXPECT_THAT(*effective, Not(Contains(Pair(testing::_, HasSubstr("hunter2")))));
}

TEST(EffectivePropertiesTest, SecretUnderAWrongNameIsNotEchoed) {
  const absl::Status status =
      EffectiveProperties(Options({{"security.protocol", "hunter2"}})).status();
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("security.protocol"), Not(HasSubstr("hunter2"))));
}

TEST(EffectivePropertiesTest, EachNameAppearsOnceWithTheValueInForce) {
  const absl::StatusOr<Properties> effective =
      EffectiveProperties(Options({{"linger.ms", "7"}, {"acks", "-1"}, {"linger.ms", "9"}}));
  ASSERT_TRUE(effective.ok());
  EXPECT_THAT(*effective, Contains(Pair("linger.ms", "9")).Times(1));
  EXPECT_THAT(*effective, Contains(Pair("acks", testing::AnyOf("all", "-1"))).Times(1));
  EXPECT_THAT(*effective, Contains(Pair("bootstrap.servers", "localhost:1")).Times(1));
}

TEST(EffectivePropertiesTest, PropertySetByItsOtherNameIsShownAsInForce) {
  const absl::StatusOr<Properties> effective =
      EffectiveProperties(Options({{"queue.buffering.max.ms", "7"}}));
  ASSERT_TRUE(effective.ok());
  EXPECT_THAT(*effective, Contains(Pair("linger.ms", "7")));
}

TEST(EffectivePropertiesTest, RejectedPropertyIsAnErrorHereToo) {
  EXPECT_EQ(EffectiveProperties(Options({{"acks", "1"}})).status().code(),
            absl::StatusCode::kInvalidArgument);
}

class InlineRunner : public base::BlockingRunner {
 public:
  void Run(std::function<void()> work, std::function<void()> done) override {
    work();
    done();
  }
};

TEST(KafkaSinkCreateTest, CombinationThatOnlyTheProducerRejectsIsAnErrorNotACrash) {
  InlineRunner runner;
  const auto sink = KafkaSink::Create(
      Options({{"security.protocol", "ssl"}, {"ssl.ca.location", "/nonexistent/ca.pem"}}), &runner,
      [](const KafkaNotice&) {});
  ASSERT_EQ(sink.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(sink.status().message()), HasSubstr("sink.kafka.properties: "));
  EXPECT_THAT(std::string(sink.status().message()), HasSubstr("ssl.ca.location"));
}

// What librdkafka has for `name` in a producer made with `limits`.
std::string InForceWith(const ProducerLimits& limits, const Properties& properties,
                        const std::string& name) {
  const absl::StatusOr<Conf> conf = BuildConf(Options(properties), Sink::Mode::kPipelined, limits);
  EXPECT_TRUE(conf.ok()) << conf.status();
  return conf.ok() ? kafka::InForce(conf->get(), name) : "";
}

TEST(PropertiesTest, BatchSizeNeverExceedsWhatTheSmallestTopicTakes) {
  ProducerLimits limits;
  limits.batch_bytes_max = 99'000;
  EXPECT_EQ(InForceWith(limits, {}, "batch.size"), "99000");
  EXPECT_EQ(InForceWith(limits, {{"batch.size", "500000"}}, "batch.size"), "99000");
  EXPECT_EQ(InForceWith(limits, {{"batch.size", "50000"}}, "batch.size"), "50000");
  limits.batch_bytes_max = 5'000'000;
  EXPECT_EQ(InForceWith(limits, {}, "batch.size"), "400000");
}

TEST(PropertiesTest, MessageMaxBytesGrowsUnlessTheUserSaysOtherwise) {
  EXPECT_EQ(InForce({}, "message.max.bytes"), "1048588") << "what a topic takes by default";
  ProducerLimits limits;
  limits.message_bytes_max = 50'000'000;
  EXPECT_EQ(InForceWith(limits, {}, "message.max.bytes"), "50000000");
  EXPECT_EQ(InForceWith(limits, {{"message.max.bytes", "5000"}}, "message.max.bytes"), "5000");
  // Else librdkafka's queue would be full for such a record for ever.
  for (const char* kilobytes : {"1", "2048", "49000"}) {
    const auto queue = InForceWith(limits, {{"queue.buffering.max.kbytes", kilobytes}},
                                   "queue.buffering.max.kbytes");
    EXPECT_GE(std::stoll(queue) * 1'024, 50'000'000) << kilobytes;
  }
  EXPECT_EQ(InForceWith({}, {{"queue.buffering.max.kbytes", "1100"}}, "queue.buffering.max.kbytes"),
            "1100");
}

using ::testing::AllOf;

KafkaOptions OptionsOf(std::vector<std::pair<std::string, std::string>> properties) {
  KafkaOptions options;
  options.name = "shop";
  options.properties = std::move(properties);
  return options;
}

TEST(KafkaEncryptionTest, ClearTextIsTheDefaultAndIsWarnedOf) {
  const KafkaOptions options =
      OptionsOf({{"bootstrap.servers", "kafka-1:9092,localhost:9092, 10.0.0.7:1"}});
  EXPECT_THAT(ClearTextWarning(options),
              AllOf(HasSubstr("plaintext"), HasSubstr("kafka-1:9092"), HasSubstr("10.0.0.7:1"),
                    Not(HasSubstr("localhost"))));
  EXPECT_THAT(WhyMayBeClearText(options), HasSubstr("plaintext"));
}

TEST(KafkaEncryptionTest, SaslAloneEncryptsNothing) {
  const KafkaOptions options = OptionsOf(
      {{"metadata.broker.list", "kafka-1:9092"}, {"security.protocol", "SASL_PLAINTEXT"}});
  EXPECT_THAT(ClearTextWarning(options), HasSubstr("kafka-1:9092"));
  EXPECT_THAT(WhyMayBeClearText(options), HasSubstr("sasl_plaintext"));
}

TEST(KafkaEncryptionTest, TlsIsQuiet) {
  for (const char* protocol : {"SSL", "ssl", "SASL_SSL", "sasl_ssl"}) {
    const KafkaOptions options =
        OptionsOf({{"bootstrap.servers", "kafka-1:9093"}, {"security.protocol", protocol}});
    EXPECT_EQ(ClearTextWarning(options, {"kafka-2:9093"}), "") << protocol;
    EXPECT_EQ(WhyMayBeClearText(options), "") << protocol;
  }
}

TEST(KafkaEncryptionTest, AddressOfThisMachineIsQuietButTheClusterNamesItsBrokersItself) {
  const KafkaOptions options = OptionsOf({{"bootstrap.servers", "127.0.0.1:9092,[::1]:9092"}});
  EXPECT_EQ(ClearTextWarning(options, {"localhost:9092"}), "");
  EXPECT_THAT(ClearTextWarning(options, {"kafka-7:9092"}), HasSubstr("kafka-7:9092"));
  EXPECT_NE(WhyMayBeClearText(options), "");
}

TEST(KafkaEncryptionTest, AddressWithAProtocolOfItsOwnCounts) {
  const KafkaOptions options =
      OptionsOf({{"bootstrap.servers", "PLAINTEXT://kafka-1:9092,SSL://kafka-2:9093"},
                 {"security.protocol", "SSL"}});
  EXPECT_THAT(ClearTextWarning(options), AllOf(HasSubstr("kafka-1"), Not(HasSubstr("kafka-2"))));
  EXPECT_THAT(WhyMayBeClearText(options), HasSubstr("PLAINTEXT://kafka-1:9092"));
}

TEST(KafkaEncryptionTest, TlsWithoutACipherMayBeClearText) {
  const auto why = [](const std::string& suites) {
    return WhyMayBeClearText(OptionsOf({{"bootstrap.servers", "kafka-1:9093"},
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
    return WhyMayBeClearText(OptionsOf({{"bootstrap.servers", "kafka-1:9093"},
                                        {"security.protocol", "SASL_SSL"},
                                        {"sasl.oauthbearer.token.endpoint.url", url}}));
  };
  EXPECT_NE(why("http://login/token"), "");
  EXPECT_EQ(why("HTTPS://login/token"), "");
}

}  // namespace
}  // namespace walpost::kafka
