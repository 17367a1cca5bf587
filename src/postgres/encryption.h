// Encryption of a connection: what one has, and what a conninfo insists on.
// Why: libpq's default, sslmode=prefer, goes on in clear text with whoever offers no TLS, and says nothing of
//   it. So what was agreed is asked of the connection; what must be is for libpq to enforce, before
//   anything is sent.
// Thread: any.
// Source: PostgreSQL manual, libpq "Protection Provided in Different Modes".
#pragma once

#include <libpq-fe.h>

#include <string>

#include "postgres/conninfo.h"

namespace walpost::postgres {

// By TLS or GSSAPI.
bool IsEncrypted(PGconn* connection);

// Whom an open connection talks to in clear text over a network: "db1:5432 (10.0.0.7)". Empty when it is
// encrypted or stays on this machine.
std::string ClearTextPeer(PGconn* connection);

// A line for an operator.
std::string ClearTextWarning(const std::string& peer);

// Why a connection that these settings make may be in clear text over a network; empty when it cannot.
std::string WhyMayBeClearText(const ConnectionSettings& settings);

}  // namespace walpost::postgres
