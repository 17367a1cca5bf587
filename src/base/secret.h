// What is shown as ***: settings and headers of some names, and pieces of secrets in messages.
// Why: what may be shown is decided by a rule: a list of names would miss the next one.
// Thread: any.
#pragma once

#include <string>
#include <string_view>

namespace walpost::base {

// By its words, in any case: password, secret, token, key, credential, ...
bool MayHoldSecret(std::string_view name);

// Of a property of Kafka's or Debezium's: as MayHoldSecret, but one whose name ends as that of a path does
// (.location, .path, _file, .file) holds none.
bool PropertyMayHoldSecret(std::string_view name);

// `text` with *** in place of each run of 8 bytes or more that `secret` has, too: a library may cut what it
// quotes, or quote a part.
std::string HideRuns(std::string_view text, std::string_view secret);

}  // namespace walpost::base
