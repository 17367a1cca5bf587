// `config show`: what is in force, defaults included, secrets hidden, and readable again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "config/config.h"
#include "unit/config/scoped_env.h"

namespace walpost::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kLeast[] = "sink: {kafka: {properties: {bootstrap.servers: 'kafka:9092'}}}\n";

Config ParseOk(const std::string& yaml, const std::vector<std::string>& sets = {}) {
  const absl::StatusOr<Config> config = Parse(yaml, "w.yaml", sets);
  EXPECT_TRUE(config.ok()) << config.status() << "\n" << yaml;
  return config.ok() ? *config : Config();
}

std::string ShowWith(const std::vector<std::string>& sets) { return Show(ParseOk(kLeast, sets)); }

// Show(Parse(Show(x))) == Show(x) would not notice what is never shown, so the structs are
// compared.
void ExpectSame(const Config& a, const Config& b) {
  EXPECT_EQ(a.run.name, b.run.name);
  EXPECT_EQ(a.run.source.conninfo, b.run.source.conninfo);
  EXPECT_EQ(a.run.source.slot, b.run.source.slot);
  EXPECT_EQ(a.run.source.publication, b.run.source.publication);
  EXPECT_EQ(a.run.source.application_name, b.run.source.application_name);
  EXPECT_EQ(a.run.on_halt, b.run.on_halt);
  EXPECT_EQ(a.run.http.listen, b.run.http.listen);
  EXPECT_EQ(a.run.monitor.conninfo, b.run.monitor.conninfo);
  EXPECT_EQ(a.run.monitor.interval, b.run.monitor.interval);
  EXPECT_EQ(a.log_level, b.log_level);
  EXPECT_EQ(a.log_format, b.log_format);
  const pipeline::PipelineOptions& p = a.run.pipeline;
  const pipeline::PipelineOptions& q = b.run.pipeline;
  EXPECT_EQ(p.reconnect_interval, q.reconnect_interval);
  EXPECT_EQ(p.unknown_topic_wait, q.unknown_topic_wait);
  EXPECT_EQ(p.in_flight_bytes_max, q.in_flight_bytes_max);
  EXPECT_EQ(p.shutdown_timeout, q.shutdown_timeout);
  EXPECT_EQ(p.progress_topic, q.progress_topic);
  EXPECT_EQ(kafka::EffectiveProperties(a.run.kafka).value(),
            kafka::EffectiveProperties(b.run.kafka).value());
  ASSERT_EQ(p.outboxes.size(), q.outboxes.size());
  for (std::size_t i = 0; i < p.outboxes.size(); ++i) {
    const outbox::TableOptions& s = p.outboxes[i].table;
    const outbox::TableOptions& t = q.outboxes[i].table;
    EXPECT_EQ(s.schema, t.schema);
    EXPECT_EQ(s.table, t.table);
    EXPECT_EQ(s.preset, t.preset);
    EXPECT_EQ(s.topic, t.topic);
    EXPECT_EQ(s.record_headers, t.record_headers);
    EXPECT_EQ(s.null_key_allowed, t.null_key_allowed);
    EXPECT_EQ(s.type_optional, t.type_optional);
    EXPECT_EQ(s.columns.id, t.columns.id);
    EXPECT_EQ(s.columns.key, t.columns.key);
    EXPECT_EQ(s.columns.aggregate_type, t.columns.aggregate_type);
    EXPECT_EQ(s.columns.type, t.columns.type);
    EXPECT_EQ(s.columns.payload, t.columns.payload);
    EXPECT_EQ(s.columns.content_type, t.columns.content_type);
    EXPECT_EQ(s.columns.schema_name, t.columns.schema_name);
    EXPECT_EQ(s.columns.headers, t.columns.headers);
    EXPECT_EQ(s.columns.occurred_at, t.columns.occurred_at);
    EXPECT_EQ(s.columns.traceparent, t.columns.traceparent);
    EXPECT_EQ(s.columns.tracestate, t.columns.tracestate);
    EXPECT_EQ(s.columns.topic, t.columns.topic);
    EXPECT_EQ(s.columns.partition, t.columns.partition);
    EXPECT_EQ(s.columns.timestamp, t.columns.timestamp);
    EXPECT_EQ(s.columns.baggage, t.columns.baggage);
    EXPECT_EQ(s.columns.tracingspancontext, t.columns.tracingspancontext);
    EXPECT_EQ(s.topics.allowed, t.topics.allowed);
    EXPECT_EQ(s.topics.by_aggregate_type, t.topics.by_aggregate_type);
    EXPECT_EQ(p.outboxes[i].encoder.constant_headers, q.outboxes[i].encoder.constant_headers);
    EXPECT_EQ(p.outboxes[i].encoder.cloud_events.mode, q.outboxes[i].encoder.cloud_events.mode);
    EXPECT_EQ(p.outboxes[i].encoder.cloud_events.source, q.outboxes[i].encoder.cloud_events.source);
    EXPECT_EQ(s.columns.seq, t.columns.seq);
    EXPECT_EQ(p.outboxes[i].encoder.format, q.outboxes[i].encoder.format);
    EXPECT_EQ(p.outboxes[i].encoder.header_set, q.outboxes[i].encoder.header_set);
  }
}

void ExpectRoundTrip(const Config& config) {
  const std::string shown = Show(config);
  const absl::StatusOr<Config> again = Parse(shown, "shown.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << shown;
  ExpectSame(config, *again);
  EXPECT_EQ(Show(*again), shown);
}

TEST(ShowTest, DefaultsReadBackAsTheSame) { ExpectRoundTrip(ParseOk(kLeast)); }

TEST(ShowTest, EverySettingReadsBackAsTheSame) {
  ExpectRoundTrip(ParseOk(R"(
name: shop
source: {conninfo: "dbname=shop host=db", slot: shop_1, publication: "Shop Pub", reconnect_interval: 90s}
outboxes:
  - table: shop.out
    columns: {id: [event_id, id], topic: target, partition: part, seq: n}
    topic: shop.{aggregate_type}
    record_headers: {tenant: tenant_id}
    value: {format: raw}
  - preset: debezium
    value: {format: envelope}
  - table: shop.routed
    columns: {timestamp: occurred_at, baggage: bag, tracingspancontext: [trace, span]}
    topics: {allowed: [a, b], by_aggregate_type: {x: a, "y z": b}}
    constant_headers: {env: "prod", "n o": "~"}
    value: {format: cloudevents, cloudevents: {mode: structured_json, source: "urn:a:b"}}
  - table: shop.plain
    topics: {allowed: one, by_aggregate_type: {x: one}}
    value: {format: cloudevents, cloudevents: {mode: structured_protobuf}}
delivery: {on_halt: exit, unknown_topic_wait: 7s, in_flight_bytes_max: 100kB, shutdown_timeout: 1500ms,
           progress_topic: "shop.{name}"}
sink: {kafka: {properties: {bootstrap.servers: "k1:9092,k2:9092", linger.ms: 5, client.id: mine}}}
monitor: {conninfo: "host=standby", interval: 5min}
http: {listen: ""}
log: {level: debug, format: json}
)"));
}

TEST(ShowTest, DebeziumPresetReadsBackAsTheSame) {
  ExpectRoundTrip(ParseOk(kLeast, {"outboxes=[{preset: debezium}]"}));
}

// Left out, the preset's column would come back.
TEST(ShowTest, FieldThatIsMappedToNothingReadsBackAsThat) {
  const Config config =
      ParseOk(kLeast, {"outboxes=[{columns: {key: [], content_type: ~, headers: []}}]"});
  ASSERT_THAT(config.run.pipeline.outboxes[0].table.columns.key, IsEmpty());
  ExpectRoundTrip(config);
}

TEST(ShowTest, WordsThatYamlWouldConvertReadBackAsText) {
  ExpectRoundTrip(ParseOk(kLeast, {"name=\"null\"", "source.publication=\"~\"",
                                   "outboxes=[{columns: {type: \"no\", key: \"010\"}}]"}));
  ExpectRoundTrip(ParseOk(kLeast, {"name='a: b # c'", "source.publication='*x'"}));
}

// A shown dollar sign must not become a variable when read again.
TEST(ShowTest, DollarSignsReadBackAsThemselves) {
  const ScopedEnv name("WALPOST_TEST_DOLLARS", "a${HOME}$$b$");
  const Config config =
      ParseOk(kLeast, {"name=${WALPOST_TEST_DOLLARS}", "source.publication=$$",
                       "source.conninfo=dbname=$${X} host=db",
                       "sink.kafka.properties={bootstrap.servers: k, client.id: \"$${Y}\"}",
                       "outboxes=[{columns: {key: [\"$$$$\"]}, record_headers: {a: \"$${Z}\"},"
                       " topic: \"{a$${b}\", topics: {allowed: \"*\"}}]"});
  ASSERT_EQ(config.run.name, "a${HOME}$$b$");
  ExpectRoundTrip(config);
}

TEST(ShowTest, ControlCharactersReadBackAsThemselves) {
  const ScopedEnv name("WALPOST_TEST_CONTROL", "a\r\tb\x1b[2J\nc\r");
  const Config config = ParseOk(
      kLeast + std::string(R"yaml(
outboxes:
- table: "shop.t\r"
  columns: {id: "i\r", key: ["k\r", "l\r"]}
  topic: "{a\r}"
  topics: {allowed: [x, "*"]}
  record_headers: {"n\r": "c\r"}
)yaml"),
      {"name=${WALPOST_TEST_CONTROL}", "sink.kafka.properties={bootstrap.servers: \"k:9092\\r\"}"});
  EXPECT_THAT(Show(config), Not(::testing::AnyOf(HasSubstr("\r"), HasSubstr("\x1b"))));
  ExpectRoundTrip(config);
}

TEST(ShowTest, VariablesAreShownAsTheirValues) {
  const ScopedEnv name("WALPOST_TEST_NAME", "from-environment");
  EXPECT_THAT(ShowWith({"name=${WALPOST_TEST_NAME}"}), HasSubstr("name: from-environment\n"));
}

TEST(ShowTest, EffectiveKafkaPropertiesIncludeOurs) {
  EXPECT_THAT(ShowWith({}), AllOf(HasSubstr("acks: all\n"), HasSubstr("enable.idempotence: true\n"),
                                  HasSubstr("bootstrap.servers: kafka:9092\n")));
}

// Failure 88.
TEST(ShowTest, PasswordsOfTheSourceAreHidden) {
  for (const std::string conninfo :
       {"host=db password=geheim sslpassword=geheim", "host=db password='ge heim geheim'",
        "postgresql://walpost:geheim@db/shop",
        "postgresql://db/shop?password=geheim&user=walpost"}) {
    for (const char* key : {"source", "monitor"}) {
      const std::string shown = ShowWith({key + (".conninfo=\"" + conninfo + "\"")});
      EXPECT_THAT(shown, AllOf(Not(HasSubstr("heim")), HasSubstr("password=***"), HasSubstr("db")))
          << key << conninfo;
    }
  }
}

// What cannot be parsed cannot be distinguished from a secret.
TEST(ShowTest, MalformedConninfoIsNotShown) {
  EXPECT_THAT(ShowWith({"source.conninfo=host=db password geheim"}), Not(HasSubstr("geheim")));
  EXPECT_THAT(ShowWith({"source.conninfo=postgresql://a:geheim@[db/x"}), Not(HasSubstr("geheim")));
}

// Failure 88.
TEST(ShowTest, SecretsOfKafkaAreHidden) {
  for (const char* name : {"sasl.password", "ssl.key.password", "ssl.key.pem",
                           "ssl.keystore.password", "sasl.oauthbearer.config"}) {
    const std::string shown = ShowWith(
        {std::string("sink.kafka.properties={bootstrap.servers: k, ") + name + ": geheim}"});
    EXPECT_THAT(shown, AllOf(HasSubstr(std::string(name) + ": \"***\""), Not(HasSubstr("geheim"))));
  }
}

TEST(ShowTest, HiddenSecretsStillReadAsAFile) {
  const std::string shown =
      ShowWith({"source.conninfo=host=db password=geheim",
                "sink.kafka.properties={bootstrap.servers: k, sasl.password: geheim}"});
  const Config again = ParseOk(shown);
  EXPECT_EQ(again.run.source.conninfo, "password=*** host=db");
}

std::vector<std::string> NeedRestart(const std::string& before, const std::string& now) {
  const std::string base = "sink: {kafka: {properties: {bootstrap.servers: k}}}\n";
  const auto first = Parse(base, "f", {before});
  const auto second = Parse(base, "f", {now});
  EXPECT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  return KeysThatNeedRestart(*first, *second);
}

TEST(KeysThatNeedRestartTest, HowTheWorldIsReachedMayChangeAndNothingElse) {
  EXPECT_THAT(NeedRestart("source.conninfo=host=a", "source.conninfo=host=b password=c"),
              ::testing::IsEmpty());
  EXPECT_THAT(NeedRestart("log.level=info", "log.level=debug"), ::testing::IsEmpty());
  EXPECT_THAT(NeedRestart("sink.kafka.properties={bootstrap.servers: a}",
                          "sink.kafka.properties={bootstrap.servers: b, linger.ms: 3}"),
              ::testing::IsEmpty());
  // Keys that were not there before, or are not there now.
  EXPECT_THAT(NeedRestart("log.level=info", "http.token=0123456789abcdef"), ::testing::IsEmpty());
  EXPECT_THAT(NeedRestart("http.token=0123456789abcdef", "log.level=info"), ::testing::IsEmpty());
  EXPECT_THAT(NeedRestart("log.level=info", "schema_registry={url: 'http://a'}"),
              ::testing::IsEmpty());
  EXPECT_THAT(NeedRestart("sink.kafka.properties={bootstrap.servers: a, sasl.username: b}",
                          "sink.kafka.properties={bootstrap.servers: a}"),
              ::testing::IsEmpty());
  EXPECT_THAT(NeedRestart("log.format=text", "log.format=json"),
              ::testing::ElementsAre("log.format"));
  EXPECT_THAT(NeedRestart("name=a", "name=b"), ::testing::Contains("name"));
  EXPECT_THAT(NeedRestart("delivery.unknown_topic_wait=3s", "delivery.unknown_topic_wait=4s"),
              ::testing::ElementsAre("delivery.unknown_topic_wait"));
  EXPECT_THAT(NeedRestart("outboxes=[{table: a.b}]", "outboxes=[{table: a.c}]"),
              ::testing::ElementsAre("outboxes"));
  EXPECT_THAT(NeedRestart("outboxes=[{constant_headers: {authorization: a}}]",
                          "outboxes=[{constant_headers: {authorization: b}}]"),
              ::testing::ElementsAre("outboxes"));
}

TEST(ShowTest, ConstantHeaderThatLooksLikeASecretIsHidden) {
  const std::string shown = Show(ParseOk(
      kLeast,
      {"outboxes=[{constant_headers: {authorization: geheim, X-Api-Key: geheim, env: p}}]"}));
  EXPECT_THAT(shown, AllOf(HasSubstr("authorization: \"***\""), HasSubstr("env: p"),
                           Not(HasSubstr("geheim"))));
}

TEST(ShowTest, WhatAFileHoldsIsHiddenWhereverItStands) {
  const TemporaryFile secret("hunter2hunter2\n");
  const TemporaryFile brief("ab\n");
  const std::string file = "${file:" + secret.path() + "}";
  const std::string shown =
      ShowWith({"sink.kafka.properties={bootstrap.servers: 'k:9092', client.id: '" + file + "'}",
                "outboxes=[{table: a.b, constant_headers: {x-a: 'Basic " + file +
                    "', x-b: '${file:" + brief.path() + "}', x-c: abc}}]",
                "source.publication=" + file, "schema_registry={url: 'https://a/" + file + "'}",
                "http.hosts=['" + file + "']"});
  EXPECT_THAT(shown, Not(HasSubstr("hunter2")));
  EXPECT_THAT(shown,
              AllOf(HasSubstr("client.id: \"***\""), HasSubstr("x-a: Basic ***"),
                    HasSubstr("x-b: \"***\""), HasSubstr("x-c: abc"), HasSubstr("https://a/***")));
}

TEST(ShowTest, FileThatIsAPartOfAnotherLeavesNothingOfItToSee) {
  const TemporaryFile part("walpost-prod");
  const TemporaryFile whole("walpost-prod-Tail");
  const std::string shown = ShowWith({"outboxes=[{constant_headers: {x1: '${file:" + part.path() +
                                      "}', x2: 'a ${file:" + whole.path() + "}'}}]"});
  EXPECT_THAT(shown,
              AllOf(HasSubstr("x1: \"***\""), HasSubstr("x2: a ***}"), Not(HasSubstr("Tail"))));
}

// Then it is not what the file holds any more.
TEST(ShowTest, UrlOfAFileThatIsTakenApartIsHidden) {
  for (const char* url : {"https://registry.example/S3cretPath/", " https://registry.example ",
                          "https://one.registry.example/,https://two.registry.example/"}) {
    const TemporaryFile file(url);
    EXPECT_THAT(ShowWith({"schema_registry={url: '${file:" + file.path() + "}'}"}),
                AllOf(Not(HasSubstr("registry.example")), Not(HasSubstr("S3cret"))))
        << url;
  }
}

// What is shown has its dollar signs doubled.
TEST(ShowTest, SecretWithDollarSignsIsHidden) {
  for (const char* secret : {"hunter2$$hunter2", "hunter2${hunter2}", "$$hunter2", "$${a"}) {
    const TemporaryFile file(std::string(secret) + "\n");
    const std::string shown = ShowWith(
        {"sink.kafka.properties={bootstrap.servers: 'k:9092', client.id: '${file:" + file.path() +
         "}'}"});
    EXPECT_THAT(shown, AllOf(HasSubstr("client.id: \"***\""), Not(HasSubstr("hunter2"))));
  }
}

// libpq reads another text than the file has.
TEST(ShowTest, SecretThatAConninfoSpellsDifferentlyIsHidden) {
  const std::pair<const char*, const char*> cases[] = {
      {"host=h dbname=shop application_name=${file:%s}", "hunt'er2hunter2"},
      {"host=h dbname=shop application_name='${file:%s}'", R"(hunt\'er2\\hunter2)"},
      {"host=h dbname=shop application_name='${file:%s}'", R"(er2\'h)"},
      {"postgresql://h/shop?application_name=${file:%s}", "hunt%27er2hunter2"},
      {"host=h dbname=shop ${file:%s}", R"(application_name='hunt\'er2')"},
  };
  for (const auto& [conninfo, secret] : cases) {
    Config config = ParseOk(kLeast);
    config.run.source.conninfo = absl::StrReplaceAll(conninfo, {{"${file:%s}", secret}});
    config.from_files = {secret};
    const std::string shown = Show(config);
    EXPECT_THAT(shown, AllOf(Not(HasSubstr("er2")), HasSubstr("dbname=shop")));
    EXPECT_THAT(shown, HasSubstr("application_name=***")) << secret;
  }
}

TEST(ShowTest, SecretThatAConninfoSpellsDifferentlyIsHiddenBesideAnotherOne) {
  constexpr const char* kPlain = "plainsecret-0123";
  const std::pair<const char*, const char*> cases[] = {
      {"host=h options='-c my.a=${plain} -c my.b=${file}'", R"(abc\'defgh\'ijk\'lmnop)"},
      {"postgresql://h/shop?application_name=${plain}${file}", "p%61ss%77or%64-%31%32%33"},
      {"postgresql://user@host/shop?application_name=${file}", "user%0Ahost%0Ashop"},
  };
  for (const auto& [conninfo, secret] : cases) {
    Config config = ParseOk(kLeast);
    config.run.source.conninfo =
        absl::StrReplaceAll(conninfo, {{"${plain}", kPlain}, {"${file}", secret}});
    config.from_files = {kPlain, secret};
    EXPECT_THAT(Show(config), AllOf(Not(HasSubstr("defgh")), Not(HasSubstr("123")),
                                    Not(HasSubstr("user\\nhost")), HasSubstr("***")));
  }
}

TEST(ShowTest, SettingWhoseNameAFileHoldsTooIsHidden) {
  Config config = ParseOk(kLeast);
  config.run.source.conninfo = "host=h options='-c app.password=NewSecret2'";
  config.from_files = {"host=db1 options='-c app.password=OldSecret1'"};
  EXPECT_THAT(Show(config), Not(HasSubstr("NewSecret2")));
}

TEST(ShowTest, BriefValueInAConninfoOfAFileIsHiddenWhenAnotherFileIsAPartOfIt) {
  Config config = ParseOk(kLeast);
  config.run.source.conninfo = "user=somebody host=db1";
  config.from_files = {"user=somebody", "user=somebody host=db1"};
  EXPECT_THAT(Show(config), Not(HasSubstr("db1")));
}

TEST(ShowTest, WhatAFileHoldsIsHiddenInProblems) {
  const TemporaryFile secret("Hunter2 Hunter2\n");
  const TemporaryFile brief("N o\n");
  for (const TemporaryFile* file : {&secret, &brief}) {
    const std::string reference = "${file:" + file->path() + "}";
    const std::string problems(
        Parse(kLeast, "w.yaml",
              {"source.slot=" + reference, "log.level=" + reference,
               "monitor.interval=" + reference, "sink.kafka.properties.acks=" + reference})
            .status()
            .message());
    EXPECT_THAT(problems, AllOf(HasSubstr("source.slot"), HasSubstr("log.level"), HasSubstr("acks"),
                                Not(HasSubstr("Hunter2")), Not(HasSubstr("N o"))));
  }
}

TEST(KeysThatNeedRestartTest, ChangeOfWhatAFileHoldsIsSeen) {
  const TemporaryFile one("first-publication");
  const TemporaryFile two("other-publication");
  const Config before = ParseOk(kLeast, {"source.publication=${file:" + one.path() + "}"});
  const Config now = ParseOk(kLeast, {"source.publication=${file:" + two.path() + "}"});
  EXPECT_THAT(KeysThatNeedRestart(before, now), ElementsAre("source.publication"));
  const Config in_force = InForce(before, now);
  EXPECT_THAT(Show(in_force), Not(HasSubstr("first-publication")));
  const auto both = ElementsAre("first-publication", "other-publication");
  EXPECT_THAT(in_force.run.kafka.secrets, both);
  EXPECT_THAT(in_force.run.registry.secrets, both);
}

// librdkafka runs it when a client is made.
TEST(ShowTest, CommandOfKerberosIsNotRun) {
  const TemporaryFile made("");
  unlink(made.path().c_str());
  const std::string shown = ShowWith(
      {"sink.kafka.properties={bootstrap.servers: 'k:9092', security.protocol: SASL_PLAINTEXT, "
       "sasl.mechanisms: GSSAPI, sasl.kerberos.kinit.cmd: 'touch " +
       made.path() + "'}"});
  EXPECT_THAT(shown, HasSubstr("sasl.kerberos.kinit.cmd: \"***\""));
  EXPECT_NE(access(made.path().c_str(), F_OK), 0);
}

TEST(InForceTest, IsTheOldOneWithWhatMayChange) {
  const Config before =
      ParseOk(kLeast, {"name=a", "schema_registry={url: 'http://a', refresh: 2s}"});
  const Config now = ParseOk(
      kLeast, {"name=b", "log.level=debug", "source.conninfo=host=b", "http.token=0123456789abcdef",
               "http.listen=127.0.0.1:1", "schema_registry={url: 'http://b', refresh: 3s}",
               "sink.kafka.properties={bootstrap.servers: b}", "delivery.unknown_topic_wait=9s"});
  const Config in_force = InForce(before, now);
  EXPECT_EQ(in_force.log_level, observe::Severity::kDebug);
  EXPECT_EQ(in_force.run.source.conninfo, "host=b");
  EXPECT_EQ(in_force.run.http.token, "0123456789abcdef");
  EXPECT_THAT(in_force.run.registry.urls, ElementsAre("http://b"));
  EXPECT_THAT(Show(in_force), HasSubstr("bootstrap.servers: b\n"));
  // What needs a restart.
  EXPECT_EQ(in_force.run.name, "a");
  EXPECT_EQ(in_force.run.http.listen, "127.0.0.1:9464");
  EXPECT_EQ(in_force.run.pipeline.unknown_topic_wait, std::chrono::seconds(10));
  EXPECT_EQ(in_force.run.registry.refresh, std::chrono::seconds(2));
}

// Not to be guessed by whoever knows this program: *** is no token.
TEST(ShowTest, TokenIsHiddenAndWhatIsShownIsNone) {
  const std::string shown = ShowWith({"http.token=0123456789abcdef"});
  EXPECT_THAT(shown, AllOf(HasSubstr("token: \"***\""), Not(HasSubstr("0123456789abcdef"))));
  EXPECT_FALSE(Parse(shown, "shown", {}).ok());
}

}  // namespace
}  // namespace walpost::config
