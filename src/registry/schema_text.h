// Schema text - what a registry has of protobuf: .proto text, or base64 of a FileDescriptorProto.
// Why: a registry's file says where in it a message stands, and whether it is the one that we have.
// Thread: free functions.
// Units/limits: text nested up to kSchemaDepthMax.
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

// Nothing when it is neither. Names are as they stand there, not looked up.
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
