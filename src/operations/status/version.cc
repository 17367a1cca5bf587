#include "operations/status/version.h"

#include "absl/strings/str_format.h"
#include "kafka/versions.h"
#include "postgres/versions.h"

namespace walpost::operations {

std::string VersionText(const std::string& version) {
  return absl::StrFormat("walpost %s\nlibpq %s\nlibrdkafka %s\n", version, postgres::LibpqVersion(),
                         kafka::LibrdkafkaVersion());
}

}  // namespace walpost::operations
