#include "envelope/control_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/random_seed.h"
#include "walpost/v1/progress.pb.h"

namespace walpost::envelope {
namespace {

using base::Lsn;

TEST(PositionTest, TextHasTheDocumentedForm) {
  const Position position{7'311'123'456'789'012'345, 3, Lsn(0x16B374D848), 42};
  EXPECT_EQ(position.ToString(), "6576540c46ef5f79-00000003-00000016b374d848-0000002a");
  EXPECT_EQ(Position().ToString(), "0000000000000000-00000000-0000000000000000-00000000");
  const Position last{~std::uint64_t{0}, ~std::uint32_t{0}, Lsn(~std::uint64_t{0}),
                      ~std::uint32_t{0}};
  EXPECT_EQ(last.ToString(), "ffffffffffffffff-ffffffff-ffffffffffffffff-ffffffff");
}

TEST(PositionTest, FormatWritesExactlyItsSize) {
  std::string text(Position::kTextSize + 2, '#');
  Position{1, 2, Lsn(3), 4}.Format(text.data() + 1);
  EXPECT_EQ(text, "#0000000000000001-00000002-0000000000000003-00000004#");
}

Position RandomPosition(std::mt19937_64* random) {
  // Few values with many digits, so that positions often differ in one part only.
  const auto part = [random] { return ((*random)() % 3) << ((*random)() % 60); };
  return Position{part(), static_cast<std::uint32_t>(part()), Lsn(part()),
                  static_cast<std::uint32_t>(part())};
}

TEST(PositionTest, TextSortsInStreamOrderAndParsesBack) {
  std::mt19937_64 random(testing::RandomSeed());
  for (int i = 0; i < 20'000; ++i) {
    const Position one = RandomPosition(&random);
    const Position other = RandomPosition(&random);
    ASSERT_EQ(one < other, one.ToString() < other.ToString())
        << one.ToString() << " " << other.ToString();
    ASSERT_EQ(Position::Parse(one.ToString()).value(), one);
  }
}

TEST(PositionTest, ClusterThenTimelineThenCommitThenOrdinalDecide) {
  const std::vector<Position> ascending = {{1, 1, Lsn(1), 9},
                                           {1, 1, Lsn(2), 0},
                                           {1, 2, Lsn(1), 0},
                                           {1, 2, Lsn(1), 1},
                                           {2, 1, Lsn(1), 0}};
  EXPECT_TRUE(std::is_sorted(ascending.begin(), ascending.end()));
}

TEST(PositionTest, OtherTextIsInvalid) {
  const std::string good = "6576540c46ef5f79-00000003-00000016b374d848-0000002a";
  ASSERT_TRUE(Position::Parse(good).ok());
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char other : {'g', 'A', ' ', '+', '\0', good[i] == '-' ? '0' : '-'}) {
      std::string text = good;
      text[i] = other;
      EXPECT_EQ(Position::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
    }
    EXPECT_FALSE(Position::Parse(good.substr(0, i)).ok());
  }
  EXPECT_FALSE(Position::Parse(good + "0").ok());
}

TEST(ProgressTest, ReadsBackAsWritten) {
  base::Progress progress;
  progress.epoch = 4;
  progress.system_identifier = 0xfedc'ba98'7654'3210;
  progress.timeline = 3;
  progress.end_lsn = base::Lsn(0x16'b374'd848);
  progress.passed_at = base::WallTime(std::chrono::microseconds(1'700'000'000'123'455));
  progress.recorded_at = base::WallTime(std::chrono::microseconds(1'700'000'000'123'456));
  progress.publication_oid = 4'000'000'000;
  progress.publication_xmin = 4'100'000'000;
  progress.looked_lsn = base::Lsn(0x16'b374'0000);
  progress.looked_at = base::WallTime(std::chrono::microseconds(1'700'000'000'000'001));
  progress.tables = {{16'390, "outbox", "events"}, {16'400, "public", "Outbox", {16'402, 16'403}}};
  progress.tables[1].since = {base::Lsn(0x77),
                              base::WallTime(std::chrono::microseconds(1'700'000'000'000'002)), 3};
  progress.message_prefixes = {"shop", "billing"};
  progress.tables[1].first_xid = {base::FullXid{0x1'0000'0007}, 3, base::Lsn(0x99)};
  progress.prefixes_since = {
      {"shop",
       {base::Lsn(0x88), base::WallTime(std::chrono::microseconds(1'700'000'000'000'003)), 4}},
      {"billing",
       {base::Lsn(0x89), base::WallTime(std::chrono::microseconds(1'700'000'000'000'004)), 0}}};
  progress.dead_letters = 12;
  std::uint64_t lsn = 70;
  for (const std::int64_t origins : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1},
                                     std::numeric_limits<std::int64_t>::max()}) {
    progress.last_transactions.push_back({base::Lsn(++lsn), base::Xid{4'000'000'000},
                                          base::WallTime(std::chrono::microseconds(origins))});
  }
  const auto read = DecodeProgress(EncodeProgress(progress));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->dead_letters, 12U);
  EXPECT_EQ(read->last_transactions, progress.last_transactions);
  EXPECT_EQ(read->epoch, progress.epoch);
  EXPECT_EQ(read->system_identifier, progress.system_identifier);
  EXPECT_EQ(read->timeline, progress.timeline);
  EXPECT_EQ(read->end_lsn, progress.end_lsn);
  EXPECT_EQ(read->passed_at, progress.passed_at);
  EXPECT_EQ(read->recorded_at, progress.recorded_at);
  EXPECT_EQ(read->publication_oid, progress.publication_oid);
  ASSERT_EQ(read->tables.size(), 2U);
  EXPECT_EQ(read->tables[1].oid, 16'400U);
  EXPECT_EQ(read->tables[1].schema, "public");
  EXPECT_EQ(read->tables[1].name, "Outbox");
  EXPECT_EQ(read->tables[1].memberships, progress.tables[1].memberships);
  EXPECT_TRUE(read->tables[0].memberships.empty());
  EXPECT_EQ(read->publication_xmin, progress.publication_xmin);
  EXPECT_EQ(read->looked_lsn, progress.looked_lsn);
  EXPECT_EQ(read->looked_at, progress.looked_at);
  EXPECT_EQ(read->message_prefixes, progress.message_prefixes);
  EXPECT_EQ(read->tables[0].since, base::Since());
  EXPECT_EQ(read->tables[1].since, progress.tables[1].since);
  EXPECT_EQ(read->tables[0].first_xid, base::XidAt());
  EXPECT_EQ(read->tables[1].first_xid, progress.tables[1].first_xid);
  EXPECT_EQ(read->prefixes_since, progress.prefixes_since);
}

TEST(ProgressTest, WhatIsNoProgressIsRejected) {
  for (const std::string value : {"", "hello", "\xff\xff\xff"}) {
    EXPECT_EQ(DecodeProgress(value).status().code(), absl::StatusCode::kDataLoss) << value;
  }
}

// Numbers that no walpost writes: they must not overflow, and an epoch must leave room for a
// decision that overrules it.
TEST(ProgressTest, WhatNoWalpostWritesIsRejected) {
  v1::Progress good;
  good.set_format(1);
  good.set_epoch(3);
  good.set_system_identifier(7);
  good.set_timeline(1);
  EXPECT_TRUE(DecodeProgress(good.SerializeAsString()).ok());
  constexpr std::int64_t kFirstSecond = -62'135'596'800;  // of the year 1
  constexpr std::int64_t kLastSecond = 253'402'300'799;   // of the year 9999
  for (const std::int64_t seconds : {kFirstSecond, kLastSecond}) {
    v1::Progress last = good;
    last.mutable_recorded_at()->set_seconds(seconds);
    last.mutable_recorded_at()->set_nanos(999'999'999);
    EXPECT_TRUE(DecodeProgress(last.SerializeAsString()).ok()) << seconds;
  }
  good.set_end_lsn(500);
  good.mutable_last_transaction()->set_commit_lsn(100);
  for (std::uint64_t lsn = 101; lsn < 165; ++lsn) {
    good.add_later_transactions()->set_commit_lsn(lsn);
  }
  EXPECT_TRUE(DecodeProgress(good.SerializeAsString()).ok());
  std::vector<v1::Progress> bad(15, good);
  bad[0].set_epoch(std::numeric_limits<std::uint64_t>::max());
  bad[1].set_timeline(0);
  bad[2].set_system_identifier(0);
  bad[3].mutable_recorded_at()->set_seconds(std::numeric_limits<std::int64_t>::max());
  bad[4].mutable_recorded_at()->set_seconds(std::numeric_limits<std::int64_t>::min());
  bad[5].mutable_recorded_at()->set_nanos(-1);
  bad[6].mutable_recorded_at()->set_seconds(kFirstSecond - 1);
  bad[7].mutable_recorded_at()->set_seconds(kLastSecond + 1);
  bad[8].mutable_recorded_at()->set_nanos(1'000'000'000);
  bad[9].mutable_fingerprint()->add_tables()->mutable_since_at()->set_nanos(-1);
  (*bad[10].mutable_fingerprint()->mutable_prefix_since_at())["shop"].set_nanos(-1);
  bad[11].clear_later_transactions();
  bad[11].mutable_last_transaction()->set_commit_lsn(501);
  bad[12].mutable_later_transactions(3)->set_commit_lsn(103);
  bad[13].add_later_transactions()->set_commit_lsn(300);
  bad[14].set_format(2);
  bad[14].set_epoch(base::Progress::kEpochMax + 1);
  for (const v1::Progress& each : bad) {
    EXPECT_EQ(DecodeProgress(each.SerializeAsString()).status().code(), absl::StatusCode::kDataLoss)
        << each.ShortDebugString();
  }
}

// Failure 75.
TEST(ProgressTest, NewerFormatIsRejectedByName) {
  v1::Progress message;
  message.set_format(2);
  EXPECT_THAT(std::string(DecodeProgress(message.SerializeAsString()).status().message()),
              ::testing::HasSubstr("format 2"));
}

using base::DeadLetter;
using ::testing::SizeIs;

std::map<std::string, std::string> Described(const DeadLetter& row) {
  std::map<std::string, std::string> headers;
  for (const auto& [name, text] : DescribeForTopic(row, "shop")) {
    headers[std::string(name)] = text;
  }
  return headers;
}

TEST(DeadLetterTest, TopicGetsWhatIsKnownAndNothingElse) {
  DeadLetter row;
  row.reason = "record_too_large";
  row.position = "p1";
  row.attempts = 2;
  row.detail = std::string(5'000, 'x');
  const auto headers = Described(row);
  EXPECT_EQ(headers.at("walpost-dlq"), "dead_letter");
  EXPECT_EQ(headers.at("walpost-dlq-pipeline"), "shop");
  EXPECT_EQ(headers.at("walpost-dlq-reason"), "record_too_large");
  EXPECT_EQ(headers.at("walpost-dlq-attempts"), "2");
  EXPECT_THAT(headers.at("walpost-dlq-detail"), SizeIs(DeadLetter::kTextBytesMax));
  EXPECT_FALSE(headers.contains("walpost-dlq-topic"));
  EXPECT_FALSE(headers.contains("walpost-dlq-partition"));
  row.partition = 0;
  EXPECT_EQ(Described(row).at("walpost-dlq-partition"), "0");
  row.parked = true;
  EXPECT_EQ(Described(row).at("walpost-dlq"), "parked");
}

TEST(DeadLetterTest, RecordIsTakenWholeWithNullAndEmptyHeaders) {
  const std::vector<RecordHeader> headers = {{"id", "a1"}, {"null", {}}, {"empty", ""}};
  Record record;
  record.key = "k";
  record.value = "v";
  record.headers = headers;
  DeadLetter row;
  TakeRecord(record, &row);
  EXPECT_EQ(row.key, "k");
  EXPECT_EQ(row.value, "v");
  ASSERT_THAT(row.headers, SizeIs(3));
  EXPECT_EQ(row.headers[1].value, std::nullopt);
  EXPECT_EQ(row.headers[2].value, "");
  const auto back = HeadersOf(row);
  EXPECT_EQ(back[1].value.data(), nullptr);
  EXPECT_NE(back[2].value.data(), nullptr);
}

TEST(DeadLetterTest, TooLargeRecordIsTruncatedAndKeepsTheKeyThatOrderNeeds) {
  const std::string large(DeadLetter::kRecordBytesMax + 1, 'x');
  const std::string key(kTruncatedKeyBytesMax + 1, 'k');
  Record record;
  record.key = key;
  record.value = large;
  DeadLetter row;
  TakeRecord(record, &row);
  EXPECT_EQ(row.truncated_bytes, large.size());
  EXPECT_FALSE(row.value);
  EXPECT_FALSE(row.key);
  DeadLetter parked;
  parked.parked = true;
  TakeRecord(record, &parked);
  EXPECT_EQ(parked.key, key);
}

TEST(DeadLetterTest, ValueOfATruncatedOneIsTheRowThatItKeeps) {
  Record record;
  record.value = "the row";
  DeadLetter row;
  row.truncated_bytes = 5;
  TakeRecord(record, &row);
  EXPECT_EQ(row.value, "the row");
  EXPECT_EQ(row.truncated_bytes, 5U);
  EXPECT_TRUE(row.keeps_row());
  row.truncated_bytes.reset();
  EXPECT_FALSE(row.keeps_row()) << "a record's value";
  DeadLetter nothing;
  nothing.truncated_bytes = 5;
  EXPECT_FALSE(nothing.keeps_row());
}

TEST(DeadLetterTest, RecordThatMayBeNowhereElseIsKeptWhole) {
  const std::string large(DeadLetter::kRecordBytesMax + 1, 'x');
  Record record;
  record.value = large;
  DeadLetter healthy;
  healthy.reason = kKeyParked;
  DeadLetter message;
  message.reason = "record_too_large";
  message.source = "message:shop";
  for (DeadLetter* row : {&healthy, &message}) {
    TakeRecord(record, row);
    EXPECT_FALSE(row->truncated_bytes);
    EXPECT_EQ(row->value, large);
  }
}

TEST(DeadLetterTest, HeadersCountTowardsTheLimit) {
  const std::string half(DeadLetter::kRecordBytesMax / 2, 'x');
  const std::vector<RecordHeader> headers = {{"a", half}, {"b", half}};
  Record record;
  record.headers = headers;
  DeadLetter row;
  TakeRecord(record, &row);
  EXPECT_EQ(row.truncated_bytes, 2 * half.size() + 2);
  EXPECT_THAT(row.headers, SizeIs(0));
}

TEST(DeadLetterTest, WhatIsSentAgainIsMarkedAndHasNoPositionOfItsOwn) {
  DeadLetter row;
  row.headers = {{"id", "a1"}, {"walpost-position", "p1"}, {"x-tenant", "t"}};
  row.position = "p1";
  const auto headers = RedeliveryHeaders(row, "dlq-retry");
  ASSERT_THAT(headers, SizeIs(4));
  EXPECT_EQ(headers[1].name, "x-tenant");
  EXPECT_EQ(headers[2].name, "walpost-redelivery");
  EXPECT_EQ(headers[2].value, "dlq-retry");
  EXPECT_EQ(headers[3].name, "walpost-original-position");
  EXPECT_EQ(headers[3].value, "p1");
  row.position.clear();
  EXPECT_THAT(RedeliveryHeaders(row, "dlq-retry"), SizeIs(3));
}

}  // namespace
}  // namespace walpost::envelope
