// `schema_registry`, and `value.schema_registry` of outboxes and messages.

#include "config/schema_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/config.h"
#include "unit/config/scoped_env.h"

namespace walpost::config {
namespace {

using envelope::Framing;
using envelope::SchemaType;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kLeast[] = "sink: {kafka: {properties: {bootstrap.servers: 'kafka:9092'}}}\n";
constexpr char kRegistry[] = "schema_registry={url: 'http://registry:8081'}";

absl::StatusOr<Config> With(std::vector<std::string> sets) {
  return Parse(kLeast, "w.yaml", std::move(sets));
}

// Of one outbox's `value`.
std::string ProblemsOf(const std::string& value, const std::string& more = "") {
  return std::string(
      With({kRegistry, "outboxes=[{value: " + value + more + "}]"}).status().message());
}

std::string RegistryProblemsOf(const std::string& map) {
  return std::string(With({"schema_registry=" + map}).status().message());
}

envelope::FramingOptions FramingOf(const std::string& map) {
  const auto config =
      With({kRegistry, "outboxes=[{value: {format: raw, schema_registry: " + map + "}}]"});
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? config->run.pipeline.outboxes[0].encoder.framing
                     : envelope::FramingOptions();
}

TEST(SchemaRegistryTest, UrlsAreAListWithCommas) {
  const auto config = With({"schema_registry={url: 'http://a:8081/, https://b/apis/ccompat/v7'}"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->run.registry.urls, ElementsAre("http://a:8081", "https://b/apis/ccompat/v7"));
  EXPECT_EQ(config->run.registry.timeout, std::chrono::seconds(5));
  EXPECT_EQ(config->run.pipeline.schema_refresh, std::chrono::minutes(5));
}

TEST(SchemaRegistryTest, WhatFilesHoldIsSecretForTheRegistryToo) {
  const TemporaryFile url("http://registry:8081/");
  const auto config = With({"schema_registry={url: '${file:" + url.path() + "}'}"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->run.registry.urls, ElementsAre("http://registry:8081"));
  EXPECT_THAT(config->run.registry.secrets, ElementsAre("http://registry:8081/"));
}

// Whatever is wrong with it: a password may stand in it.
TEST(SchemaRegistryTest, UrlIsNotShownInProblems) {
  for (const char* url : {"htps://me:hunter2@registry", "//me:hunter2@registry", "me:hunter2@r:80",
                          "http://me:hunter2@registry", "htps://registry?token=hunter2",
                          "http://registry?token=hunter2", "http://a,me:hunter2@b"}) {
    const std::string problems = RegistryProblemsOf(std::string("{url: '") + url + "'}");
    EXPECT_THAT(problems, AllOf(HasSubstr("schema_registry.url: "), Not(HasSubstr("hunter2"))));
  }
}

TEST(SchemaRegistryTest, WhatCannotBeIsRejected) {
  EXPECT_THAT(RegistryProblemsOf("{url: 'registry:8081'}"),
              HasSubstr("schema_registry.url: write http:// or https://"));
  EXPECT_THAT(RegistryProblemsOf("{url: 'http://me:secret@registry'}"),
              HasSubstr("give name and password as `username` and `password`"));
  EXPECT_THAT(RegistryProblemsOf("{url: 'http://a,'}"), HasSubstr("schema_registry.url"));
  EXPECT_THAT(RegistryProblemsOf("{url: 'http://'}"), HasSubstr("write http:// or https://"));
  EXPECT_THAT(RegistryProblemsOf("{url: 'http://a?b'}"), HasSubstr("neither spaces nor a query"));
  EXPECT_THAT(RegistryProblemsOf("{url: 'http://a', username: b}"),
              HasSubstr("username and password belong together"));
  EXPECT_THAT(RegistryProblemsOf("{url: 'http://a', username: b, password: c, token: d}"),
              HasSubstr("either a token, or username and password"));
  EXPECT_THAT(RegistryProblemsOf("{url: 'http://a', key_file: k}"),
              HasSubstr("belongs to `certificate_file`"));
  EXPECT_THAT(RegistryProblemsOf("{url: 'http://a', timeout: 0s}"), HasSubstr("100ms and 1min"));
  EXPECT_THAT(RegistryProblemsOf("{url: 'http://a', refresh: 1ms}"), HasSubstr("at least 1s"));
  EXPECT_THAT(RegistryProblemsOf("{urls: 'http://a'}"), HasSubstr("did you mean 'url'"));
}

TEST(FramingTest, NothingIsFramedByDefault) {
  const auto config = With({});
  EXPECT_EQ(config->run.pipeline.outboxes[0].encoder.framing.framing, Framing::kNone);
  EXPECT_EQ(config->run.pipeline.messages.encoder.framing.framing, Framing::kNone);
}

TEST(FramingTest, SubjectIsANameOrATemplate) {
  EXPECT_EQ(FramingOf("{framing: payload}").subject, "{topic}-{record}");
  EXPECT_EQ(FramingOf("{framing: payload, subject: topic}").subject, "{topic}-value");
  EXPECT_EQ(FramingOf("{framing: header, subject: record}").subject, "{record}");
  EXPECT_EQ(FramingOf("{framing: header, subject: 'x.{topic}'}").subject, "x.{topic}");
  EXPECT_EQ(FramingOf("{framing: payload, type: avro}").type, SchemaType::kAvro);
}

TEST(FramingTest, MessagesHaveTheirOwn) {
  const auto config = With({kRegistry,
                            "messages={prefixes: p, value: {schema_registry: {framing: "
                            "payload, auto_register: true}}}"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->run.pipeline.messages.encoder.framing.framing, Framing::kPayload);
  EXPECT_TRUE(config->run.pipeline.messages.encoder.framing.auto_register);
}

TEST(FramingTest, WithoutARegistryItIsRejected) {
  const auto config = With({"outboxes=[{value: {schema_registry: {framing: payload}}}]"});
  EXPECT_THAT(std::string(config.status().message()),
              HasSubstr("outboxes[0].value.schema_registry.framing needs schema_registry.url"));
}

TEST(FramingTest, WhatCannotWorkIsRejected) {
  const std::pair<const char*, const char*> cases[] = {
      {"{format: cloudevents, cloudevents: {mode: structured_json}, schema_registry: {framing: "
       "payload}}",
       "value.schema_registry.framing: the value of a structured CloudEvent"},
      {"{schema_registry: {framing: payload, type: json}}", "format: envelope is protobuf"},
      {"{schema_registry: {framing: payload, descriptor_set: a}}", "is built in"},
      {"{format: raw, schema_registry: {framing: payload, type: json, descriptor_set: a}}",
       "is for type: protobuf"},
      {"{format: raw, schema_registry: {framing: payload, auto_register: true}}",
       "what is to be registered is said by `descriptor_set`"},
      {"{format: raw, schema_registry: {descriptor_set: a}}",
       "without it nothing else here has an effect"},
      {"{schema_registry: {framing: payload, subject: '{aggregate_type}'}}",
       "a template with {topic} and {record}"},
      {"{schema_registry: {framing: payload, subject: topics}}", "did you mean 'topic'"},
      {"{schema_registry: {framing: payload, auto_register: 'yes'}}", "auto_register"}};
  for (const auto& [value, problem] : cases) {
    EXPECT_THAT(ProblemsOf(value), HasSubstr(problem)) << value;
  }
}

TEST(FramingTest, NameOfTheMessageNeedsItsColumn) {
  const std::string value = "{format: raw, schema_registry: {framing: payload";
  EXPECT_THAT(ProblemsOf(value + "}}", ", columns: {schema_name: []}"),
              HasSubstr("outboxes[0].columns: schema_name, the full name of the message"));
  EXPECT_EQ(ProblemsOf(value + ", type: json, subject: topic}}", ", columns: {schema_name: []}"),
            "");
  EXPECT_EQ(ProblemsOf("{schema_registry: {framing: payload}}", ", columns: {schema_name: []}"),
            "");
}

TEST(FramingTest, ShownIsWhatIsReadAndNoSecret) {
  const auto config = With(
      {"schema_registry={url: 'http://a,http://b', username: me, password: s3cret, ca_file: /ca, "
       "certificate_file: /c, key_file: /k, timeout: 3s, refresh: 1min}",
       "outboxes=[{value: {format: raw, schema_registry: {framing: header, subject: 'x-{topic}', "
       "descriptor_set: /d.pb, auto_register: true}}}]",
       "messages={value: {schema_registry: {framing: payload, subject: record}}}"});
  ASSERT_TRUE(config.ok()) << config.status();
  const std::string shown = Show(*config);
  EXPECT_THAT(shown, Not(HasSubstr("s3cret")));
  const auto again = Parse(shown, "shown.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << shown;
  EXPECT_EQ(Show(*again), shown);
  EXPECT_EQ(again->run.registry.urls, config->run.registry.urls);
  EXPECT_EQ(again->run.registry.username, "me");
  EXPECT_EQ(again->run.registry.ca_file, "/ca");
  EXPECT_EQ(again->run.registry.certificate_file, "/c");
  EXPECT_EQ(again->run.registry.key_file, "/k");
  EXPECT_EQ(again->run.registry.timeout, std::chrono::seconds(3));
  EXPECT_EQ(again->run.registry.refresh, std::chrono::minutes(1));
  for (const auto& [one, other] : {std::pair(config->run.pipeline.outboxes[0].encoder.framing,
                                             again->run.pipeline.outboxes[0].encoder.framing),
                                   std::pair(config->run.pipeline.messages.encoder.framing,
                                             again->run.pipeline.messages.encoder.framing)}) {
    EXPECT_EQ(one.framing, other.framing);
    EXPECT_EQ(one.subject, other.subject);
    EXPECT_EQ(one.type, other.type);
    EXPECT_EQ(one.descriptor_set, other.descriptor_set);
    EXPECT_EQ(one.auto_register, other.auto_register);
  }
}

TEST(FramingTest, TokenIsShownAsNothing) {
  const std::string shown = Show(*With({"schema_registry={url: 'http://a', token: t0ken}"}));
  EXPECT_THAT(shown, Not(HasSubstr("t0ken")));
  EXPECT_THAT(shown, HasSubstr("token: \"***\""));
}

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
