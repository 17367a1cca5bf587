// Schema text - what a registry has of protobuf: .proto text, or base64 of a FileDescriptorProto.
// Why: a registry's file says where in it a message stands, and whether it is the one that we have.
// Thread: free functions.
// Units/limits: kSchemaBytesMax, nested up to kSchemaDepthMax. Whatever it is, it takes some 50 MB
//   and no deep stack while it is looked at, and no memory for where things stand in it.
// Source: protobuf's own parser and descriptor pool.
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

// Descriptors - the protobuf files that an application's messages are declared in.
// Thread: a value; const after creation.
// Units/limits: files of up to kDescriptorSetBytesMax.
// Errors: Descriptors::Read: kInvalidArgument, naming the file and how to make it.
// Source: protoc --descriptor_set_out --include_imports.
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

inline constexpr int kSchemaDepthMax = 100;
inline constexpr std::size_t kSchemaBytesMax = std::size_t{256} * 1024;

// Nothing when it is neither, or beyond the limits. Names are as they stand there, not looked up.
std::optional<google::protobuf::FileDescriptorProto> ReadSchema(const std::string& schema);

// The path to a message, by its full name; nothing when there is none.
std::optional<std::vector<std::int32_t>> FindIndexes(
    const google::protobuf::FileDescriptorProto& file, const std::string& record);

// Whether a registry's file declares what ours does: a registry that keeps what a person wrote does
// not find it by what a compiler makes of it. Order and comments do not count, and names count for
// what they mean. In doubt: no.
bool SameDeclarations(const google::protobuf::FileDescriptor& ours,
                      google::protobuf::FileDescriptorProto theirs);

}  // namespace walpost::registry
