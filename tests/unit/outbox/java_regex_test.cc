// Regular expressions of Java: matched as there, and rejected where PCRE2 would read them
// otherwise.
#include "outbox/java_regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "outbox/topic_rules.h"

namespace walpost::outbox {
namespace {

using ::testing::HasSubstr;

std::string Replaced(const std::string& regex, const std::string& replacement,
                     const std::string& text) {
  const absl::StatusOr<JavaRegex> made = JavaRegex::Make(regex, replacement);
  EXPECT_TRUE(made.ok()) << made.status();
  std::string result;
  const absl::Status status = made.ok() ? made->Replace(text, &result) : made.status();
  EXPECT_TRUE(status.ok()) << status;
  return result;
}

std::string Rejected(const std::string& regex, const std::string& replacement = "") {
  const absl::StatusOr<JavaRegex> made = JavaRegex::Make(regex, replacement);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << regex;
  return std::string(made.status().message());
}

TEST(JavaRegexTest, DefaultsOfTheEventRouterPutThePrefixBeforeTheValue) {
  EXPECT_EQ(Replaced("(?<routedByValue>.*)", "outbox.event.${routedByValue}", "order"),
            "outbox.event.order");
  EXPECT_EQ(Replaced("(?<routedByValue>.*)", "outbox.event.${routedByValue}", ""), "outbox.event.");
}

TEST(JavaRegexTest, TextThatDoesNotMatchAsAWholeStaysAsItIs) {
  EXPECT_EQ(Replaced("[a-z]+", "x", "order1"), "order1");
  EXPECT_EQ(Replaced("a|b", "x", "ab"), "ab");
}

// matches() looks at the whole text, replaceFirst() then at the first match.
TEST(JavaRegexTest, FirstMatchIsReplacedAlthoughItIsShorter) {
  EXPECT_EQ(Replaced("a|ab", "x", "ab"), "xb");
}

TEST(JavaRegexTest, ReplacementHasGroupsAndEscapes) {
  EXPECT_EQ(Replaced("(a)(b)?", "$1-$2-\\$\\\\\\x", "a"), "a--$\\x");
  EXPECT_EQ(Replaced("(a)", "$11", "a"), "a1");  // there is no group 11
  EXPECT_EQ(Replaced("(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)", "$11", "abcdefghijk"), "k");
  EXPECT_EQ(Replaced("(?<one>a).*", "$0.${one}", "ab"), "ab.a");
}

TEST(JavaRegexTest, ReplacementThatJavaRejectsIsRejected) {
  EXPECT_THAT(Rejected("a", "$1"), HasSubstr("no group 1"));
  EXPECT_THAT(Rejected("a", "${x}"), HasSubstr("no group named 'x'"));
  EXPECT_THAT(Rejected("a", "${x"), HasSubstr("no group named"));
  EXPECT_THAT(Rejected("a", "a$"), HasSubstr("'$'"));
  EXPECT_THAT(Rejected("a", "$x"), HasSubstr("'$'"));
  EXPECT_THAT(Rejected("a", "\\"), HasSubstr("lone backslash"));
}

TEST(JavaRegexTest, ConstructsThatJavaReadsInTheSameWayAreTaken) {
  for (const char* regex :
       {"a*+b++c?+d{2,3}+", "(?i)a(?-i)b(?i:c)", "(?>a)(?=b)(?!c)(?<=d)(?<!e)", "\\Qa[&&\\E",
        "[a&b]", "[ab&]", "[a\\[\\]&^-]", "[^\\d\\s\\h]", "\\x41\\x{1F600}", "\\x09\\xaf\\xAF\\xfA",
        "\\p{Lu}\\pL\\P{N}", "(a)\\1", "(?<n>a)\\k<n>", "\\.\\{\\}$^", "a{2}b{2,}",
        "\\A\\G\\z\\Z\\R", "(?s:.)(?m)^"}) {
    EXPECT_EQ(ForeignToJava(regex), "") << regex;
    EXPECT_TRUE(JavaRegex::Make(regex, "").ok()) << regex;
  }
}

TEST(JavaRegexTest, ConstructsThatJavaReadsDifferentlyAreRejectedByName) {
  const std::pair<const char*, const char*> foreign[] = {
      {"[a-z&&[^b]]", "intersection &&"},
      {"[a[bc]]", "union"},
      {"[[:alpha:]]", "union"},
      {"[]a]", "first character of a class"},
      {"\\p{javaLowerCase}", "\\p{javaLowerCase}"},
      {"\\p{Alpha}", "\\p{Alpha}"},
      {"\\p{IsLatin}", "\\p{IsLatin}"},
      {"\\bword", "\\b"},
      {"[\\b]", "\\b"},
      {"[\\A]", "\\A"},
      {"[\\Z]", "\\Z"},
      {"[\\z]", "\\z"},
      {"\\cA", "\\c"},
      {"\\0101", "\\0"},
      {"\\N", "\\N"},
      {"\\u0041", "\\u"},
      {"\\Kx", "\\K"},
      {"\\g{1}", "\\g"},
      {"\\x4", "\\x"},
      {"\\x/4", "\\x"},
      {"\\x4:", "\\x"},
      {"\\x@4", "\\x"},
      {"\\x4G", "\\x"},
      {"\\x`4", "\\x"},
      {"\\x4g", "\\x"},
      {"(?d)a", "(?d"},
      {"(?u)a", "(?u"},
      {"(?U)a", "(?U"},
      {"(?x) a", "(?x"},
      {"(?P<n>a)", "(?P"},
      {"(?|a)", "(?|"},
      {"(?R)", "(?R"},
      {"(?1)", "(?1"},
      {"(?(1)a)", "(?("},
      {"(?#x)", "(?#"},
      {"(*UTF)a", "(*"},
      {"(?<a_b>x)", "group's name"},
      {"(?'n'a)", "(?'"},
      {"a{,3}", "no quantifier"},
      {"a{", "no quantifier"},
      {"a{2,", "no quantifier"},
      {"a{2;3}", "no quantifier"},
      {"{x}", "no quantifier"},
      {"(a)\\11", "several digits"},
      {"(a)\\91", "several digits"},
      {"\\k{n}", "\\k"},
      {"a\\", "lone backslash"}};
  for (const auto& [regex, name] : foreign) {
    EXPECT_THAT(ForeignToJava(regex), HasSubstr(name)) << regex;
    EXPECT_THAT(Rejected(regex), HasSubstr("which Java reads differently")) << regex;
  }
}

TEST(JavaRegexTest, ExpressionThatIsNoneSaysWhere) {
  EXPECT_THAT(Rejected("(a"), HasSubstr("at character 3"));
  EXPECT_THAT(Rejected("a**"), HasSubstr("not understood"));
  EXPECT_THAT(Rejected("(?<=a+)b"), HasSubstr("not understood"));
}

// Each further 'a' nearly doubles what is tried; PCRE2's own limit would let this one through.
TEST(JavaRegexTest, CatastrophicExpressionEndsWithAnError) {
  const absl::StatusOr<JavaRegex> made = JavaRegex::Make("(a|aa)+[bc]", "");
  ASSERT_TRUE(made.ok());
  std::string result;
  const absl::Status status = made->Replace(std::string(32, 'a') + "d", &result);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("match limit exceeded"));
}

// PCRE2's machine code has a stack of its own, of a fixed size, and where memory may not be
// executed there is no machine code: what is matched must not depend on it.
TEST(JavaRegexTest, GroupRepeatedForEachLetterIsMatched) {
  EXPECT_EQ(Replaced("([a-z]+)(?:\\.(([a-z])|([0-9]))*)?", "$1", "order." + std::string(700, 'x')),
            "order");
}

// Machine code counts its steps in another way, and finds here that nothing matches.
TEST(JavaRegexTest, TooManyStepsAreAnErrorAndNotNoMatch) {
  std::string result;
  const absl::Status status =
      JavaRegex::Make("(a|aa)+[bc]", "")->Replace(std::string(21, 'a') + "d", &result);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

// A step may look at all of it.
TEST(JavaRegexTest, LongTextIsAnError) {
  EXPECT_EQ(Replaced(".*", "t", std::string(1'000, 'x')), "t");
  std::string result;
  EXPECT_EQ(JavaRegex::Make(".*", "t")->Replace(std::string(1'001, 'x'), &result).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(JavaRegexTest, TextThatIsNotUtf8IsAnError) {
  const absl::StatusOr<JavaRegex> made = JavaRegex::Make(".*", "x");
  std::string result;
  EXPECT_EQ(made->Replace("\xff", &result).code(), absl::StatusCode::kInvalidArgument);
}

TEST(TopicRouterTest, ValueWithALineBreakIsNoTopic) {
  absl::StatusOr<TopicRouter> router = TopicRouter::Make(".*", "x");
  for (const char* value : {"a\n", "a\rb", "\v", "\f", "a\u0085", "\u2028", "\u2029"}) {
    EXPECT_EQ(router->Route(value).status().code(), absl::StatusCode::kInvalidArgument) << value;
  }
  EXPECT_EQ(*router->Route("a b"), "x");
}

TEST(TopicRouterTest, NumberOfRememberedValuesIsBounded) {
  absl::StatusOr<TopicRouter> router = TopicRouter::Make("(.*)", "t.$1");
  for (std::size_t i = 0; i < 2 * TopicRouter::kRememberedMax + 1; ++i) {
    const std::string value = std::to_string(i);
    ASSERT_EQ(*router->Route(value), "t." + value);
    ASSERT_LE(router->remembered(), TopicRouter::kRememberedMax);
  }
  EXPECT_EQ(*router->Route("0"), "t.0");
}

// Who writes events chooses the values, and a payload's size is no bound for a name.
TEST(TopicRouterTest, BytesOfRememberedValuesAreBounded) {
  absl::StatusOr<TopicRouter> router = TopicRouter::Make("(.*)", "$1");
  for (std::size_t i = 0; i < TopicRouter::kRememberedMax; ++i) {
    const std::string value = std::to_string(i) + std::string(230, 'x');
    ASSERT_EQ(*router->Route(value), value);
    ASSERT_LE(router->remembered_bytes(), TopicRouter::kRememberedBytesMax);
  }
  EXPECT_GT(router->remembered(), 0U);
}

TEST(TopicRouterTest, OnlyLegalTopicsAreRemembered) {
  absl::StatusOr<TopicRouter> same = TopicRouter::Make("(.*)", "$1");
  for (const std::string& value : {std::string(250, 'x'), std::string("a b"), std::string("")}) {
    EXPECT_EQ(*same->Route(value), value);
  }
  EXPECT_EQ(same->remembered(), 0U);
}

}  // namespace
}  // namespace walpost::outbox
