// MakePinger - the Pinger of a connection that is to stream from `slot`; and OpenBeside, a second one.
#pragma once

#include <chrono>
#include <memory>
#include <variant>

#include "postgres/connect.h"
#include "postgres/connection.h"

namespace walpost::postgres {

// A second connection to the same server. One for replication first: applications that take every
// ordinary one must not keep walpost away. Whatever connect_timeout says, `within` is the limit: a server
// that is stopping waits for the stream meanwhile, and a proxy may take the connection and never answer.
std::variant<Connection, StreamEnd> OpenBeside(const ConnectOptions& options,
                                               const ServerAddress& server,
                                               std::chrono::seconds within);

std::unique_ptr<Pinger> MakePinger(const Connection& connection, const ConnectOptions& options);

}  // namespace walpost::postgres
