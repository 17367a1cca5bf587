// Emit - inserts one test event, or emits it as a message, the way an application would.
// Thread: blocking.
// Errors: in Outcome.
#pragma once

#include <string>

#include "operations/outcome.h"
#include "outbox/options.h"
#include "postgres/connect.h"

namespace walpost::operations {

struct EmitOptions {
  postgres::ConnectOptions source;
  bool message = false;  // with the first of source.message_prefixes, by outbox.emit_message
  outbox::TableOptions table;
  std::string aggregate_type = "test";
  std::string key = "1";
  std::string type = "TestEmitted";
  std::string payload = "hello";
  std::string content_type = "text/plain";
};

// Prints the event's id.
Outcome Emit(const EmitOptions& options);

}  // namespace walpost::operations
