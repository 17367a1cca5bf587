// SameDeclarations - whether two .proto texts declare the same.
// Why: a registry that keeps what a person wrote does not find it by what a compiler makes of it.
// Rules: order, comments and white space do not count, and a name that is written out is the same as its
//   end. In doubt: not the same.
// Thread: free function.
#pragma once

#include <string_view>

namespace walpost::registry {

// `ours` with all names written out, as protobuf prints its descriptors.
bool SameDeclarations(std::string_view ours, std::string_view theirs);

}  // namespace walpost::registry
