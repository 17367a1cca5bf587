// published - whether a publication brings the rows of the outboxes, and did so before a slot began.
// Why: the server decides with the catalogs of each transaction what it sends. A slot that is older than
//   what publishes a table lacks the rows of the time between, and nothing in the stream shows it.
// Thread: any; blocking.
// Errors: kFailedPrecondition says what to do; else as SqlConnection.
#pragma once

#include "absl/status/status.h"
#include "postgres/preflight.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {

// The publication is there, publishes inserts, and has every outbox, under the outbox's own name.
// kNotFound: there is no such publication.
absl::Status RequirePublished(postgres::SqlConnection* connection,
                              const postgres::ConnectOptions& source);

// Its owner may take an outbox out of it. kFailedPrecondition: a role that is not trusted, and has not the rights
// of each outbox's owner.
absl::Status RequireTrustedPublication(postgres::SqlConnection* connection,
                                       const postgres::ConnectOptions& source);

// For a slot of which walpost.pipeline knows nothing: all that publishes an outbox is older than what the
// slot has still to read.
absl::Status RequireOlderThanSlot(postgres::SqlConnection* connection,
                                  const postgres::ConnectOptions& source);

}  // namespace walpost::operations
