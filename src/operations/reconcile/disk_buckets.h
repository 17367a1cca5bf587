// DiskBuckets - entries in temporary files. Those with the same key are in the same file, so they are read
// together, however many there are.
// Why: a topic and a table are compared by id, and neither fits into memory.
// Thread: one owner; blocking.
// Units/limits: some 16 bytes an entry beside key and data, on disk; in memory 16 KiB for each of
//   kBuckets files. Keys and data up to 64 KiB. Entries of one key keep their order.
// Errors: kResourceExhausted or kUnavailable, naming the folder.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace walpost::operations {

class DiskBuckets {
 public:
  static constexpr std::size_t kBuckets = 128;
  static constexpr std::size_t kKeyBytesMax = 60'000;  // of a record's key, to distinguish it

  // Files without a name: nothing is left of them, whatever ends the process. An empty `folder` is
  // $TMPDIR, or /tmp.
  static absl::StatusOr<DiskBuckets> Create(const std::string& folder);

  absl::Status Add(std::string_view key, std::string_view data);

  using OnEntry = std::function<absl::Status(std::string_view key, std::string_view data)>;

  // What was added with the keys of this bucket, in order; views until the callback returns.
  absl::Status ForEach(std::size_t bucket, const OnEntry& on_entry);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  DiskBuckets() = default;
  absl::Status Failed(const char* what) const;

  std::string folder_;
  std::array<std::unique_ptr<std::FILE, Close>, kBuckets> files_;
};

}  // namespace walpost::operations
