#include "operations/reconcile/disk_buckets.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/hash/hash.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace walpost::operations {
namespace {

constexpr std::size_t kBufferBytes = 16 * 1024;

struct Sizes {
  std::uint16_t key = 0;
  std::uint16_t data = 0;
};

std::size_t BucketOf(std::string_view key) {
  return absl::HashOf(absl::string_view(key.data(), key.size())) % DiskBuckets::kBuckets;
}

bool Write(std::FILE* file, const void* bytes, std::size_t size) {
  return std::fwrite(bytes, 1, size, file) == size;
}

bool Read(std::FILE* file, std::string* bytes, std::size_t size) {
  bytes->resize(size);
  return std::fread(bytes->data(), 1, size, file) == size;
}

}  // namespace

absl::StatusOr<DiskBuckets> DiskBuckets::Create(const std::string& folder) {
  DiskBuckets buckets;
  const char* temporary = std::getenv("TMPDIR");
  buckets.folder_ = !folder.empty() ? folder : temporary != nullptr ? temporary : "/tmp";
  for (auto& file : buckets.files_) {
    std::string name = buckets.folder_ + "/walpost-XXXXXX";
    const int descriptor = mkstemp(name.data());
    if (descriptor < 0) {
      return buckets.Failed("cannot make a file");
    }
    unlink(name.c_str());
    file.reset(fdopen(descriptor, "w+b"));
    if (file == nullptr || std::setvbuf(file.get(), nullptr, _IOFBF, kBufferBytes) != 0) {
      return buckets.Failed("cannot open a file");
    }
  }
  return buckets;
}

absl::Status DiskBuckets::Add(std::string_view key, std::string_view data) {
  const Sizes sizes{static_cast<std::uint16_t>(key.size()),
                    static_cast<std::uint16_t>(data.size())};
  if (sizes.key != key.size() || sizes.data != data.size()) {
    return absl::InvalidArgumentError("a key of more than 64 KiB");
  }
  std::FILE* file = files_[BucketOf(key)].get();
  if (!Write(file, &sizes, sizeof(sizes)) || !Write(file, key.data(), key.size()) ||
      !Write(file, data.data(), data.size())) {
    return Failed("cannot write");
  }
  return absl::OkStatus();
}

absl::Status DiskBuckets::ForEach(std::size_t bucket, const OnEntry& on_entry) {
  std::FILE* file = files_[bucket].get();
  if (std::fseek(file, 0, SEEK_SET) != 0) {  // writes what is in the buffer
    return Failed("cannot write");
  }
  Sizes sizes;
  std::string key;
  std::string data;
  while (std::fread(&sizes, sizeof(sizes), 1, file) == 1) {
    if (!Read(file, &key, sizes.key) || !Read(file, &data, sizes.data)) {
      return Failed("cannot read");
    }
    RETURN_IF_ERROR(on_entry(key, data));
  }
  if (std::ferror(file) != 0 || std::fseek(file, 0, SEEK_END) != 0) {
    return Failed("cannot read");
  }
  return absl::OkStatus();
}

absl::Status DiskBuckets::Failed(const char* what) const {
  const std::string text = absl::StrFormat("%s in %s: %s; --temp-dir names another folder", what,
                                           folder_, std::strerror(errno));
  return errno == ENOSPC ? absl::ResourceExhaustedError(text) : absl::UnavailableError(text);
}

}  // namespace walpost::operations
