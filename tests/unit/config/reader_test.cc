#include "config/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "config/document.h"

namespace walpost::config {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MapReaderTest : public ::testing::Test {
 protected:
  MapReader Reader(const std::string& yaml) {
    const auto document = LoadDocument(yaml, "w.yaml", {});
    EXPECT_TRUE(document.ok()) << document.status();
    return MapReader(*document, "", &problems_);
  }

  Problems problems_{"w.yaml", {}};
};

TEST_F(MapReaderTest, AbsentKeyLeavesTheDefault) {
  MapReader reader = Reader("other: 1\n");
  std::string text = "default";
  milliseconds duration(5);
  std::size_t size = 6;
  std::vector<std::string> names = {"seven"};
  EXPECT_FALSE(reader.Text("a", &text));
  EXPECT_FALSE(reader.Duration("a", &duration));
  EXPECT_FALSE(reader.Size("a", &size));
  EXPECT_FALSE(reader.Names("a", &names));
  EXPECT_EQ(reader.Choice("a", {"x", "y"}, 1), 1u);
  EXPECT_EQ(text, "default");
  EXPECT_EQ(duration, milliseconds(5));
  EXPECT_EQ(size, 6u);
  EXPECT_THAT(names, ElementsAre("seven"));
  EXPECT_THAT(problems_.lines, IsEmpty());
}

TEST_F(MapReaderTest, ValuesAreRead) {
  MapReader reader = Reader("t: x\nd: 2s\ns: 1KiB\none: a\nmany: [a, b]\nnone: []\nc: y\n");
  std::string text;
  milliseconds duration(0);
  std::size_t size = 0;
  std::vector<std::string> one;
  std::vector<std::string> many;
  std::vector<std::string> none = {"default"};
  EXPECT_TRUE(reader.Text("t", &text));
  EXPECT_TRUE(reader.Duration("d", &duration));
  EXPECT_TRUE(reader.Size("s", &size));
  EXPECT_TRUE(reader.Names("one", &one));
  EXPECT_TRUE(reader.Names("many", &many));
  EXPECT_TRUE(reader.Names("none", &none));
  EXPECT_EQ(reader.Choice("c", {"x", "y"}, 0), 1u);
  EXPECT_EQ(text, "x");
  EXPECT_EQ(duration, milliseconds(2'000));
  EXPECT_EQ(size, 1'024u);
  EXPECT_THAT(one, ElementsAre("a"));
  EXPECT_THAT(many, ElementsAre("a", "b"));
  EXPECT_THAT(none, IsEmpty());
  reader.Finish();
  EXPECT_THAT(problems_.lines, IsEmpty());
}

TEST_F(MapReaderTest, NullEmptiesTextAndNames) {
  MapReader reader = Reader("t:\nn: ~\n");
  std::string text = "default";
  std::vector<std::string> names = {"default"};
  EXPECT_TRUE(reader.Text("t", &text));
  EXPECT_TRUE(reader.Names("n", &names));
  EXPECT_EQ(text, "");
  EXPECT_THAT(names, IsEmpty());
}

TEST_F(MapReaderTest, WrongShapeIsReportedWithItsPlaceAndLeavesTheDefault) {
  MapReader reader = Reader("t: [x]\nn: {a: b}\nl: [[a]]\nm: text\n");
  std::string text = "default";
  std::vector<std::string> names;
  EXPECT_FALSE(reader.Text("t", &text));
  EXPECT_FALSE(reader.Names("n", &names));
  EXPECT_FALSE(reader.Names("l", &names));
  reader.Map("m").Finish();
  EXPECT_EQ(text, "default");
  EXPECT_THAT(problems_.lines, ElementsAre("w.yaml:1:4: t: expected one value",
                                           "w.yaml:2:4: n: expected a name or a list of names",
                                           "w.yaml:3:5: l: expected a list of names",
                                           "w.yaml:4:4: m: expected a map of keys"));
}

TEST_F(MapReaderTest, UnusableValueIsReportedWithItsPlace) {
  MapReader reader = Reader("a:\n  d: soon\n  s: big\n").Map("a");
  milliseconds duration(5);
  std::size_t size = 6;
  EXPECT_FALSE(reader.Duration("d", &duration));
  EXPECT_FALSE(reader.Size("s", &size));
  EXPECT_EQ(duration, milliseconds(5));
  EXPECT_EQ(size, 6u);
  EXPECT_THAT(problems_.lines, ElementsAre(HasSubstr("w.yaml:2:6: a.d: 'soon' is not a duration"),
                                           HasSubstr("w.yaml:3:6: a.s: 'big' is not a size")));
}

TEST_F(MapReaderTest, UnknownChoiceNamesAllAndTheNearest) {
  MapReader reader = Reader("level: warnin\n");
  EXPECT_EQ(reader.Choice("level", {"info", "warning"}, 0), 0u);
  EXPECT_THAT(problems_.lines, ElementsAre("w.yaml:1:8: level: 'warnin' is none of info, warning; "
                                           "did you mean 'warning'?"));
}

TEST_F(MapReaderTest, ValueOutsideItsLimitsIsReportedWithThem) {
  MapReader reader = Reader("a: 1s\nb: 3s\nc: 5s\nd: 3KiB\ne: 0\nf: 10000000\ng: 2s\n");
  milliseconds duration(0);
  std::size_t size = 0;
  std::size_t count = 7;
  reader.Duration("a", &duration, milliseconds(2'000));
  reader.Duration("b", &duration, {}, milliseconds(2'000));
  reader.Duration("c", &duration, milliseconds(1'000), milliseconds(4'000));
  reader.Size("d", &size, 1'024, 2'048);
  EXPECT_FALSE(reader.Count("e", &count));
  EXPECT_FALSE(reader.Count("f", &count));
  reader.Duration("g", &duration, milliseconds(2'000), milliseconds(2'000));
  EXPECT_EQ(count, 7u);
  EXPECT_THAT(problems_.lines,
              ElementsAre("w.yaml:1:4: a: must be at least 2s", "w.yaml:2:4: b: must be 2s at most",
                          "w.yaml:3:4: c: must be between 1s and 4s",
                          "w.yaml:4:4: d: must be between 1KiB and 2KiB",
                          "w.yaml:5:4: e: must be a whole number from 1 to 9999999",
                          "w.yaml:6:4: f: must be a whole number from 1 to 9999999"));
}

TEST_F(MapReaderTest, WhatIsAskedForIsNotedWithTheValueThatItHasThen) {
  const auto document = LoadDocument("m: {t: x, d: 2s}\n", "w.yaml", {});
  std::vector<Key> keys;
  MapReader root(*document, "", &problems_, &keys);
  MapReader reader = root.Map("m");
  std::string text;
  std::string empty;
  milliseconds duration(0);
  std::size_t size = 2'048;
  std::size_t count = 3;
  std::vector<std::string> names = {"a", "b"};
  bool second = true;
  reader.Text("t", &text);
  reader.Text("e", &empty);
  reader.Text("given", &empty, Key::Form::kGiven);
  reader.Duration("d", &duration);
  reader.Size("s", &size);
  reader.Count("n", &count);
  reader.Names("l", &names);
  reader.Choice("c", {"no", "yes"}, &second);
  reader.ShowOnlyIf(false);
  reader.Text("hidden", &text);
  std::vector<std::string> noted;
  for (const Key& key : keys) {
    noted.push_back(key.path + "=" + absl::StrJoin(key.words, ","));
  }
  EXPECT_THAT(noted,
              ElementsAre("m.t=x", "m.e=", "m.d=2s", "m.s=2KiB", "m.n=3", "m.l=a,b", "m.c=yes"));
  EXPECT_THAT(problems_.lines, IsEmpty());
}

TEST_F(MapReaderTest, UnknownKeysAreReportedEachWithTheOneThatWasMeant) {
  MapReader root = Reader("source:\n  slott: x\n  zebra: y\n");
  MapReader reader = root.Map("source");
  std::string text;
  reader.Text("slot", &text);
  reader.Text("publication", &text);
  reader.Finish();
  EXPECT_THAT(problems_.lines,
              ElementsAre("w.yaml:2:3: source.slott: unknown key; did you mean 'slot'?",
                          "w.yaml:3:3: source.zebra: unknown key"));
}

// yaml-cpp takes the first, most other readers the last.
TEST_F(MapReaderTest, KeyThatStandsTwiceIsAProblem) {
  MapReader reader = Reader("slot: a\nslot: b\n");
  std::string text;
  reader.Text("slot", &text);
  reader.Finish();
  EXPECT_THAT(problems_.lines, ElementsAre("w.yaml:2:1: slot: stands here a second time"));
}

TEST_F(MapReaderTest, AbsentMapReadsAsEmpty) {
  MapReader root = Reader("a:\n");
  for (const char* key : {"a", "b"}) {
    MapReader reader = root.Map(key);
    std::string text = "default";
    EXPECT_FALSE(reader.Text("x", &text)) << key;
    reader.Problem("x", "is needed");
    reader.Finish();
  }
  EXPECT_THAT(problems_.lines, ElementsAre("w.yaml: a.x: is needed", "w.yaml: b.x: is needed"));
}

TEST(DidYouMeanTest, NearIsOfferedAndFarIsNot) {
  EXPECT_EQ(DidYouMean("sorce", {"sink", "source"}), "; did you mean 'source'?");
  EXPECT_EQ(DidYouMean("publicaiton", {"publication"}), "; did you mean 'publication'?");
  EXPECT_EQ(DidYouMean("in_flight_bytes", {"in_flight_bytes_max"}),
            "; did you mean 'in_flight_bytes_max'?");
  EXPECT_EQ(DidYouMean("kafka", {"source", "publication"}), "");
  EXPECT_EQ(DidYouMean("x", {}), "");
}

TEST(DurationTest, EveryUnitIsRead) {
  EXPECT_EQ(ParseDuration("250ms").value(), milliseconds(250));
  EXPECT_EQ(ParseDuration("25s").value(), milliseconds(25'000));
  EXPECT_EQ(ParseDuration("10min").value(), milliseconds(600'000));
  EXPECT_EQ(ParseDuration("2h").value(), milliseconds(7'200'000));
  EXPECT_EQ(ParseDuration("1d").value(), milliseconds(86'400'000));
  EXPECT_EQ(ParseDuration("0s").value(), milliseconds(0));
  EXPECT_EQ(ParseDuration("10 min").value(), milliseconds(600'000));
}

// A bare number would be seconds to one reader and milliseconds to the next.
TEST(DurationTest, AnythingElseIsRejectedWithWhatIsAccepted) {
  for (const char* text : {"", "s", "25", "-1s", "+1s", "1.5s", "1m", "1S", "1sec", "1s 2ms", " 1s",
                           "1s ", "1 s s", "0x10s", "ten"}) {
    const auto parsed = ParseDuration(text);
    ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(parsed.status().message()),
                HasSubstr("'" + std::string(text) + "' is not a duration"));
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("ms, s, min, h or d"));
  }
}

TEST(DurationTest, TooLargeToCountIsRejectedAndDoesNotWrap) {
  EXPECT_FALSE(ParseDuration("99999999999999999999ms").ok());
  EXPECT_FALSE(ParseDuration("9223372036854775807d").ok());
  EXPECT_FALSE(ParseDuration("18446744073709551615ms").ok());
}

TEST(DurationTest, ShownInTheLargestUnitThatIsExact) {
  EXPECT_EQ(FormatDuration(milliseconds(600'000)), "10min");
  EXPECT_EQ(FormatDuration(milliseconds(90'000)), "90s");
  EXPECT_EQ(FormatDuration(milliseconds(1'500)), "1500ms");
  EXPECT_EQ(FormatDuration(milliseconds(86'400'000)), "1d");
  EXPECT_EQ(FormatDuration(milliseconds(0)), "0ms");
}

TEST(SizeTest, EveryUnitIsRead) {
  EXPECT_EQ(ParseSize("512").value(), 512u);
  EXPECT_EQ(ParseSize("512B").value(), 512u);
  EXPECT_EQ(ParseSize("1KiB").value(), 1'024u);
  EXPECT_EQ(ParseSize("16MiB").value(), 16u * 1'024 * 1'024);
  EXPECT_EQ(ParseSize("2GiB").value(), 2'147'483'648u);
  EXPECT_EQ(ParseSize("1kB").value(), 1'000u);
  EXPECT_EQ(ParseSize("3MB").value(), 3'000'000u);
  EXPECT_EQ(ParseSize("1 GB").value(), 1'000'000'000u);
}

TEST(SizeTest, AnythingElseIsRejectedWithWhatIsAccepted) {
  for (const char* text : {"", "MiB", "-1", "1.5MiB", "16M", "16mib", "1TiB", "1 Ki B", "16MiBs"}) {
    const auto parsed = ParseSize(text);
    ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(parsed.status().message()),
                HasSubstr("'" + std::string(text) + "' is not a size"));
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("KiB, MiB or GiB"));
  }
}

TEST(SizeTest, TooLargeToCountIsRejectedAndDoesNotWrap) {
  EXPECT_FALSE(ParseSize("18446744073709551616").ok());
  EXPECT_FALSE(ParseSize("18446744073709551615").ok());
  EXPECT_FALSE(ParseSize("9999999999999GiB").ok());
}

TEST(UnitsTest, WhatIsShownReadsBackAsTheSame) {
  for (const std::uint64_t value :
       {0ULL, 1ULL, 999ULL, 1'000ULL, 1'024ULL, 1'536ULL, 65'536ULL, 1'000'000ULL, 1'024'000ULL,
        16'777'216ULL, 1'000'000'000ULL, 4'294'967'296ULL, 12'345'678'901ULL}) {
    EXPECT_EQ(ParseSize(FormatSize(value)).value(), value) << FormatSize(value);
    const milliseconds duration(static_cast<std::int64_t>(value));
    EXPECT_EQ(ParseDuration(FormatDuration(duration)).value(), duration)
        << FormatDuration(duration);
  }
}

}  // namespace
}  // namespace walpost::config
