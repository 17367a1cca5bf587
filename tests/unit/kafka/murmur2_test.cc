// Keys must stay on the partitions where Java producers put them.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <string_view>

#include "kafka/kafka_sink.h"

namespace walpost::kafka {
namespace {

struct Vector {
  std::string_view key;
  std::int32_t hash;
};

// From UtilsTest.testMurmur2 of Kafka's Java client; the empty key from kafka-python's tests.
constexpr Vector kVectors[] = {
    {"21", -973932308},
    {"foobar", -790332482},
    {"a-little-bit-long-string", -985981536},
    {"a-little-bit-longer-string", -1486304829},
    {"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
    {"abc", 479470107},
    {"", 275646681},
};

std::uint32_t Byte(std::string_view key, std::size_t index) {
  return static_cast<unsigned char>(key[index]);
}

// Austin Appleby's MurmurHash2 with the seed that Java's client uses.
std::int32_t ReferenceHash(std::string_view key) {
  constexpr std::uint32_t kMultiplier = 0x5bd1e995;
  std::uint32_t hash = 0x9747b28cU ^ static_cast<std::uint32_t>(key.size());
  std::size_t at = 0;
  for (; at + 4 <= key.size(); at += 4) {
    std::uint32_t word =
        Byte(key, at) | Byte(key, at + 1) << 8 | Byte(key, at + 2) << 16 | Byte(key, at + 3) << 24;
    word *= kMultiplier;
    word ^= word >> 24;
    hash = (hash * kMultiplier) ^ (word * kMultiplier);
  }
  if (at < key.size()) {
    for (std::size_t i = key.size(); i > at; --i) {
      hash ^= Byte(key, i - 1) << (8 * (i - 1 - at));
    }
    hash *= kMultiplier;
  }
  hash ^= hash >> 13;
  hash *= kMultiplier;
  hash ^= hash >> 15;
  return static_cast<std::int32_t>(hash);
}

std::int32_t JavaPartition(std::int32_t hash, std::int32_t count) {
  return (hash & 0x7fffffff) % count;
}

TEST(PartitionForKeyTest, KnownKeysGoWhereJavaPutsThem) {
  for (const Vector& vector : kVectors) {
    ASSERT_EQ(ReferenceHash(vector.key), vector.hash) << vector.key;
    // The largest count shows every bit of the hash but its sign.
    for (const std::int32_t count :
         {1, 2, 3, 7, 12, 100, 1'000, std::numeric_limits<std::int32_t>::max()}) {
      EXPECT_EQ(PartitionForKey(vector.key, count), JavaPartition(vector.hash, count))
          << "key '" << vector.key << "', " << count << " partitions";
    }
  }
}

TEST(PartitionForKeyTest, EmptyKeyWithoutAddressIsTheEmptyKey) {
  EXPECT_EQ(PartitionForKey(std::string_view(), 1'000), 681);
}

TEST(PartitionForKeyTest, RandomBytesOfEveryLengthGoWhereJavaPutsThem) {
  const char* given = std::getenv("WALPOST_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  SCOPED_TRACE("WALPOST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (std::size_t size = 0; size < 300; ++size) {
    std::string key(size, '\0');
    for (char& byte : key) {
      byte = static_cast<char>(random());  // NUL and bytes above 127 among them
    }
    const auto count = static_cast<std::int32_t>(1 + random() % 500);
    ASSERT_EQ(PartitionForKey(key, count), JavaPartition(ReferenceHash(key), count))
        << "key of " << size << " bytes, " << count << " partitions";
    ASSERT_EQ(KeyHash(key), ReferenceHash(key) & 0x7fffffff) << "key of " << size << " bytes";
  }
}

TEST(KeyHashTest, TheLargestIsNotTakenForTheSmallest) {
  EXPECT_EQ(KeyHash("\x02}SC"), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(KeyHash("\xa5\xd4\x30\\"), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(KeyHash("\xe3\x87\x18"
                    "D"),
            0);
}

}  // namespace
}  // namespace walpost::kafka
