#include "base/bytes.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

namespace walpost::base {

struct ChunkArena::Chunk {
  explicit Chunk(std::size_t bytes) : memory(new char[bytes]), capacity(bytes) {}

  std::unique_ptr<char[]> memory;
  std::size_t capacity;
  std::size_t used = 0;
  std::size_t live_blocks = 0;
  std::size_t index = 0;  // in chunks_
};

ChunkArena::ChunkArena() = default;
ChunkArena::~ChunkArena() = default;

ChunkArena::Block ChunkArena::Allocate(std::size_t size) {
  const std::size_t rounded = (size + 7) & ~std::size_t{7};
  if (current_ == nullptr || current_->capacity - current_->used < rounded) {
    Chunk* full = current_;
    std::unique_ptr<Chunk> next;
    if (rounded <= kChunkBytes && !spare_.empty()) {
      next = std::move(spare_.back());
      spare_.pop_back();
    } else {
      next = std::make_unique<Chunk>(std::max(rounded, kChunkBytes));
      reserved_bytes_ += next->capacity;
    }
    next->index = chunks_.size();
    current_ = next.get();
    chunks_.push_back(std::move(next));
    if (full != nullptr && full->live_blocks == 0) {
      Recycle(full);
    }
  }
  Block block{current_->memory.get() + current_->used, size, current_};
  current_->used += rounded;
  ++current_->live_blocks;
  return block;
}

void ChunkArena::Release(const Block& block) {
  Chunk* chunk = block.chunk;
  CHECK(chunk != nullptr);
  CHECK_GT(chunk->live_blocks, 0U);
  --chunk->live_blocks;
  const std::size_t rounded = (block.size + 7) & ~std::size_t{7};
  if (block.data + rounded == chunk->memory.get() + chunk->used) {
    chunk->used -= rounded;
  }
  if (chunk->live_blocks != 0) {
    return;
  }
  if (chunk == current_ && chunk->capacity == kChunkBytes) {
    chunk->used = 0;
    return;
  }
  if (chunk == current_) {
    current_ = nullptr;
  }
  Recycle(chunk);
}

void ChunkArena::Recycle(Chunk* chunk) {
  const std::size_t index = chunk->index;
  std::unique_ptr<Chunk> freed = std::move(chunks_[index]);
  if (index + 1 != chunks_.size()) {
    chunks_[index] = std::move(chunks_.back());
    chunks_[index]->index = index;
  }
  chunks_.pop_back();
  if (freed->capacity == kChunkBytes && spare_.size() < kSpareChunks) {
    freed->used = 0;
    spare_.push_back(std::move(freed));
    return;
  }
  reserved_bytes_ -= freed->capacity;
}

}  // namespace walpost::base
