// RunOptions - everything `run` needs, as the modules' own option structs. Plain data, filled in by
// config.
#pragma once

#include <string>

#include "kafka/kafka_sink.h"
#include "observe/http_server.h"
#include "observe/log.h"
#include "pipeline/options.h"
#include "postgres/connect.h"
#include "registry/options.h"

namespace walpost::runtime {

enum class OnHalt { kWait, kExit };

struct RunOptions {
  std::string name;
  std::string version;
  postgres::ConnectOptions source;
  pipeline::PipelineOptions pipeline;
  kafka::KafkaOptions kafka;
  registry::RegistryOptions registry;
  observe::HttpOptions http;
  OnHalt on_halt = OnHalt::kWait;
};

}  // namespace walpost::runtime
