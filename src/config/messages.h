// ReadMessages - the `messages` map: which logical messages are events, and what becomes of them.
#pragma once

#include "config/reader.h"
#include "pipeline/options.h"

namespace walpost::config {

void ReadMessages(MapReader reader, pipeline::MessagesOptions* messages);

}  // namespace walpost::config
