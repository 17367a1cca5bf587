// The program as its users meet it: what it prints where, and with which exit code it ends.
#include "cli/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "unit/cli/run_program.h"

namespace walpost::cli {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using walpost::testing::Ended;

Ended Walpost(std::vector<std::string> arguments,
              const std::vector<std::string>& environment = {}) {
  arguments.insert(arguments.begin(), WALPOST_BINARY);
  return walpost::testing::RunProgram(arguments, environment);
}

class CliFileTest : public ::testing::Test {
 protected:
  CliFileTest() : path_(::testing::TempDir() + "walpost-cli-XXXXXX") {
    const int fd = mkstemp(path_.data());
    EXPECT_GE(fd, 0);
    close(fd);
  }

  ~CliFileTest() override { unlink(path_.c_str()); }

  void Write(const std::string& yaml) { std::ofstream(path_) << yaml; }

  // The verb with this file.
  Ended WithFile(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--config", path_});
    return Walpost(std::move(arguments));
  }

  std::string path_;
};

TEST(CliTest, HelpNamesEveryVerbAndEndsWell) {
  const Ended help = Walpost({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(help.err, "");
  for (const char* verb : {"run", "init", "check", "slot", "dlq", "config", "emit", "version"}) {
    EXPECT_THAT(help.out, HasSubstr("\n  " + std::string(verb) + " "));
  }
  EXPECT_THAT(help.out, AllOf(HasSubstr("--config"), HasSubstr("/etc/walpost/walpost.yaml"),
                              HasSubstr("--set")));
}

TEST(CliTest, EveryVerbHasItsHelp) {
  const std::vector<std::vector<std::string>> verbs = {{"run"},
                                                       {"init"},
                                                       {"check"},
                                                       {"emit"},
                                                       {"slot", "list"},
                                                       {"slot", "drop"},
                                                       {"slot", "create"},
                                                       {"config", "validate"},
                                                       {"config", "show"},
                                                       {"dlq", "list"},
                                                       {"dlq", "show"},
                                                       {"dlq", "retry"},
                                                       {"dlq", "discard"},
                                                       {"slot"},
                                                       {"dlq"},
                                                       {"config"},
                                                       {"version"}};
  for (std::vector<std::string> verb : verbs) {
    verb.push_back("--help");
    const Ended help = Walpost(verb);
    EXPECT_EQ(help.exit_code, 0) << verb[0];
    EXPECT_THAT(help.out, HasSubstr("Usage: ")) << verb[0];
  }
}

TEST(CliTest, NoVerbIsAUsageErrorWithAHint) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{}, {"slot"}, {"dlq"}, {"config"}}) {
    const Ended ended = Walpost(arguments);
    EXPECT_EQ(ended.exit_code, 64);
    EXPECT_EQ(ended.out, "");
    EXPECT_THAT(ended.err, HasSubstr("--help"));
  }
}

TEST(CliTest, UnknownVerbIsNamedWithTheOneThatWasMeant) {
  const Ended close = Walpost({"inti"});
  EXPECT_EQ(close.exit_code, 64);
  EXPECT_EQ(close.out, "");
  EXPECT_THAT(close.err,
              AllOf(HasSubstr("'inti'"), HasSubstr("did you mean 'init'?"), HasSubstr("--help")));
  const Ended far = Walpost({"frobnicate"});
  EXPECT_EQ(far.exit_code, 64);
  EXPECT_THAT(far.err, AllOf(HasSubstr("'frobnicate'"), Not(HasSubstr("did you mean"))));
  const Ended nested = Walpost({"slot", "lst"});
  EXPECT_EQ(nested.exit_code, 64);
  EXPECT_THAT(nested.err, AllOf(HasSubstr("'lst'"), HasSubstr("did you mean 'list'?")));
}

TEST(CliTest, BadOptionIsAUsageErrorThatNamesItWithAHint) {
  const Ended unknown = Walpost({"init", "--frob"});
  EXPECT_EQ(unknown.exit_code, 64);
  EXPECT_EQ(unknown.out, "");
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("--frob"), HasSubstr("--help")));
  EXPECT_EQ(Walpost({"check", "extra"}).exit_code, 64);
  EXPECT_EQ(Walpost({"--config"}).exit_code, 64);
  EXPECT_EQ(Walpost({"config", "validate", "--yes"}).exit_code, 64);
}

TEST(CliTest, VersionShowsItselfAndItsLibrariesAndNeedsNoConfiguration) {
  const Ended version = Walpost({"--config", "/nowhere.yaml", "version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, MatchesRegex("walpost " WALPOST_PROJECT_VERSION
                                        "\nlibpq [0-9.]+\nlibrdkafka [0-9.]+\n"));
  EXPECT_EQ(version.err, "");
}

TEST(CliTest, MissingFileIsAConfigurationErrorThatNamesIt) {
  for (const char* verb : {"run", "init", "check", "emit"}) {
    const Ended ended = Walpost({"--config", "/nowhere/walpost.yaml", verb});
    EXPECT_EQ(ended.exit_code, 78) << verb;
    EXPECT_EQ(ended.out, "");
    EXPECT_THAT(ended.err, AllOf(StartsWith("walpost: "), HasSubstr("/nowhere/walpost.yaml: ")))
        << verb;
  }
}

TEST(CliTest, FolderAsFileIsAConfigurationErrorAndNoCrash) {
  const Ended ended = Walpost({"--config", "/tmp", "config", "validate"});
  EXPECT_EQ(ended.exit_code, 78);
  EXPECT_THAT(ended.err, HasSubstr("/tmp: the configuration file cannot be read"));
}

TEST(CliTest, ShippedFileValidatesWithTheDocumentedVariablesAlone) {
  const Ended bare = Walpost({"--config", WALPOST_SHIPPED_FILE, "config", "validate"});
  EXPECT_EQ(bare.exit_code, 0) << bare.err;
  const Ended shown =
      Walpost({"--config", WALPOST_SHIPPED_FILE, "config", "show"},
              {"WALPOST_SOURCE_CONNINFO=host=db password=geheim", "WALPOST_NAME=shop"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("name: shop\n"), Not(HasSubstr("geheim"))));
}

TEST_F(CliFileTest, ValidateSaysOkForAGoodFile) {
  Write("sink: {kafka: {properties: {bootstrap.servers: \"k:9092\"}}}\n");
  const Ended good = WithFile({"config", "validate"});
  EXPECT_EQ(good.exit_code, 0);
  EXPECT_EQ(good.out, "ok\n");
  EXPECT_EQ(good.err, "");
}

TEST_F(CliFileTest, ValidateReportsEveryProblemOfABadFile) {
  Write("nam: x\nlog: {level: loud}\n");
  const Ended bad = WithFile({"config", "validate"});
  EXPECT_EQ(bad.exit_code, 78);
  EXPECT_EQ(bad.out, "");
  EXPECT_THAT(bad.err, AllOf(HasSubstr(path_ + ":1:1: nam: unknown key; did you mean 'name'?\n"),
                             HasSubstr(path_ + ":2:14: log.level: 'loud'"),
                             HasSubstr("bootstrap.servers is missing")));
}

TEST_F(CliFileTest, OptionsStandBeforeOrBehindTheVerb) {
  Write("sink: {kafka: {properties: {bootstrap.servers: \"k:9092\"}}}\n");
  const Ended before =
      WithFile({"--set", "name=shop", "--set", "log.level=debug", "config", "show"});
  const Ended behind = Walpost(
      {"config", "show", "--config", path_, "--set", "name=shop", "--set", "log.level=debug"});
  EXPECT_EQ(before.exit_code, 0) << before.err;
  EXPECT_THAT(before.out, AllOf(HasSubstr("name: shop\n"), HasSubstr("level: debug")));
  EXPECT_EQ(behind.out, before.out);
}

TEST_F(CliFileTest, ShownConfigurationIsAConfiguration) {
  Write("name: shop\nsink: {kafka: {properties: {bootstrap.servers: \"k:9092\"}}}\n");
  const Ended first = WithFile({"config", "show"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  Write(first.out);
  const Ended second = WithFile({"config", "show"});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(second.out, first.out);
}

TEST_F(CliFileTest, PrintSqlNeedsNoServerAndPrintsDataOnly) {
  Write("sink: {kafka: {properties: {bootstrap.servers: \"k:9092\"}}}\n");
  const Ended sql = WithFile({"init", "--print-sql"});
  EXPECT_EQ(sql.exit_code, 0) << sql.err;
  EXPECT_THAT(sql.out, HasSubstr("CREATE PUBLICATION \"walpost\""));
  EXPECT_EQ(sql.err, "");
}

// Port 1 of this machine: nothing listens there.
TEST_F(CliFileTest, ServerThatIsNotThereIsUnavailableWithOneLine) {
  Write(
      "source: {conninfo: host=127.0.0.1 port=1 password=geheim}\n"
      "sink: {kafka: {properties: {bootstrap.servers: \"127.0.0.1:1\"}}}\n");
  const std::vector<std::vector<std::string>> verbs = {
      {"init"}, {"emit"}, {"slot", "list"}, {"slot", "create"}, {"slot", "drop", "--yes"}};
  for (const std::vector<std::string>& verb : verbs) {
    const Ended ended = WithFile(verb);
    EXPECT_EQ(ended.exit_code, 69) << verb[0];
    EXPECT_EQ(ended.out, "") << verb[0];
    EXPECT_THAT(ended.err,
                AllOf(StartsWith("walpost: "), EndsWith("\n"), Not(HasSubstr("geheim"))));
    EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << ended.err;
  }
}

TEST_F(CliFileTest, CheckAsJsonIsJsonAlsoWhenNothingAnswers) {
  Write(
      "source: {conninfo: host=127.0.0.1 port=1}\n"
      "sink: {kafka: {properties: {bootstrap.servers: 'localhost:1'}}}\n");
  const Ended ended = WithFile({"check", "--json"});
  EXPECT_EQ(ended.exit_code, 69);
  const nlohmann::json lines = nlohmann::json::parse(ended.out);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines[0].at("level"), "failed");
  EXPECT_EQ(lines[0].at("check"), "replication connection");
}

// Colour is for people: neither a pipe nor a file gets escape sequences.
TEST_F(CliFileTest, CheckIntoAPipeHasNoColour) {
  Write(
      "source: {conninfo: host=127.0.0.1 port=1}\n"
      "sink: {kafka: {properties: {bootstrap.servers: 'localhost:1'}}}\n");
  const Ended ended = WithFile({"check"});
  EXPECT_THAT(ended.out, HasSubstr("✗ replication connection: "));
  EXPECT_THAT(ended.out, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace walpost::cli
