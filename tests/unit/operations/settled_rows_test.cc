#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "operations/reconcile/settled_rows.h"

namespace walpost::operations {
namespace {

using Entries = std::map<std::string, std::vector<std::string>, std::less<>>;

DiskBuckets MakeBuckets() {
  auto buckets = DiskBuckets::Create("");
  EXPECT_TRUE(buckets.ok()) << buckets.status();
  return *std::move(buckets);
}

Entries ReadBucket(DiskBuckets* buckets, std::size_t bucket) {
  Entries entries;
  const absl::Status read =
      buckets->ForEach(bucket, [&](std::string_view key, std::string_view data) {
        entries[std::string(key)].emplace_back(data);
        return absl::OkStatus();
      });
  EXPECT_TRUE(read.ok()) << read;
  return entries;
}

TEST(DiskBucketsTest, EntriesOfOneKeyAreInOneBucketInTheirOrder) {
  DiskBuckets buckets = MakeBuckets();
  for (int round = 0; round < 3; ++round) {
    for (int key = 0; key < 5'000; ++key) {
      ASSERT_TRUE(buckets.Add("key " + std::to_string(key), std::to_string(round)).ok());
    }
  }
  std::size_t keys = 0;
  for (std::size_t bucket = 0; bucket < DiskBuckets::kBuckets; ++bucket) {
    const Entries entries = ReadBucket(&buckets, bucket);
    for (const auto& [key, data] : entries) {
      EXPECT_EQ(data, (std::vector<std::string>{"0", "1", "2"})) << key;
    }
    keys += entries.size();
  }
  EXPECT_EQ(keys, 5'000U);
}

TEST(DiskBucketsTest, ABucketIsReadAgainAndAddedTo) {
  DiskBuckets buckets = MakeBuckets();
  ASSERT_TRUE(buckets.Add("key", "first").ok());
  std::size_t bucket = 0;
  while (ReadBucket(&buckets, bucket).empty()) {
    ++bucket;
  }
  ASSERT_TRUE(buckets.Add("key", "second").ok());
  EXPECT_EQ(ReadBucket(&buckets, bucket)["key"], (std::vector<std::string>{"first", "second"}));
}

TEST(DiskBucketsTest, KeysAndDataMayBeAnyBytesAndEmpty) {
  DiskBuckets buckets = MakeBuckets();
  const std::string bytes("\0\n\xff", 3);
  ASSERT_TRUE(buckets.Add(bytes, "").ok());
  ASSERT_TRUE(buckets.Add("", bytes).ok());
  Entries all;
  for (std::size_t bucket = 0; bucket < DiskBuckets::kBuckets; ++bucket) {
    all.merge(ReadBucket(&buckets, bucket));
  }
  EXPECT_EQ(all, (Entries{{bytes, {""}}, {"", {bytes}}}));
}

TEST(DiskBucketsTest, AKeyThatIsTooLongIsRejected) {
  DiskBuckets buckets = MakeBuckets();
  EXPECT_TRUE(absl::IsInvalidArgument(buckets.Add(std::string(65'536, 'k'), "")));
}

TEST(DiskBucketsTest, AFolderThatIsNotThereIsNamed) {
  const auto buckets = DiskBuckets::Create("/nowhere");
  ASSERT_FALSE(buckets.ok());
  EXPECT_NE(std::string(buckets.status().message()).find("/nowhere"), std::string::npos);
}

TEST(DiskBucketsTest, AnErrorOfTheCallbackEndsTheReading) {
  DiskBuckets buckets = MakeBuckets();
  ASSERT_TRUE(buckets.Add("key", "").ok());
  std::size_t failed = 0;
  for (std::size_t bucket = 0; bucket < DiskBuckets::kBuckets; ++bucket) {
    const absl::Status status = buckets.ForEach(
        bucket, [](std::string_view, std::string_view) { return absl::CancelledError(); });
    failed += absl::IsCancelled(status) ? 1 : 0;
  }
  EXPECT_EQ(failed, 1U);
}

}  // namespace
}  // namespace walpost::operations
