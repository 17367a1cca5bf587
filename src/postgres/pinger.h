// MakePinger - the Pinger of a connection: libpq's PQping on its host and port.
#pragma once

#include <memory>

#include "postgres/connect.h"
#include "postgres/connection.h"

namespace walpost::postgres {

std::unique_ptr<Pinger> MakePinger(const Connection& connection);

}  // namespace walpost::postgres
