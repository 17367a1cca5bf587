#include "observe/log.h"

#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"

namespace walpost::observe {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// What `write` puts on stderr in the given format.
template <typename Write>
std::string Logged(Severity minimum, LogFormat format, Write write) {
  InitLogging(minimum, format);
  ::testing::internal::CaptureStderr();
  write();
  return ::testing::internal::GetCapturedStderr();
}

std::string Text(Severity severity, const std::string& message, std::vector<LogField> fields) {
  return Logged(Severity::kDebug, LogFormat::kText,
                [&] { Log(severity, LogEvent::kSourceError, message, std::move(fields)); });
}

nlohmann::json Json(Severity severity, const std::string& message, std::vector<LogField> fields) {
  const std::string line = Logged(Severity::kDebug, LogFormat::kJson, [&] {
    Log(severity, LogEvent::kSourceError, message, std::move(fields));
  });
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  return nlohmann::json::parse(line);
}

TEST(TextLogTest, LineIsTimeLevelEventMessageFields) {
  EXPECT_THAT(Text(Severity::kWarning, "db:5432 lost", {{"lsn", "0/1A"}, {"retry", "0.8 s"}}),
              MatchesRegex("[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+\\.[0-9]+Z warning "
                           "source_error: db:5432 lost lsn=0/1A retry=\"0.8 s\"\n"));
}

TEST(TextLogTest, LevelsLineUp) {
  const auto level = [](Severity severity) { return Text(severity, "m", {}).substr(28, 8); };
  EXPECT_EQ(level(Severity::kDebug), "debug   ");
  EXPECT_EQ(level(Severity::kInfo), "info    ");
  EXPECT_EQ(level(Severity::kWarning), "warning ");
  EXPECT_EQ(level(Severity::kError), "error   ");
}

TEST(TextLogTest, ValuesAreQuotedOnlyWhereALineWouldNotSplit) {
  const std::string line = Text(Severity::kInfo, "m",
                                {{"plain", "a-b/c:1"},
                                 {"empty", ""},
                                 {"quote", "a\"b"},
                                 {"equals", "a=b"},
                                 {"back", "a\\b"}});
  EXPECT_THAT(line, EndsWith("m plain=a-b/c:1 empty=\"\" quote=\"a\\\"b\" equals=\"a=b\" "
                             "back=\"a\\\\b\"\n"));
}

// Whoever writes events chooses their ids and keys.
TEST(TextLogTest, WhatIsQuotedIsCut) {
  const std::string endless(1'000'000, 'x');
  const std::string line = Text(Severity::kInfo, "event " + endless + " is skipped",
                                {{"event_id", endless}, {"a", "b"}});
  EXPECT_LT(line.size(), 6'000U);
  EXPECT_THAT(line, HasSubstr("x is skipped event_id="));
  EXPECT_THAT(line, EndsWith(" a=b\n"));
  const nlohmann::json object = Json(Severity::kInfo, endless, {{"event_id", endless}});
  EXPECT_LT(object.dump().size(), 6'000U);
  EXPECT_THAT(object["event_id"].get<std::string>(), HasSubstr("bytes left out"));
}

// U+009B begins a command as ESC [ does.
TEST(TextLogTest, NothingInALineIsObeyedByATerminal) {
  const std::string line =
      Text(Severity::kInfo, "a\u009b2Jb\xff", {{"f", "\u009b2J"}, {"g", "Ärger"}});
  EXPECT_THAT(line, Not(HasSubstr("\u009b")));
  EXPECT_THAT(line, Not(HasSubstr("\xff")));
  EXPECT_THAT(line, EndsWith(" g=Ärger\n"));
}

// A name from the database must neither start a line of its own nor move the terminal's cursor.
TEST(TextLogTest, ControlCharactersCannotForgeALine) {
  const std::string line =
      Text(Severity::kInfo, "a\nb\rc\x1b[2Jd\x7f", {{"f", "x\r\ny"}, {"g", "p\x1b[0m"}});
  EXPECT_EQ(std::count_if(line.begin(), line.end(),
                          [](unsigned char c) { return c < 0x20 || c == 0x7f; }),
            1)
      << line;
  EXPECT_THAT(line, HasSubstr("a b c [2Jd "));
  EXPECT_THAT(line, HasSubstr("f=\"x\\r\\ny\""));
  EXPECT_THAT(line, EndsWith("g=\"p\\u001b[0m\"\n"));
}

TEST(TextLogTest, LettersBeyondAsciiStay) {
  EXPECT_THAT(Text(Severity::kInfo, "größer", {{"name", "äöü"}}), EndsWith("größer name=äöü\n"));
}

TEST(JsonLogTest, LineIsOneObjectWithStableNames) {
  const nlohmann::json line = Json(Severity::kWarning, "db:5432 lost", {{"lsn", "0/1A"}});
  EXPECT_THAT(line.at("ts").get<std::string>(), MatchesRegex("[0-9]+-[0-9]+-[0-9]+T.*Z"));
  EXPECT_EQ(line.at("level"), "warning");
  EXPECT_EQ(line.at("event"), "source_error");
  EXPECT_EQ(line.at("msg"), "db:5432 lost");
  EXPECT_EQ(line.at("lsn"), "0/1A");
  EXPECT_EQ(line.size(), 5u);
}

TEST(JsonLogTest, EveryLevelHasItsName) {
  EXPECT_EQ(Json(Severity::kDebug, "", {}).at("level"), "debug");
  EXPECT_EQ(Json(Severity::kInfo, "", {}).at("level"), "info");
  EXPECT_EQ(Json(Severity::kError, "", {}).at("level"), "error");
}

TEST(JsonLogTest, AnyTextComesBackAsItWas) {
  const std::string text = "a\"b\\c\nd\r\te\x01 größer";
  const nlohmann::json line = Json(Severity::kInfo, text, {{"field", text}});
  EXPECT_EQ(line.at("msg"), text);
  EXPECT_EQ(line.at("field"), text);
}

TEST(JsonLogTest, BytesThatAreNotUtf8DoNotBreakTheLine) {
  const nlohmann::json line = Json(Severity::kInfo,
                                   "a\xff"
                                   "b",
                                   {{"field", "\xc3"}});
  EXPECT_EQ(line.at("msg"),
            "a\xef\xbf\xbd"
            "b");
}

TEST(LogLevelTest, LowerSeveritiesAreNotWritten) {
  const std::string lines = Logged(Severity::kWarning, LogFormat::kText, [] {
    Log(Severity::kDebug, LogEvent::kStarted, "one");
    Log(Severity::kInfo, LogEvent::kStarted, "two");
    Log(Severity::kWarning, LogEvent::kStarted, "three");
    Log(Severity::kError, LogEvent::kStarted, "four");
  });
  EXPECT_THAT(lines, Not(HasSubstr("one")));
  EXPECT_THAT(lines, Not(HasSubstr("two")));
  EXPECT_THAT(lines, HasSubstr("three"));
  EXPECT_THAT(lines, HasSubstr("four"));
}

TEST(LogLevelTest, LevelCanBeChangedWhileRunning) {
  const std::string lines = Logged(Severity::kError, LogFormat::kText, [] {
    Log(Severity::kDebug, LogEvent::kStarted, "before");
    SetLogLevel(Severity::kDebug);
    Log(Severity::kDebug, LogEvent::kStarted, "after");
  });
  EXPECT_THAT(lines, Not(HasSubstr("before")));
  EXPECT_THAT(lines, HasSubstr("after"));
}

TEST(RepeatedLogTest, RepeatIsLeftOutAndAnotherCauseIsNot) {
  const std::string lines = Logged(Severity::kInfo, LogFormat::kText, [] {
    for (int ms = 1; ms <= RepeatLimiter::kAtOnce + 1; ++ms) {
      LogRepeated(Severity::kWarning, LogEvent::kKafkaLog, "down",
                  absl::StrFormat("down (after %d ms)", ms), {{"f", "v"}});
    }
    LogRepeated(Severity::kWarning, LogEvent::kKafkaLog, "up", "up");
  });
  EXPECT_THAT(lines, AllOf(HasSubstr("down (after 1 ms) f=v\n"), HasSubstr("down (after 3 ms)")));
  EXPECT_THAT(lines, Not(HasSubstr("after 4 ms")));
  EXPECT_THAT(lines, HasSubstr("kafka_log: up\n"));
}

// What is not written takes nobody's turn.
TEST(RepeatedLogTest, LineBelowTheLevelIsNoRepeat) {
  const std::string lines = Logged(Severity::kInfo, LogFormat::kText, [] {
    LogRepeated(Severity::kDebug, LogEvent::kKafkaError, "timed out", "first");
    SetLogLevel(Severity::kDebug);
    LogRepeated(Severity::kDebug, LogEvent::kKafkaError, "timed out", "second");
  });
  EXPECT_THAT(lines, HasSubstr("second"));
}

TEST(GlogTest, LinesOfLibrariesHaveTheSameShape) {
  const std::string line =
      Logged(Severity::kInfo, LogFormat::kJson, [] { LOG(WARNING) << "something \"odd\""; });
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  const nlohmann::json object = nlohmann::json::parse(line);
  EXPECT_EQ(object.at("level"), "warning");
  EXPECT_EQ(object.at("event"), "library");
  EXPECT_EQ(object.at("msg"), "something \"odd\"");
  EXPECT_THAT(object.at("at").get<std::string>(), MatchesRegex(".*log_test\\.cc:[0-9]+"));
}

TEST(GlogDeathTest, FailedCheckIsAFatalEvent) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        InitLogging(Severity::kInfo, LogFormat::kText);
        CHECK_EQ(1, 2) << "impossible";
      },
      "error   fatal: Check failed: 1 == 2 .* impossible");
}

TEST(LogThreadsTest, LinesOfSeveralThreadsDoNotMix) {
  constexpr int kThreads = 4;
  constexpr int kLines = 100;
  const std::string body(300, 'x');
  const std::string lines = Logged(Severity::kInfo, LogFormat::kJson, [&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < kLines; ++j) {
          Log(Severity::kInfo, LogEvent::kStarted, body);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  });
  int count = 0;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line); ++count) {
    ASSERT_EQ(nlohmann::json::parse(line).at("msg"), body);
  }
  EXPECT_EQ(count, kThreads * kLines);
}

// Else the process would end without a word of its own.
// A sanitizer's allocator says it in its own words.
TEST(LogDeathTest, MemoryThatRunsOutIsLoggedBeforeTheProcessEnds) {
  InitLogging(Severity::kInfo, LogFormat::kText);
  volatile std::size_t too_much = std::size_t{1} << 62;
  EXPECT_DEATH(
      {
        const std::vector<char> memory(too_much);
        std::exit(memory.empty() ? 0 : 1);
      },
      "error   fatal: out of memory|requested allocation size");
}

using base::LogEvent;
using std::chrono::seconds;

class RepeatLimiterTest : public ::testing::Test {
 protected:
  std::optional<std::uint64_t> Take(const std::string& cause,
                                    LogEvent event = LogEvent::kSourceError) {
    return limiter_.Take(event, cause, now_);
  }

  // Until one is left out.
  int TakeAll(const std::string& cause) {
    int taken = 0;
    while (Take(cause)) {
      ++taken;
    }
    return taken;
  }

  RepeatLimiter limiter_;
  base::MonotonicTime now_{std::chrono::hours(1)};
};

TEST_F(RepeatLimiterTest, OneThatGoesOnIsWrittenEachIntervalAndTheOthersAreCounted) {
  EXPECT_EQ(TakeAll("rejected"), RepeatLimiter::kAtOnce);
  for (int second = 1; second < RepeatLimiter::kEvery.count(); ++second) {
    now_ += seconds(1);
    EXPECT_EQ(Take("rejected"), std::nullopt) << second;
  }
  now_ += seconds(1);
  EXPECT_EQ(Take("rejected"), 10U);
  now_ += seconds(1);
  EXPECT_EQ(Take("rejected"), std::nullopt) << "another interval";
  now_ += RepeatLimiter::kEvery;
  EXPECT_EQ(Take("rejected"), 1U) << "each is counted once";
}

// Lost, back, and lost again for the same cause.
TEST_F(RepeatLimiterTest, TwoMoreOutagesThatFollowAtOnceAreWritten) {
  EXPECT_EQ(Take("rejected"), 0U);
  now_ += seconds(1);
  EXPECT_EQ(Take("rejected"), 0U);
  now_ += seconds(1);
  EXPECT_EQ(Take("rejected"), 0U);
  now_ += seconds(1);
  EXPECT_EQ(Take("rejected"), std::nullopt) << "it flaps";
}

TEST_F(RepeatLimiterTest, AnotherCauseOrAnotherEventIsNews) {
  EXPECT_EQ(TakeAll("rejected"), RepeatLimiter::kAtOnce);
  EXPECT_EQ(Take("timed out"), 0U);
  EXPECT_EQ(Take("rejected", LogEvent::kKafkaLog), 0U);
  EXPECT_EQ(Take("rejected"), std::nullopt);
}

TEST_F(RepeatLimiterTest, AfterAQuietTimeItBeginsAnew) {
  EXPECT_EQ(TakeAll("rejected"), RepeatLimiter::kAtOnce);
  now_ += RepeatLimiter::kAtOnce * RepeatLimiter::kEvery;
  EXPECT_EQ(Take("rejected"), 1U);
  EXPECT_EQ(Take("rejected"), 0U);
  EXPECT_EQ(Take("rejected"), 0U);
  EXPECT_EQ(Take("rejected"), std::nullopt);
}

TEST_F(RepeatLimiterTest, OfVeryManyCausesTheOldestIsForgottenAndWrittenAgain) {
  for (std::size_t cause = 0; cause <= RepeatLimiter::kCausesMax; ++cause) {
    EXPECT_EQ(Take(std::to_string(cause)), 0U);
    now_ += std::chrono::milliseconds(1);
  }
  EXPECT_EQ(TakeAll("0"), RepeatLimiter::kAtOnce);
  EXPECT_EQ(TakeAll(std::to_string(RepeatLimiter::kCausesMax)), RepeatLimiter::kAtOnce - 1);
}

}  // namespace
}  // namespace walpost::observe
