// walpost.yaml from connectors' files: the goldens in import/, and what is not taken.
#include "config/import_debezium.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/config.h"
#include "config/connector_file.h"
#include "postgres/conninfo.h"
#include "unit/config/scoped_env.h"

namespace walpost::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

constexpr char kRouter[] =
    R"("transforms":"o","transforms.o.type":"io.debezium.transforms.outbox.EventRouter")";

std::string PathOf(const std::string& name) {
  return std::string(WALPOST_IMPORT_FOLDER) + "/" + name;
}

std::string Content(const std::string& name) {
  const std::ifstream file(PathOf(name));
  EXPECT_TRUE(file.good()) << PathOf(name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

ImportedConfig ImportOk(const std::string& text) {
  const absl::StatusOr<ImportedConfig> imported = ImportDebezium(text);
  EXPECT_TRUE(imported.ok()) << imported.status();
  return imported.ok() ? *imported : ImportedConfig();
}

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<ImportedConfig> imported = ImportDebezium(text);
  EXPECT_EQ(imported.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(imported.status().message());
}

class GoldenTest : public ::testing::TestWithParam<const char*> {};

// WALPOST_WRITE_GOLDEN=1 writes them anew, to be looked at.
TEST_P(GoldenTest, GivesTheFileAndTheNotes) {
  const ImportedConfig imported = ImportOk(Content(GetParam()));
  const std::string notes = absl::StrJoin(imported.notes, "\n") + "\n";
  if (std::getenv("WALPOST_WRITE_GOLDEN") != nullptr) {
    std::ofstream(PathOf(std::string(GetParam()) + ".yaml")) << imported.yaml;
    std::ofstream(PathOf(std::string(GetParam()) + ".notes")) << notes;
  }
  EXPECT_EQ(imported.yaml, Content(std::string(GetParam()) + ".yaml"));
  EXPECT_EQ(notes, Content(std::string(GetParam()) + ".notes"));
}

TEST_P(GoldenTest, FileLoadsOnceItsVariablesAreSetAndHoldsNoSecret) {
  const ScopedEnv database("WALPOST_DATABASE_DBNAME", std::optional<std::string>("d"));
  const ScopedEnv user("WALPOST_DATABASE_USER", std::optional<std::string>("u"));
  const ImportedConfig imported = ImportOk(Content(GetParam()));
  const absl::StatusOr<Config> config = Parse(imported.yaml, "walpost.yaml", {});
  EXPECT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(imported.yaml, AllOf(Not(HasSubstr("geheim")), Not(HasSubstr("postgrespw"))));
  EXPECT_THAT(absl::StrJoin(imported.notes, "\n"), Not(HasSubstr("geheim")));
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenTest,
                         ::testing::Values("connect.json", "nasty.json", "server.properties"));

TEST(ImportDebeziumTest, NastyNamesArriveAsTheyWere) {
  const ScopedEnv database("WALPOST_DATABASE_DBNAME", std::optional<std::string>("d 1"));
  const absl::StatusOr<Config> config =
      Parse(ImportOk(Content("nasty.json")).yaml, "walpost.yaml", {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->run.name, "a: \"b\" $c");
  EXPECT_EQ(config->run.source.publication, "Pub: 'x'");
  EXPECT_EQ(config->run.source.conninfo,
            "host='db 1' port=5433 user='o\\'brien\\\\' dbname='d 1' sslmode=verify-full");
  const outbox::TableOptions& table = config->run.pipeline.outboxes[0].table;
  EXPECT_THAT(table.columns.aggregate_type, ElementsAre("aggregate$type"));
  EXPECT_EQ(table.debezium->topic_regex, "(?<x>[a-z]+)\\.\"(.*)\"$");
  EXPECT_EQ(table.debezium->topic_replacement, "$1.${x}\\$");
}

// libpq ends a value at any of these.
TEST(ImportDebeziumTest, WhiteSpaceInAValueThenItIsNotAnotherSetting) {
  for (const char* space : {" ", "\\t", "\\n", "\\r", "\\f", "\\u000b"}) {
    const ImportedConfig imported =
        ImportOk(absl::StrCat("{\"database.dbname\":\"db", space, "sslmode=disable\",",
                              "\"database.sslmode\":\"verify-full\",", kRouter, "}"));
    const absl::StatusOr<Config> config = Parse(imported.yaml, "walpost.yaml", {});
    ASSERT_TRUE(config.ok()) << config.status();
    const auto settings = postgres::ResolveConninfo(config->run.source.conninfo);
    ASSERT_TRUE(settings.ok()) << settings.status();
    EXPECT_THAT(postgres::Setting(*settings, "dbname"), HasSubstr("sslmode=disable")) << space;
    EXPECT_EQ(postgres::Setting(*settings, "sslmode"), "verify-full") << space;
  }
}

TEST(ImportDebeziumTest, WhatIsNoConnectorWithAnEventRouterIsNotTaken) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("{"), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("none of its transformations"));
  EXPECT_THAT(ErrorOf("a=b"), HasSubstr("none of its transformations"));
  EXPECT_THAT(ErrorOf(R"({"transforms":"o","transforms.o.type":"x"})"), HasSubstr("EventRouter"));
  EXPECT_THAT(ErrorOf(std::string("{\"connector.class\":\"MySql\",") + kRouter + "}"),
              HasSubstr("connector.class"));
  EXPECT_THAT(ErrorOf("k=\\u12"), HasSubstr("four digits"));
}

TEST(ImportDebeziumTest, OptionThatWalpostRejectsIsNamed) {
  EXPECT_THAT(
      ErrorOf(std::string("{\"transforms.o.route.topic.regex\":\"[a&&b]\",") + kRouter + "}"),
      HasSubstr("which Java reads differently"));
}

TEST(ImportDebeziumTest, DefaultsOfDebeziumAreWrittenOut) {
  const ImportedConfig imported = ImportOk(std::string("{") + kRouter + "}");
  const absl::StatusOr<Config> config = Parse(imported.yaml, "walpost.yaml", {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->run.source.slot, "debezium");
  EXPECT_EQ(config->run.source.publication, "dbz_publication");
  EXPECT_EQ(config->run.pipeline.outboxes[0].table.table, "outbox");
  EXPECT_THAT(absl::StrJoin(imported.notes, "\n"),
              AllOf(HasSubstr("plugin.name: walpost reads pgoutput"), HasSubstr("snapshot.mode:"),
                    HasSubstr("key.converter: it is the worker's")));
}

TEST(ConnectorFileTest, PropertiesAreReadAsJavaDoes) {
  const auto file = ReadConnectorFile(
      "a=1\n b : 2\nc 3\n#x=y\n!x=y\n\nd=4\\\n  5\ne\\=\\:\\ f= g \nh\nu=\\u00e9\\u2603\\t\n "
      "i==j\nk=\\\\\n");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->settings,
              ElementsAre(Pair("a", "1"), Pair("b", "2"), Pair("c", "3"), Pair("d", "45"),
                          Pair("e=: f", "g "), Pair("h", ""), Pair("i", "=j"), Pair("k", "\\"),
                          Pair("u", "\u00e9\u2603\t")));
}

}  // namespace
}  // namespace walpost::config
