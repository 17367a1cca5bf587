// Conninfo - a connection string as libpq understands it, with PG* variables and the service file.
// Why: our session settings must come after the user's own `options`, wherever those were given,
//   and defaults of ours must not override what the user set; only libpq itself knows that
//   precedence.
// Thread: any.
// Errors: kInvalidArgument with libpq's own words, quoted parts masked, because they may be pieces
//   of a password.
// Source: PostgreSQL manual, libpq "Connection Parameters".
#pragma once

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

}  // namespace walpost::postgres
