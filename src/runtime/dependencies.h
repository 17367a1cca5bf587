// Dependencies - what the loop is given: how it connects, where records go, what is known of
// Kafka.
// Why: tests put fakes in their places, or something that fails at a chosen moment around the real
//   ones; the loop is the same.
// Lifetime: what it points at must outlive the loop.
#pragma once

#include <functional>
#include <memory>
#include <variant>

#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "delivery/sink.h"
#include "envelope/schema.h"
#include "kafka/kafka_sink.h"
#include "postgres/connect.h"
#include "runtime/dead_letter_job.h"
#include "runtime/options.h"

namespace walpost::runtime {

// As postgres::Connect, which it is in production. Called on a helper thread, may block.
using Connector = std::function<std::variant<postgres::Connected, postgres::StreamEnd>(
    const postgres::ConnectOptions& options, base::Lsn start, const postgres::Guard& guard)>;

// As postgres::LookAgain. Called on a helper thread, may block.
using Looker = std::function<std::variant<base::SourceFacts, postgres::StreamEnd>(
    const postgres::ConnectOptions& options)>;

// As DeadLetterJob::Run. Called on a helper thread, may block.
using DeadLetterRunner = std::function<pipeline::DeadLetterReply(
    const DeadLetterStore& store, const pipeline::DeadLetterRequest& request)>;

// As registry::Resolver::Resolve. Called on a helper thread, may block.
using SchemaResolver =
    std::function<absl::StatusOr<envelope::Schema>(const envelope::SchemaNeed& need)>;

// Called on a helper thread and, for what it returns, on the loop thread: makes the world use these
// options.
using Reconfigure = std::function<absl::StatusOr<std::function<void()>>(const RunOptions& options)>;

struct Dependencies {
  Connector connect;
  delivery::Sink* sink = nullptr;
  const kafka::KafkaFacts* kafka = nullptr;
  // Needed where dead letters are written, or may be open.
  DeadLetterRunner dead_letters = {};
  std::function<void()> close_dead_letters = [] {};
  Looker look = {};                    // needed where connections set SourceFacts::looked_lsn
  SchemaResolver resolve_schema = {};  // needed where values are framed
  Reconfigure reconfigure = {};        // needed where RunOptions::reload is given
};

// What a test program puts around the real ones. Empty = nothing.
struct Wrappers {
  std::function<Connector(Connector)> connector;
  std::function<std::unique_ptr<delivery::Sink>(delivery::Sink*)> sink;
};

}  // namespace walpost::runtime
