#include "envelope/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "walpost/v1/progress.pb.h"

namespace walpost::envelope {
namespace {

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

}  // namespace
}  // namespace walpost::envelope
