// RunOptions - everything `run` needs, as the modules' own option structs. Plain data, filled in by
// config.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kafka/kafka_sink.h"
#include "observe/http_server.h"
#include "observe/log.h"
#include "pipeline/options.h"
#include "postgres/connect.h"
#include "registry/http.h"

namespace walpost::runtime {

// Figures of the server that the stream does not bring. Off by default: while streaming, no SQL is
// sent unless it is asked for.
struct MonitorOptions {
  std::string conninfo;  // empty = off
  std::chrono::milliseconds interval{15'000};
};

enum class OnHalt { kWait, kExit };

struct Reloaded;

struct RunOptions {
  std::string name;
  std::string version;
  postgres::ConnectOptions source;
  pipeline::PipelineOptions pipeline;
  std::string dead_letter_conninfo;  // where walpost.dead_letters is; empty = source.conninfo
  std::string dead_letter_topic;     // gets a record of each dead letter; empty = none
  kafka::KafkaOptions kafka;
  registry::RegistryOptions registry;
  observe::HttpOptions http;
  MonitorOptions monitor;
  OnHalt on_halt = OnHalt::kWait;
  // SIGHUP: the configuration as it is now, compared with the one at the start. Called on a helper
  // thread, may block. Empty = SIGHUP only resumes.
  std::function<absl::StatusOr<Reloaded>()> reload = {};
};

// `options` differ from those at the start in what may change only: how PostgreSQL, Kafka and the
// Schema Registry are reached.
struct Reloaded {
  RunOptions options;
  observe::Severity log_level = observe::Severity::kInfo;
  std::vector<std::string> needs_restart;  // keys that changed and are not taken
};

}  // namespace walpost::runtime
