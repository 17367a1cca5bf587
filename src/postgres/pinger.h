// MakePinger - the Pinger of a connection that is to stream from `slot`; and OpenBeside, a second one.
#pragma once

#include <memory>
#include <variant>

#include "postgres/connect.h"
#include "postgres/connection.h"

namespace walpost::postgres {

// A second connection to the same server. One for replication first: applications that take every
// ordinary one must not keep walpost away.
std::variant<Connection, StreamEnd> OpenBeside(const ConnectOptions& options,
                                               const ServerAddress& server);

std::unique_ptr<Pinger> MakePinger(const Connection& connection, const ConnectOptions& options);

}  // namespace walpost::postgres
