#include "kafka/versions.h"

#include <librdkafka/rdkafka.h>

namespace walpost::kafka {

std::string LibrdkafkaVersion() { return rd_kafka_version_str(); }

}  // namespace walpost::kafka
