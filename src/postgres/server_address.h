// ServerAddress - of several servers in a conninfo, the one that was reached, as libpq takes it.
// Thread: a value.
#pragma once

#include <string>

namespace walpost::postgres {

struct ServerAddress {
  std::string host;
  std::string hostaddr;
  std::string port;
};

}  // namespace walpost::postgres
