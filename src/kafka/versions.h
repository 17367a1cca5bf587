// LibrdkafkaVersion - of the library loaded, "2.0.2".
#pragma once

#include <string>

namespace walpost::kafka {

std::string LibrdkafkaVersion();

}  // namespace walpost::kafka
