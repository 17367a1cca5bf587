// Schema text - what a registry has of protobuf: .proto text, or base64 of a FileDescriptorProto.
// Why: a registry's file says where in it a message stands, and whether it is the one that we have.
// Thread: free functions.
// Units/limits: kSchemaBytesMax, nested up to kSchemaDepthMax. Whatever it is, it takes some 50 MB and no
//   deep stack while it is looked at, and no memory for where things stand in it.
// Source: protobuf's own parser and descriptor pool.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace walpost::registry {

inline constexpr int kSchemaDepthMax = 100;
inline constexpr std::size_t kSchemaBytesMax = std::size_t{256} * 1024;

// Nothing when it is neither, or beyond the limits. Names are as they stand there, not looked up.
std::optional<google::protobuf::FileDescriptorProto> ReadSchema(const std::string& schema);

// The path to a message, by its full name; nothing when there is none.
std::optional<std::vector<std::int32_t>> FindIndexes(
    const google::protobuf::FileDescriptorProto& file, const std::string& record);

// Whether a registry's file declares what ours does: a registry that keeps what a person wrote does not
// find it by what a compiler makes of it. Order and comments do not count, and names count for what they
// mean. In doubt: no.
bool SameDeclarations(const google::protobuf::FileDescriptor& ours,
                      google::protobuf::FileDescriptorProto theirs);

}  // namespace walpost::registry
