#include "base/bytes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace walpost::base {
namespace {

using std::string_literals::operator""s;

TEST(ByteReaderTest, ReadsBigEndianIntegersInOrder) {
  const std::string bytes =
      "\x01\x02\x03\x04\x05\x06\x07\xff\xff\xff\xfe\x00\x00\x00\x00\x00\x00\x00\x09"s;
  ByteReader reader(bytes);
  EXPECT_EQ(reader.U8(), 0x01);
  EXPECT_EQ(reader.U16(), 0x0203);
  EXPECT_EQ(reader.U32(), 0x04050607U);
  EXPECT_EQ(reader.I32(), -2);
  EXPECT_EQ(reader.I64(), 9);
  EXPECT_TRUE(reader.AtEnd());
}

TEST(ByteReaderTest, ReadPastTheEndFailsAndStaysFailed) {
  const std::string bytes = "\x01\x02\x03"s;
  ByteReader reader(bytes);
  EXPECT_EQ(reader.U32(), 0U);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.U8(), 0);
  EXPECT_FALSE(reader.AtEnd());
}

TEST(ByteReaderTest, UnterminatedStringFails) {
  ByteReader reader("abc");
  EXPECT_EQ(reader.CString(), "");
  EXPECT_FALSE(reader.ok());
}

TEST(ByteReaderTest, StringEndsAtItsNul) {
  const std::string bytes = "abc\0\0def"s;
  ByteReader reader(bytes);
  EXPECT_EQ(reader.CString(), "abc");
  EXPECT_EQ(reader.CString(), "");
  EXPECT_EQ(reader.Rest(), "def");
  EXPECT_TRUE(reader.AtEnd());
}

TEST(ByteReaderTest, LengthBeyondTheEndFailsWithoutReading) {
  ByteReader reader("abc");
  EXPECT_EQ(reader.Bytes(4), "");
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0U);
}

TEST(ChunkArenaTest, BlocksAreAlignedAndDoNotOverlap) {
  ChunkArena arena;
  std::vector<ChunkArena::Block> blocks;
  for (std::size_t size = 0; size < 500; size += 7) {
    blocks.push_back(arena.Allocate(size));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().data) % 8, 0U);
    std::memset(blocks.back().data, static_cast<int>(size % 251), size);
  }
  for (const ChunkArena::Block& block : blocks) {
    for (std::size_t i = 0; i < block.size; ++i) {
      ASSERT_EQ(static_cast<unsigned char>(block.data[i]), block.size % 251);
    }
    arena.Release(block);
  }
}

TEST(ChunkArenaTest, SteadyFirstInFirstOutUseReusesItsChunks) {
  ChunkArena arena;
  std::vector<ChunkArena::Block> ring(100);
  for (std::size_t i = 0; i < 100'000; ++i) {
    ChunkArena::Block& slot = ring[i % ring.size()];
    if (slot.data != nullptr) {
      arena.Release(slot);
    }
    slot = arena.Allocate(1'000);
  }
  EXPECT_LE(arena.reserved_bytes(), 3 * ChunkArena::kChunkBytes);
}

TEST(ChunkArenaTest, LargeBlockIsFreedOnRelease) {
  ChunkArena arena;
  const ChunkArena::Block large = arena.Allocate(10 * ChunkArena::kChunkBytes);
  std::memset(large.data, 1, large.size);
  EXPECT_GE(arena.reserved_bytes(), 10 * ChunkArena::kChunkBytes);
  arena.Release(large);
  EXPECT_LE(arena.reserved_bytes(), 2 * ChunkArena::kChunkBytes);
}

TEST(ChunkArenaTest, ReleasedNewestBlockIsReusedAtOnce) {
  ChunkArena arena;
  const ChunkArena::Block first = arena.Allocate(64);
  const ChunkArena::Block second = arena.Allocate(64);
  arena.Release(second);
  EXPECT_EQ(arena.Allocate(64).data, second.data);
  arena.Release(first);
}

TEST(ChunkArenaTest, RandomOrderKeepsEveryLiveBlockIntact) {
  std::mt19937 random(20260101);
  ChunkArena arena;
  std::vector<std::pair<ChunkArena::Block, unsigned char>> live;
  for (int step = 0; step < 20'000; ++step) {
    if (live.size() < 200 && random() % 2 == 0) {
      const ChunkArena::Block block =
          arena.Allocate(random() % 100 == 0 ? 400'000 : random() % 3'000);
      const auto fill = static_cast<unsigned char>(random());
      std::memset(block.data, fill, block.size);
      live.emplace_back(block, fill);
    } else if (!live.empty()) {
      const std::size_t pick = random() % live.size();
      const auto [block, fill] = live[pick];
      if (block.size > 0) {
        ASSERT_EQ(static_cast<unsigned char>(block.data[0]), fill);
        ASSERT_EQ(static_cast<unsigned char>(block.data[block.size - 1]), fill);
      }
      arena.Release(block);
      live[pick] = live.back();
      live.pop_back();
    }
  }
}

}  // namespace
}  // namespace walpost::base
