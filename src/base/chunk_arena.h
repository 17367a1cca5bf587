// ChunkArena - memory for records that wait for Kafka: bump allocation in large chunks, freed
// roughly in order.
// Why: a record's bytes must stay put until its delivery report, and the hot path must not call
//   malloc per event; records are delivered nearly in order, so a chunk is reusable as soon as its
//   last record is gone.
// Thread: one owner.
// Lifetime: an allocation lives until its Block is released or the arena dies.
// Units/limits: chunks of 256 KiB; a larger allocation gets a chunk of its own size, freed on
//   release. Up to kSpareChunks empty chunks are kept for reuse.
// Errors: CHECK-fails when a block is released twice or to another arena (detected by count only).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace walpost::base {

class ChunkArena {
 private:
  struct Chunk;

 public:
  static constexpr std::size_t kChunkBytes = std::size_t{256} * 1024;
  static constexpr std::size_t kSpareChunks = 8;

  struct Block {
    char* data = nullptr;
    std::size_t size = 0;
    Chunk* chunk = nullptr;
  };

  ChunkArena();
  ~ChunkArena();
  ChunkArena(const ChunkArena&) = delete;
  ChunkArena& operator=(const ChunkArena&) = delete;

  // `size` bytes aligned for any header struct (8 bytes).
  Block Allocate(std::size_t size);

  // Gives the block back. The newest block's bytes are reused at once, so an encoder may allocate
  // an upper bound and release it when the record is rejected.
  void Release(const Block& block);

  // Bytes of memory held, spare chunks included.
  std::size_t reserved_bytes() const { return reserved_bytes_; }

  // Of chunks that hold a block, or are to hold the next: one block keeps its whole chunk.
  std::size_t used_bytes() const { return reserved_bytes_ - spare_.size() * kChunkBytes; }

 private:
  void Recycle(Chunk* chunk);

  std::vector<std::unique_ptr<Chunk>> chunks_;  // every chunk in use, `current_` among them
  std::vector<std::unique_ptr<Chunk>> spare_;
  Chunk* current_ = nullptr;
  std::size_t reserved_bytes_ = 0;
};

}  // namespace walpost::base
