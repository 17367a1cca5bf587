// An input is a FileDescriptorSet. It is rejected with a reason, or all that it declares is found
// in it.
#include <glog/logging.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "registry/schema_text.h"
#include "walpost/v1/envelope.pb.h"

namespace walpost::fuzz {
namespace {

// Read takes a path; the file is in memory.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : fd_(memfd_create("descriptor_set", 0)) {
    CHECK_GE(fd_, 0);
    CHECK_EQ(write(fd_, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  }

  ~MemoryFile() { close(fd_); }

  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  const int fd_;
};

void CheckSet(std::string_view content) {
  const MemoryFile file(content);
  const auto descriptors = registry::Descriptors::Read(file.path());
  if (!descriptors.ok()) {
    CHECK(absl::IsInvalidArgument(descriptors.status())) << descriptors.status();
    return;
  }
  for (const std::string& record : descriptors->Records()) {
    const google::protobuf::Descriptor* found = descriptors->Find(record);
    CHECK(found != nullptr) << record;
    CHECK(!registry::IndexesOf(*found).empty());
    CHECK(!registry::AsBase64(*found->file()).empty());
  }
}

void Add(const google::protobuf::FileDescriptor& file, google::protobuf::FileDescriptorSet* set) {
  for (int i = 0; i < file.dependency_count(); ++i) {
    Add(*file.dependency(i), set);
  }
  file.CopyTo(set->add_file());
}

}  // namespace

std::vector<std::string> MoreInputs() {
  google::protobuf::FileDescriptorSet set;
  Add(*v1::Envelope::descriptor()->file(), &set);
  return {set.SerializeAsString()};
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // libprotobuf writes to stderr what it rejects.
  static const google::protobuf::LogSilencer silence;
  const walpost::fuzz::Bounds bounds;
  walpost::fuzz::CheckSet(std::string_view(reinterpret_cast<const char*>(data), size));
  bounds.Check();
  return 0;
}
