// KeysOf - what is shown of a configuration: all but version, name, outboxes and sink.
// Why: the functions that read the file say it, so a new key is one line of theirs.
#pragma once

#include <vector>

#include "config/config.h"
#include "config/reader.h"

namespace walpost::config {

std::vector<Key> KeysOf(Config config);

}  // namespace walpost::config
