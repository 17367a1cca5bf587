// ProtoOutline - which messages a .proto file declares, in which order: as much as their places need.
// Why: a registry gives a schema as text, and the parser of protobuf's own compiler is in a package that
//   nothing else here needs.
// Thread: free functions.
// Units/limits: messages nested up to kOutlineDepthMax.
// Source: protobuf language specification, proto2 and proto3; a map field and a group declare a nested
//   message, too, which counts where it stands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace walpost::registry {

inline constexpr int kOutlineDepthMax = 100;

struct OutlinedMessage {
  std::string name;  // empty = of a map field, which nobody names
  std::vector<OutlinedMessage> nested;
};

struct ProtoOutline {
  std::string package;
  std::vector<OutlinedMessage> messages;
};

// Nothing for what is no .proto text.
std::optional<ProtoOutline> OutlineOf(std::string_view text);

// The path to a message, by its full name; nothing when there is none.
std::optional<std::vector<std::int32_t>> FindIndexes(const ProtoOutline& outline,
                                                     std::string_view record);

}  // namespace walpost::registry
