#include "envelope/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "walpost/v1/progress.pb.h"

namespace walpost::envelope {
namespace {

TEST(ProgressTest, ReadsBackAsWritten) {
  base::Progress progress;
  progress.epoch = 4;
  progress.system_identifier = 0xfedc'ba98'7654'3210;
  progress.timeline = 3;
  progress.end_lsn = base::Lsn(0x16'b374'd848);
  progress.recorded_at = base::WallTime(std::chrono::microseconds(1'700'000'000'123'456));
  progress.publication_oid = 4'000'000'000;
  progress.tables = {{16'390, "outbox", "events"}, {16'400, "public", "Outbox"}};
  progress.message_prefixes = {"shop", "billing"};
  const auto read = DecodeProgress(EncodeProgress(progress));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->epoch, progress.epoch);
  EXPECT_EQ(read->system_identifier, progress.system_identifier);
  EXPECT_EQ(read->timeline, progress.timeline);
  EXPECT_EQ(read->end_lsn, progress.end_lsn);
  EXPECT_EQ(read->recorded_at, progress.recorded_at);
  EXPECT_EQ(read->publication_oid, progress.publication_oid);
  ASSERT_EQ(read->tables.size(), 2U);
  EXPECT_EQ(read->tables[1].oid, 16'400U);
  EXPECT_EQ(read->tables[1].schema, "public");
  EXPECT_EQ(read->tables[1].name, "Outbox");
  EXPECT_EQ(read->message_prefixes, progress.message_prefixes);
}

TEST(ProgressTest, WhatIsNoProgressIsRefused) {
  for (const std::string value : {"", "hello", "\xff\xff\xff"}) {
    EXPECT_EQ(DecodeProgress(value).status().code(), absl::StatusCode::kDataLoss) << value;
  }
}

// Failure 75.
TEST(ProgressTest, NewerFormatIsRefusedByName) {
  v1::Progress message;
  message.set_format(2);
  EXPECT_THAT(std::string(DecodeProgress(message.SerializeAsString()).status().message()),
              ::testing::HasSubstr("format 2"));
}

}  // namespace
}  // namespace walpost::envelope
