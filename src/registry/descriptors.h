// Descriptors - the protobuf files that an application's messages are declared in.
// Thread: a value; const after creation.
// Units/limits: files of up to kDescriptorSetBytesMax.
// Errors: Descriptors::Read: kInvalidArgument, naming the file and how to make it.
// Source: protoc --descriptor_set_out --include_imports.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace walpost::registry {

inline constexpr std::size_t kDescriptorSetBytesMax = std::size_t{16} * 1024 * 1024;

class Descriptors {
 public:
  static absl::StatusOr<Descriptors> Read(const std::string& path);

  // Null when there is none of this full name.
  const google::protobuf::Descriptor* Find(const std::string& record) const {
    return pool_->FindMessageTypeByName(record);
  }

  // The full names of all messages outside others' imports that every registry knows.
  std::vector<std::string> Records() const;

 private:
  std::unique_ptr<google::protobuf::DescriptorPool> pool_;
  std::vector<const google::protobuf::FileDescriptor*> files_;
};

// Every registry has these itself.
bool IsKnownImport(std::string_view file);

// The path to it within its file.
std::vector<std::int32_t> IndexesOf(const google::protobuf::Descriptor& message);

// As registries take it.
std::string AsBase64(const google::protobuf::FileDescriptor& file);

}  // namespace walpost::registry
