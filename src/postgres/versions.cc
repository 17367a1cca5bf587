#include "postgres/versions.h"

#include <libpq-fe.h>

#include "absl/strings/str_format.h"

namespace walpost::postgres {

std::string LibpqVersion() {
  return absl::StrFormat("%d.%d", PQlibVersion() / 10000, PQlibVersion() % 10000);
}

}  // namespace walpost::postgres
