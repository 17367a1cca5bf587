// Init - schema, publication and slot, in this order, and the record that they were made.
// Why: a publication must exist at every position its slot will read, so it comes first; and
//   nothing here ever makes a slot over an existing history.
// Thread: blocking. Use: any number of times; what is there already is checked, not changed.
// Errors: in Outcome. slot_missing (78) when the record exists and the slot does not.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "operations/outcome.h"
#include "postgres/connect.h"

namespace walpost::operations {

struct InitOptions {
  std::string name;
  postgres::ConnectOptions source;
  bool print_sql = false;  // only show what would be executed
  std::chrono::milliseconds slot_timeout{30'000};
};

Outcome Init(const InitOptions& options);

}  // namespace walpost::operations
