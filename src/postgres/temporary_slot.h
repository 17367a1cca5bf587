// ConnectTemporarySlot - a second replication stream, from a temporary slot that ends with the
// connection.
// Why: to look at events as they come, without consuming any from the production slot.
// Thread: any one thread; blocking, as Connect.
// Units/limits: creating the slot waits for the transactions that run at that moment, up to
//   ConnectOptions::statement_timeout. The configured slot is read at most.
// Errors: as Connect.
// Source: PostgreSQL manual, "Streaming Replication Protocol"; pg_copy_logical_replication_slot.
#pragma once

#include <variant>

#include "postgres/connect.h"

namespace walpost::postgres {

// `from_slot`: with what the configured slot has not confirmed; else from this moment on. Without a
// pinger.
std::variant<Connected, StreamEnd> ConnectTemporarySlot(const ConnectOptions& options,
                                                        bool from_slot);

}  // namespace walpost::postgres
