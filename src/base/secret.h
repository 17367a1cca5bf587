// MayHoldSecret - whether a setting or a header of this name is to be shown as ***.
// Why: what may be shown is decided by a rule: a list of names would miss the next one.
// Thread: any.
#pragma once

#include <string_view>

namespace walpost::base {

// By its words, in any case: password, secret, token, key, credential, ... A path of a file is no
// secret.
bool MayHoldSecret(std::string_view name);

}  // namespace walpost::base
