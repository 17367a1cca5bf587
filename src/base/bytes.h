// ByteReader - the only way this project reads bytes that came from outside.
// Why: every read is bounded by the bytes left, so no decoder can step past the end of a frame; a
//   failed read leaves the reader failed, so a decoder may check once at the end of a fixed-size
//   group.
// Thread: a value.   Lifetime: views it returns live as long as the bytes it was given.
// Units: integers are big-endian (network order), as in the PostgreSQL protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace walpost::base {

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }

  std::size_t remaining() const { return bytes_.size(); }

  // True when nothing failed and every byte was consumed: trailing bytes are an error for every
  // message.
  bool AtEnd() const { return ok_ && bytes_.empty(); }

  std::uint8_t U8() { return static_cast<std::uint8_t>(Integer(1)); }

  std::uint16_t U16() { return static_cast<std::uint16_t>(Integer(2)); }

  std::uint32_t U32() { return static_cast<std::uint32_t>(Integer(4)); }

  std::uint64_t U64() { return Integer(8); }

  std::int32_t I32() { return static_cast<std::int32_t>(U32()); }

  std::int64_t I64() { return static_cast<std::int64_t>(U64()); }

  // `size` raw bytes; an empty view and a failed reader when fewer are left.
  std::string_view Bytes(std::size_t size) {
    if (size > bytes_.size()) {
      return Fail();
    }
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  // Up to, and consuming, the next NUL. An unterminated string fails the reader.
  std::string_view CString() {
    const std::size_t nul = bytes_.find('\0');
    if (nul == std::string_view::npos) {
      return Fail();
    }
    const std::string_view taken = bytes_.substr(0, nul);
    bytes_.remove_prefix(nul + 1);
    return taken;
  }

  std::string_view Rest() { return Bytes(bytes_.size()); }

 private:
  std::uint64_t Integer(std::size_t size) {
    if (size > bytes_.size()) {
      Fail();
      return 0;
    }
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      value = (value << 8) | static_cast<unsigned char>(bytes_[i]);
    }
    bytes_.remove_prefix(size);
    return value;
  }

  std::string_view Fail() {
    ok_ = false;
    bytes_ = std::string_view();
    return std::string_view();
  }

  std::string_view bytes_;
  bool ok_ = true;
};

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
