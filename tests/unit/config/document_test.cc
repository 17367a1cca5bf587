#include "config/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "unit/config/scoped_env.h"

namespace walpost::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(InterpolateTest, VariableIsReplacedWhereverItStands) {
  const ScopedEnv host("WALPOST_TEST_HOST", "db");
  const ScopedEnv port("WALPOST_TEST_PORT", "5432");
  EXPECT_EQ(Interpolate("${WALPOST_TEST_HOST}").value(), "db");
  EXPECT_EQ(Interpolate("//${WALPOST_TEST_HOST}:${WALPOST_TEST_PORT}/shop").value(),
            "//db:5432/shop");
}

TEST(InterpolateTest, UnsetVariableIsAnErrorThatNamesItAndTheWayOut) {
  const ScopedEnv gone("WALPOST_TEST_GONE", std::nullopt);
  const auto result = Interpolate("a${WALPOST_TEST_GONE}");
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(result.status()), HasSubstr("${WALPOST_TEST_GONE}"));
  EXPECT_THAT(Message(result.status()), HasSubstr("${WALPOST_TEST_GONE:-...}"));
}

// As in a shell: `:-` also stands in for an empty variable, which is what a container file sets.
TEST(InterpolateTest, DefaultStandsInForUnsetAndEmpty) {
  const ScopedEnv gone("WALPOST_TEST_GONE", std::nullopt);
  const ScopedEnv empty("WALPOST_TEST_EMPTY", "");
  const ScopedEnv set("WALPOST_TEST_SET", "x");
  EXPECT_EQ(Interpolate("${WALPOST_TEST_GONE:-localhost:9092}").value(), "localhost:9092");
  EXPECT_EQ(Interpolate("${WALPOST_TEST_EMPTY:-d}").value(), "d");
  EXPECT_EQ(Interpolate("${WALPOST_TEST_SET:-d}").value(), "x");
  EXPECT_EQ(Interpolate("[${WALPOST_TEST_GONE:-}]").value(), "[]");
}

TEST(InterpolateTest, ReplacementIsNotInterpolatedAgain) {
  const ScopedEnv set("WALPOST_TEST_SET", "${WALPOST_TEST_GONE} $$");
  EXPECT_EQ(Interpolate("${WALPOST_TEST_SET}").value(), "${WALPOST_TEST_GONE} $$");
}

TEST(InterpolateTest, FileIsReadWithoutItsLastLineBreak) {
  const TemporaryFile secret("pass word\n");
  const TemporaryFile windows("one\r\ntwo\r\n");
  EXPECT_EQ(Interpolate("password='${file:" + secret.path() + "}'").value(),
            "password='pass word'");
  EXPECT_EQ(Interpolate("${file:" + windows.path() + "}").value(), "one\r\ntwo");
}

TEST(InterpolateTest, FileThatCannotBeReadIsAnErrorThatNamesIt) {
  // A folder opens like a file and fails only when it is read.
  for (const std::string& path : {std::string("/nowhere/secret"), ::testing::TempDir()}) {
    const auto result = Interpolate("${file:" + path + "}");
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(Message(result.status()), HasSubstr(path));
  }
}

TEST(InterpolateTest, EndlessFileIsAnErrorThatNamesIt) {
  const auto result = Interpolate("${file:/dev/zero}");
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(result.status()), AllOf(HasSubstr("/dev/zero"), HasSubstr("1048576 bytes")));
}

// It would be waited for by the thread that also connects.
TEST(InterpolateTest, PipeThatNobodyWritesToIsAnErrorAtOnce) {
  const std::string path = ::testing::TempDir() + "walpost-pipe-" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto result = Interpolate("${file:" + path + "}");
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(result.status()), HasSubstr(path));
  unlink(path.c_str());
}

// A secret that is not written yet is none that walpost should go on without.
TEST(InterpolateTest, EmptyFileIsAnErrorThatNamesIt) {
  const TemporaryFile empty("\n");
  const auto result = Interpolate("${file:" + empty.path() + "}");
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(result.status()), AllOf(HasSubstr(empty.path()), HasSubstr("empty")));
}

TEST(InterpolateTest, DollarsThatOpenNothingStay) {
  EXPECT_EQ(Interpolate("a$b $").value(), "a$b $");
  EXPECT_EQ(Interpolate("$${NAME} $$5").value(), "${NAME} $5");
  EXPECT_EQ(Interpolate("").value(), "");
}

TEST(InterpolateTest, UnclosedBraceIsAnError) {
  EXPECT_THAT(Message(Interpolate("a${NAME").status()), HasSubstr("'${' without its '}'"));
}

TEST(DocumentTest, EveryUnsetVariableIsReportedWithItsPlace) {
  const ScopedEnv gone("WALPOST_TEST_GONE", std::nullopt);
  const auto document = LoadDocument(
      "a: ok\nb: ${WALPOST_TEST_GONE}\nc:\n  - x\n  - ${WALPOST_TEST_GONE}\n", "w.yaml", {});
  EXPECT_THAT(Message(document.status()), HasSubstr("w.yaml:2:4: ${WALPOST_TEST_GONE}"));
  EXPECT_THAT(Message(document.status()), HasSubstr("\nw.yaml:5:5: ${WALPOST_TEST_GONE}"));
}

TEST(DocumentTest, ValueOfAVariableStaysOneScalar) {
  const ScopedEnv yaml("WALPOST_TEST_YAML", "x: [1, 2]  # not YAML");
  const auto document = LoadDocument("a: ${WALPOST_TEST_YAML}\n", "w.yaml", {});
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ((*document)["a"].Scalar(), "x: [1, 2]  # not YAML");
}

TEST(DocumentTest, WordsThatYamlWouldConvertStayText) {
  const auto document = LoadDocument("a: no\nb: 010\nc: 1e3\n", "w.yaml", {});
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ((*document)["a"].Scalar(), "no");
  EXPECT_EQ((*document)["b"].Scalar(), "010");
  EXPECT_EQ((*document)["c"].Scalar(), "1e3");
}

TEST(DocumentTest, EmptyFileIsAnEmptyMap) {
  for (const char* text : {"", "# nothing\n", "---\n", "~"}) {
    const auto document = LoadDocument(text, "w.yaml", {});
    ASSERT_TRUE(document.ok()) << document.status();
    EXPECT_TRUE(document->IsMap());
    EXPECT_EQ(document->size(), 0u);
  }
}

TEST(DocumentTest, BrokenYamlIsAnErrorWithItsPlace) {
  const auto broken = LoadDocument("name: shop\nsource: [a\nhttp: b\n", "w.yaml", {});
  EXPECT_EQ(broken.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(broken.status()), HasSubstr("w.yaml:3:"));
  EXPECT_THAT(Message(LoadDocument("- a\n- b\n", "w.yaml", {}).status()),
              HasSubstr("w.yaml:1:1: expected `key: value` pairs"));
}

// An alias is the same value once more: its "$${HOME}" must not become a variable the second time.
TEST(AliasTest, ValueIsInterpolatedOnceHoweverOftenItStands) {
  const auto document =
      LoadDocument("a: &x \"$${WALPOST_TEST_GONE}\"\nb: *x\nc: {d: [*x]}\n", "w.yaml", {});
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ((*document)["a"].Scalar(), "${WALPOST_TEST_GONE}");
  EXPECT_EQ((*document)["b"].Scalar(), "${WALPOST_TEST_GONE}");
  EXPECT_EQ((*document)["c"]["d"][0].Scalar(), "${WALPOST_TEST_GONE}");
}

TEST(AliasTest, ValueInsideItselfIsAnErrorWithItsPlace) {
  for (const char* text : {"a: &x {b: *x}\n", "a: &x\n- [*x]\n", "a: &x\n ? *x\n : b\n"}) {
    const auto document = LoadDocument(text, "w.yaml", {});
    EXPECT_EQ(document.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(Message(document.status()), HasSubstr("w.yaml:1:")) << text;
    EXPECT_THAT(Message(document.status()), HasSubstr("alias")) << text;
  }
}

// Nine lines of these stand for more values than there is memory.
TEST(AliasTest, FewLinesThatStandForTooManyValuesAreAnError) {
  std::string text = "l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string above = "*l" + std::to_string(i - 1);
    const std::string name = "l" + std::to_string(i);
    text += name + ": &" + name + " [" + above;
    for (int times = 1; times < 10; ++times) {
      text += ", " + above;
    }
    text += "]\n";
  }
  const auto document = LoadDocument(text, "w.yaml", {});
  EXPECT_EQ(document.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(document.status()), HasSubstr("w.yaml:"));
  EXPECT_THAT(Message(document.status()), HasSubstr("100000 values"));
}

TEST(SetTest, ReplacesAddsAndGoesIntoLists) {
  const auto document = LoadDocument(
      "log: {level: info}\noutboxes:\n  - table: a.b\n", "w.yaml",
      {"log.level=debug", "http.listen=:1", "outboxes.0.table=c.d", "outboxes.1.table=e.f"});
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ((*document)["log"]["level"].Scalar(), "debug");
  EXPECT_EQ((*document)["http"]["listen"].Scalar(), ":1");
  ASSERT_EQ((*document)["outboxes"].size(), 2u);
  EXPECT_EQ((*document)["outboxes"][0]["table"].Scalar(), "c.d");
  EXPECT_EQ((*document)["outboxes"][1]["table"].Scalar(), "e.f");
}

TEST(SetTest, LaterOneWinsAndValueMayHoldAnything) {
  const ScopedEnv host("WALPOST_TEST_HOST", "db");
  const auto document =
      LoadDocument("a: {b: c}\n", "w.yaml",
                   {"a.b=1", "a.b=host=${WALPOST_TEST_HOST} dbname=x", "n=[p, q]", "e="});
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ((*document)["a"]["b"].Scalar(), "host=db dbname=x");
  EXPECT_EQ((*document)["n"].size(), 2u);
  EXPECT_TRUE((*document)["e"].IsNull());
}

TEST(SetTest, OverridesAVariableThatIsNotSet) {
  const ScopedEnv gone("WALPOST_TEST_GONE", std::nullopt);
  EXPECT_TRUE(LoadDocument("a: ${WALPOST_TEST_GONE}\n", "w.yaml", {"a=b"}).ok());
}

TEST(SetTest, UnusableOneIsNamed) {
  for (const std::string& set :
       {std::string("log.level"), std::string("=x"), std::string("log.level.deep=x"),
        std::string("list.word=x"), std::string("list.5=x"), std::string("log=[1"),
        std::string("list=&x [*x]")}) {
    const auto document = LoadDocument("log: {level: info}\nlist: [a]\n", "w.yaml", {set});
    ASSERT_EQ(document.status().code(), absl::StatusCode::kInvalidArgument) << set;
    EXPECT_THAT(Message(document.status()), HasSubstr("--set '" + set.substr(0, set.find('='))));
  }
}

TEST(SetTest, ValueIsNotShownInProblems) {
  for (const std::string set : {"log.level.deep=hunter2", "list.5=hunter2", "log=[hunter2"}) {
    const auto document = LoadDocument("log: {level: info}\nlist: [a]\n", "w.yaml", {set});
    EXPECT_THAT(Message(document.status()), Not(HasSubstr("hunter2")));
  }
}

// The file has nothing at 1:1 that could be fixed.
TEST(SetTest, ItsValueIsNotSaidToStandInTheFile) {
  const ScopedEnv gone("WALPOST_TEST_GONE", std::nullopt);
  const auto document = LoadDocument("a: b\n", "w.yaml", {"c.d=[\"${WALPOST_TEST_GONE}\"]"});
  EXPECT_THAT(Message(document.status()), HasSubstr("--set: ${WALPOST_TEST_GONE}"));
  EXPECT_THAT(Message(document.status()), Not(HasSubstr("w.yaml")));
}

}  // namespace
}  // namespace walpost::config
