// NoteDelivered - writes walpost.pipeline.delivered_lsn: everything before it is in Kafka.
// Why: a slot can be moved by others, and progress in Kafka may be of another history of the server.
//   What lies in the database goes back with it, so it is always of the server's own history. It is
//   what outbox.maintain and `slot recreate` go by.
// Thread: one owner; blocking, for as long as the server's limits here: 1 s for a lock, 3 s in all.
// Errors: in words, "" when there is nothing to say. Whatever fails, streaming can begin: then what is
//   noted is older, and so still true.
// Source: docs/design.md, "What the database knows".
#pragma once

#include <string>

#include "postgres/connection.h"
#include "postgres/preflight.h"

namespace walpost::postgres {

// `connection` is the one that preflight ran on and that is to stream. Writes nothing on a standby,
// without the right, or when the note says so already.
std::string NoteDelivered(Connection* connection, const PreflightReport& report, Deadline deadline);

}  // namespace walpost::postgres
