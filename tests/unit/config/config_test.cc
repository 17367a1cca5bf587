// What a file means: defaults, the shipped file, and that all problems are reported at once.
#include "config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "config/document.h"
#include "unit/config/scoped_env.h"

namespace walpost::config {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

// The least a file must say.
constexpr char kLeast[] = "sink: {kafka: {properties: {bootstrap.servers: 'kafka:9092'}}}\n";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

Config ParseOk(const std::string& yaml, const std::vector<std::string>& sets = {}) {
  const absl::StatusOr<Config> config = Parse(yaml, "w.yaml", sets);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : Config();
}

std::vector<std::string> Lines(const absl::Status& status) {
  std::vector<std::string> lines;
  std::istringstream text(Message(status));
  for (std::string line; std::getline(text, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST(ConfigTest, LeastFileHasTheDocumentedDefaults) {
  const Config config = ParseOk(kLeast);
  EXPECT_EQ(config.run.name, "walpost");
  EXPECT_EQ(config.run.source.conninfo, "");
  EXPECT_EQ(config.run.source.slot, "walpost");
  EXPECT_EQ(config.run.source.publication, "walpost");
  EXPECT_EQ(config.run.pipeline.reconnect_interval, milliseconds(600'000));
  EXPECT_EQ(config.run.on_halt, runtime::OnHalt::kWait);
  EXPECT_EQ(config.run.pipeline.on_undeliverable, pipeline::OnUndeliverable::kHalt);
  EXPECT_EQ(config.run.dead_letter_topic, "");
  EXPECT_EQ(config.run.pipeline.unknown_topic_wait, milliseconds(10'000));
  EXPECT_EQ(config.run.pipeline.in_flight_bytes_max, 16u * 1024 * 1024);
  EXPECT_EQ(config.run.pipeline.shutdown_timeout, milliseconds(25'000));
  EXPECT_EQ(config.run.monitor.conninfo, "") << "no SQL unless it is asked for";
  EXPECT_EQ(config.run.monitor.interval, milliseconds(15'000));
  EXPECT_EQ(config.run.http.listen, "127.0.0.1:9464");
  EXPECT_EQ(config.log_level, observe::Severity::kInfo);
  EXPECT_EQ(config.log_format, observe::LogFormat::kText);
  ASSERT_EQ(config.run.pipeline.outboxes.size(), 1u);
  EXPECT_EQ(config.run.pipeline.outboxes[0].table.table, "events");
}

TEST(ConfigTest, TopicsOfWalpostsOwnAreNobodyElses) {
  const auto problems = [](const std::string& yaml) {
    return Message(Parse(kLeast + yaml, "w.yaml", {}).status());
  };
  EXPECT_THAT(problems("delivery: {progress_topic: a, dead_letter_topic: a}\n"),
              HasSubstr("dead_letter_topic: 'a' is the progress_topic, too"));
  EXPECT_THAT(problems("delivery: {progress_topic: a}\noutboxes: [{topic: a}]\n"),
              HasSubstr("progress_topic: 'a' is a topic of outboxes[0], too"));
  EXPECT_THAT(problems("delivery: {dead_letter_topic: a}\n"
                       "messages: {prefixes: p, topics: {allowed: [b, a]}}\n"),
              HasSubstr("dead_letter_topic: 'a' is a topic of messages, too"));
  const Config config =
      ParseOk(std::string(kLeast) + "delivery: {progress_topic: a, dead_letter_topic: dead}\n");
  EXPECT_THAT(config.run.pipeline.outboxes[0].table.topics.own, ElementsAre("a", "dead"));
  EXPECT_THAT(config.run.pipeline.messages.topics.own, ElementsAre("a", "dead"));
}

TEST(ConfigTest, KafkaPropertiesThatNoPipelineCanLiveWithAreReported) {
  const absl::Status status =
      Parse(
          "sink:\n  kafka:\n    properties:\n      bootstrap.servers: k\n      linger.ms: 1\n"
          "      linger.ms: 2\n      test.mock.num.brokers: 1\n",
          "w.yaml", {})
          .status();
  EXPECT_THAT(Message(status), HasSubstr("w.yaml:6:7: sink.kafka.properties.linger.ms: stands"));
  EXPECT_THAT(Message(status), HasSubstr("test.mock.num.brokers: makes a Kafka of its own"));
}

TEST(ConfigTest, EverySettingReachesItsModule) {
  const Config config = ParseOk(R"(
version: 1
name: shop
source: {conninfo: host=db, slot: shop_1, publication: "Shop Pub", reconnect_interval: 1min}
outboxes: [{table: shop.out}, {table: shop.more}]
messages: {prefixes: []}
delivery:
  mode: at_least_once
  on_undeliverable: park
  on_halt: exit
  unknown_topic_wait: 7s
  in_flight_bytes_max: 1MiB
  shutdown_timeout: 3s
  progress_topic: ""
  dead_letters_max: 7
  dead_letters_per_second: 8
  dead_letter_conninfo: host=primary
  dead_letter_topic: shop.dead
sink: {kafka: {properties: {bootstrap.servers: "kafka:9092", linger.ms: 5}}}
monitor: {conninfo: host=standby, interval: 1s}
http: {listen: ""}
log: {level: debug, format: json}
)");
  EXPECT_EQ(config.run.name, "shop");
  EXPECT_EQ(config.run.source.conninfo, "host=db");
  EXPECT_EQ(config.run.pipeline.on_undeliverable, pipeline::OnUndeliverable::kPark);
  EXPECT_EQ(config.run.dead_letter_topic, "shop.dead");
  EXPECT_EQ(config.run.dead_letter_conninfo, "host=primary");
  EXPECT_EQ(config.run.pipeline.dead_letters_max, 7u);
  EXPECT_EQ(config.run.pipeline.dead_letters_per_second, 8u);
  EXPECT_EQ(config.run.source.pipeline, "shop");
  EXPECT_TRUE(config.run.source.writes_dead_letters);
  EXPECT_TRUE(config.run.source.dead_letters_elsewhere);
  EXPECT_EQ(config.run.source.slot, "shop_1");
  EXPECT_EQ(config.run.source.publication, "Shop Pub");
  EXPECT_EQ(config.run.source.application_name, "walpost-shop");
  EXPECT_EQ(config.run.pipeline.reconnect_interval, milliseconds(60'000));
  EXPECT_EQ(config.run.on_halt, runtime::OnHalt::kExit);
  EXPECT_EQ(config.run.pipeline.unknown_topic_wait, milliseconds(7'000));
  EXPECT_EQ(config.run.kafka.unknown_topic_wait, milliseconds(7'000)) << "partitions too";
  EXPECT_EQ(config.run.pipeline.in_flight_bytes_max, 1024u * 1024);
  EXPECT_EQ(config.run.pipeline.shutdown_timeout, milliseconds(3'000));
  EXPECT_EQ(config.run.pipeline.progress_topic, "");
  EXPECT_EQ(config.run.kafka.name, "shop");
  EXPECT_EQ(config.run.kafka.in_flight_bytes_max, 1024u * 1024);
  EXPECT_THAT(config.run.kafka.properties,
              ElementsAre(Pair("bootstrap.servers", "kafka:9092"), Pair("linger.ms", "5")));
  EXPECT_EQ(config.run.monitor.conninfo, "host=standby");
  EXPECT_EQ(config.run.monitor.interval, milliseconds(1'000));
  EXPECT_EQ(config.run.http.listen, "");
  EXPECT_EQ(config.log_level, observe::Severity::kDebug);
  EXPECT_EQ(config.log_format, observe::LogFormat::kJson);
}

// The words of a choice stand in the order of the enumerators.
TEST(ConfigTest, EachWordIsItsOwnEnumerator) {
  const auto parsed = [](const std::string& set) { return ParseOk(kLeast, {set}); };
  const std::pair<const char*, pipeline::OnUndeliverable> policies[] = {
      {"halt", pipeline::OnUndeliverable::kHalt},
      {"dead_letter", pipeline::OnUndeliverable::kDeadLetter},
      {"park", pipeline::OnUndeliverable::kPark},
      {"skip", pipeline::OnUndeliverable::kSkip}};
  for (const auto& [word, policy] : policies) {
    EXPECT_EQ(
        parsed(std::string("delivery.on_undeliverable=") + word).run.pipeline.on_undeliverable,
        policy)
        << word;
  }
  const std::pair<const char*, observe::Severity> levels[] = {
      {"debug", observe::Severity::kDebug},
      {"info", observe::Severity::kInfo},
      {"warning", observe::Severity::kWarning},
      {"error", observe::Severity::kError}};
  for (const auto& [word, level] : levels) {
    EXPECT_EQ(parsed(std::string("log.level=") + word).log_level, level) << word;
  }
  EXPECT_TRUE(parsed("messages.on_undeliverable=halt").run.pipeline.messages.halts);
  EXPECT_FALSE(parsed("messages.on_undeliverable=skip").run.pipeline.messages.halts);
  EXPECT_FALSE(parsed("security.require_encryption=false").require_encryption);
}

// The stream must ask for the tables that the mappers will read, or preflight looks at others.
TEST(ConfigTest, SourceIsAskedForExactlyTheOutboxTables) {
  const Config config =
      ParseOk(std::string(kLeast) + "outboxes: [{table: a.b}, {preset: debezium}]\n");
  ASSERT_EQ(config.run.source.tables.size(), 2u);
  EXPECT_EQ(config.run.source.tables[0].schema, "a");
  EXPECT_EQ(config.run.source.tables[0].table, "b");
  EXPECT_EQ(config.run.source.tables[1].schema, "public");
  EXPECT_EQ(config.run.source.tables[1].table, "outbox");
}

TEST(ConfigTest, ProgressTopicIsNamedAfterThePipeline) {
  const auto topic = [](const std::string& more) {
    return ParseOk(std::string(kLeast) + "name: shop\n" + more).run.pipeline.progress_topic;
  };
  EXPECT_EQ(topic(""), "walpost.progress.shop");
  EXPECT_EQ(topic("delivery: {progress_topic: 'p.{name}.v1'}"), "p.shop.v1");
  EXPECT_EQ(topic("delivery: {progress_topic: progress}"), "progress");
  EXPECT_EQ(topic("delivery: {progress_topic: ''}"), "");
  EXPECT_EQ(ParseOk(std::string(kLeast) + "name: 'a b:c'\n").run.pipeline.progress_topic,
            "walpost.progress.a_b_c")
      << "what a topic cannot have";
  EXPECT_EQ(ParseOk(std::string(kLeast) + "name: 'a b:c'\n").run.pipeline.name, "a b:c");
}

TEST(ConfigTest, NameIsTheSlotUnlessGiven) {
  EXPECT_EQ(ParseOk(std::string(kLeast) + "source: {slot: shop}\n").run.name, "shop");
  EXPECT_EQ(ParseOk(std::string(kLeast) + "source: {slot: shop}\nname: n\n").run.name, "n");
}

TEST(ConfigTest, SetWinsOverTheFile) {
  const Config config =
      ParseOk(std::string(kLeast) + "log: {level: error}\n",
              {"log.level=debug", "delivery.unknown_topic_wait=9s", "source.slot=s"});
  EXPECT_EQ(config.log_level, observe::Severity::kDebug);
  EXPECT_EQ(config.run.pipeline.unknown_topic_wait, milliseconds(9'000));
  EXPECT_EQ(config.run.name, "s");
}

TEST(ConfigTest, ProblemOfASetIsSaidToBeOne) {
  EXPECT_THAT(Lines(Parse(kLeast, "w.yaml", {"log.level=loud"}).status()),
              ElementsAre(StartsWith("--set: log.level: 'loud' is none of")));
}

// A clock of nanoseconds ends after 292 years.
TEST(ConfigTest, DurationsOfMoreThanAYearAreRejected) {
  for (const char* key :
       {"source.reconnect_interval", "delivery.shutdown_timeout", "monitor.interval"}) {
    EXPECT_THAT(Message(Parse(kLeast, "w.yaml", {std::string(key) + "=9999999h"}).status()),
                HasSubstr("365d at most"))
        << key;
    EXPECT_TRUE(Parse(kLeast, "w.yaml", {std::string(key) + "=365d"}).ok()) << key;
  }
}

TEST(ConfigTest, UnknownKeysNameLineAndTheOneThatWasMeant) {
  const auto config =
      Parse(std::string(kLeast) + "sorce:\n  slot: x\nlog:\n  levle: info\n", "w.yaml", {});
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Lines(config.status()),
              ElementsAre("w.yaml:5:3: log.levle: unknown key; did you mean 'level'?",
                          "w.yaml:2:1: sorce: unknown key; did you mean 'source'?"));
}

// A word of the design that no map of the file reads would be an unknown key to its user.
TEST(ConfigTest, UnknownKeyIsFoundInEveryMap) {
  for (const char* map :
       {"source", "delivery", "sink", "sink.kafka", "messages", "messages.value", "monitor", "http",
        "log", "outboxes.0", "outboxes.0.columns", "outboxes.0.value"}) {
    const auto config = Parse(std::string(kLeast) + "outboxes: [{table: a.b}]\n", "w.yaml",
                              {std::string(map) + ".zebra=1"});
    EXPECT_THAT(Message(config.status()), HasSubstr("zebra: unknown key")) << map;
  }
}

TEST(ConfigTest, AllProblemsAreReportedAtOnce) {
  const auto config = Parse(R"(
source: {slot: Bad-Slot}
delivery: {unknown_topic_wait: 1h, shutdown_timeout: 25}
log: {level: loud}
)",
                            "w.yaml", {});
  EXPECT_THAT(
      Lines(config.status()),
      ElementsAre(HasSubstr("w.yaml:2:16: source.slot: 'Bad-Slot' is not a slot name"),
                  HasSubstr("w.yaml:3:32: delivery.unknown_topic_wait: must be 10min at most"),
                  HasSubstr("w.yaml:3:54: delivery.shutdown_timeout: '25' is not a duration"),
                  HasSubstr("bootstrap.servers is missing"),
                  HasSubstr("w.yaml:4:14: log.level: 'loud' is none of")));
}

// All that the file offers is documented; a variable more or less would be a broken promise.
TEST(ShippedFileTest, ReadsTheDocumentedVariablesAndNoOther) {
  const auto text = ReadFile(WALPOST_SHIPPED_FILE);
  ASSERT_TRUE(text.ok()) << text.status();
  std::set<std::string> names;
  for (std::size_t at = 0; (at = text->find(": ${", at)) != std::string::npos; ++at) {
    const std::string reference = text->substr(at + 4, text->find('}', at) - at - 4);
    const std::size_t name_end = reference.find(":-");
    names.insert(reference.substr(0, name_end));
    EXPECT_NE(name_end, std::string::npos) << reference << " has no default";
  }
  EXPECT_THAT(names, ElementsAre("WALPOST_HTTP_LISTEN", "WALPOST_HTTP_TOKEN",
                                 "WALPOST_KAFKA_BOOTSTRAP_SERVERS", "WALPOST_LOG_FORMAT",
                                 "WALPOST_LOG_LEVEL", "WALPOST_NAME", "WALPOST_OUTBOX_PRESET",
                                 "WALPOST_OUTBOX_TABLE", "WALPOST_SOURCE_CONNINFO",
                                 "WALPOST_SOURCE_PUBLICATION", "WALPOST_SOURCE_SLOT"));
}

class ShippedFileEnvTest : public ::testing::Test {
 protected:
  ShippedFileEnvTest() {
    for (const char* name : {"HTTP_LISTEN", "HTTP_TOKEN", "KAFKA_BOOTSTRAP_SERVERS", "LOG_FORMAT",
                             "LOG_LEVEL", "NAME", "OUTBOX_PRESET", "OUTBOX_TABLE",
                             "SOURCE_CONNINFO", "SOURCE_PUBLICATION", "SOURCE_SLOT"}) {
      cleared_.push_back(std::make_unique<ScopedEnv>(std::string("WALPOST_") + name, std::nullopt));
    }
  }

  std::vector<std::unique_ptr<ScopedEnv>> cleared_;
};

TEST_F(ShippedFileEnvTest, LoadsWithNoVariableAtAll) {
  const auto config = Load({WALPOST_SHIPPED_FILE, {}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->run.name, "walpost");
  EXPECT_EQ(config->run.source.conninfo, "");
  EXPECT_THAT(config->run.kafka.properties,
              ElementsAre(Pair("bootstrap.servers", "localhost:9092")));
  EXPECT_EQ(config->run.http.listen, "127.0.0.1:9464");
  EXPECT_EQ(config->run.http.token, "");
}

TEST_F(ShippedFileEnvTest, TakesEachVariable) {
  const ScopedEnv variables[] = {{"WALPOST_NAME", "shop"},
                                 {"WALPOST_SOURCE_CONNINFO", "postgresql://walpost@db/shop"},
                                 {"WALPOST_SOURCE_SLOT", "shop_slot"},
                                 {"WALPOST_SOURCE_PUBLICATION", "shop_pub"},
                                 {"WALPOST_OUTBOX_TABLE", "shop.outbox"},
                                 {"WALPOST_OUTBOX_PRESET", "debezium"},
                                 {"WALPOST_KAFKA_BOOTSTRAP_SERVERS", "k1:9092,k2:9092"},
                                 {"WALPOST_HTTP_LISTEN", "0.0.0.0:1"},
                                 {"WALPOST_HTTP_TOKEN", "0123456789abcdef"},
                                 {"WALPOST_LOG_LEVEL", "warning"},
                                 {"WALPOST_LOG_FORMAT", "json"}};
  const auto config = Load({WALPOST_SHIPPED_FILE, {}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->run.name, "shop");
  EXPECT_EQ(config->run.source.conninfo, "postgresql://walpost@db/shop");
  EXPECT_EQ(config->run.source.slot, "shop_slot");
  EXPECT_EQ(config->run.source.publication, "shop_pub");
  EXPECT_EQ(config->run.pipeline.outboxes.at(0).table.schema, "shop");
  EXPECT_EQ(config->run.pipeline.outboxes.at(0).table.preset, "debezium");
  EXPECT_THAT(config->run.kafka.properties, Contains(Pair("bootstrap.servers", "k1:9092,k2:9092")));
  EXPECT_EQ(config->run.http.listen, "0.0.0.0:1");
  EXPECT_EQ(config->run.http.token, "0123456789abcdef");
  EXPECT_EQ(config->log_level, observe::Severity::kWarning);
  EXPECT_EQ(config->log_format, observe::LogFormat::kJson);
}

TEST(LoadTest, FileThatIsNotThereIsNamed) {
  const auto config = Load({"/nowhere/walpost.yaml", {}});
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(config.status()), HasSubstr("/nowhere/walpost.yaml: the configuration file "
                                                  "cannot be read: No such file"));
}

TEST(LoadTest, FolderIsAnErrorAndNoCrash) {
  const auto config = Load({::testing::TempDir(), {}});
  EXPECT_THAT(Message(config.status()), HasSubstr("cannot be read: Is a directory"));
}

TEST(LoadTest, MessagesNameTheFileAsGiven) {
  const TemporaryFile file("nam: x\n");
  const auto config = Load({file.path(), {}});
  EXPECT_THAT(Message(config.status()), HasSubstr(file.path() + ":1:1: nam: unknown key"));
}

}  // namespace
}  // namespace walpost::config
