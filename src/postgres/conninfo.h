// Conninfo - a connection string as libpq understands it, with PG* variables and the service file.
// Why: our session settings must come after the user's own `options`, wherever those were given,
//   and defaults of ours must not override what the user set; only libpq itself knows that
//   precedence.
// Thread: any.
// Errors: kInvalidArgument with libpq's own words, quoted parts masked, because they may be pieces
//   of a password.
// Source: PostgreSQL manual, libpq "Connection Parameters".
#pragma once

#include <libpq-fe.h>

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace walpost::postgres {

using ConnectionSettings = std::map<std::string, std::string>;

// Everything that is set, from the string, its service, or the environment. No network traffic.
absl::StatusOr<ConnectionSettings> ResolveConninfo(const std::string& conninfo);

// The value or "".
std::string Setting(const ConnectionSettings& settings, const std::string& keyword);

// `value` as the key=value form has it, in quotes where it must be: libpq ends a value at any white
// space.
std::string ConninfoValue(const std::string& value);

// libpq's message about a malformed string without the parts it quotes.
std::string MaskQuoted(std::string_view message);

// Encryption of a connection: what one has, and what a conninfo insists on.
// Why: libpq's default, sslmode=prefer, goes on in clear text with whoever offers no TLS, and says
//   nothing of it. So what was agreed is asked of the connection; what must be is for libpq to
//   enforce, before anything is sent.
// Thread: any.
// Source: PostgreSQL manual, libpq "Protection Provided in Different Modes".

// By TLS or GSSAPI.
bool IsEncrypted(PGconn* connection);

// Whom an open connection talks to in clear text over a network: "db1:5432 (10.0.0.7)". Empty when
// it is encrypted or stays on this machine.
std::string ClearTextPeer(PGconn* connection);

// A line for an operator.
std::string ClearTextWarning(const std::string& peer);

// Why a connection that these settings make may be in clear text over a network; empty when it
// cannot.
std::string WhyMayBeClearText(const ConnectionSettings& settings);

}  // namespace walpost::postgres
