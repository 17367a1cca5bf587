// ReadBrokers - the brokers of one of librdkafka's statistics, without reading what follows them.
// Why: the text also holds every partition of every topic, behind the brokers; its reader runs on the
//   loop and stops where they end.
// Thread: any; pure.
// Errors: none. What cannot be read is left out.
// Source: librdkafka's STATISTICS.md.
#pragma once

#include <string_view>
#include <vector>

#include "base/broker_figures.h"

namespace walpost::kafka {

// By address; the names that were only bootstrapped with, and roles such as a coordinator, are no
// brokers.
std::vector<base::BrokerFigures> ReadBrokers(std::string_view statistics);

}  // namespace walpost::kafka
