// Run - the verb `run`: the loop that drives a pipeline between PostgreSQL and Kafka until SIGTERM
// or SIGINT.
// Thread: the main thread is the loop; the helper's may block. Blocks SIGTERM, SIGINT
//   and SIGHUP, so call it before other threads exist. Returns the process's exit code: 0 after a
//   clean stop, base::HaltExitCode with on_halt=exit, 78 when an option is unusable (the message is
//   logged).
#pragma once

#include <functional>
#include <memory>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/lsn.h"
#include "delivery/sink.h"
#include "envelope/schema.h"
#include "kafka/kafka_sink.h"
#include "postgres/connect.h"
#include "runtime/dead_letter_job.h"
#include "runtime/options.h"

namespace walpost::runtime {

// Dependencies - what the loop is given: how it connects, where records go, what is known of
// Kafka.
// Why: tests put fakes in their places, or something that fails at a chosen moment around the real
//   ones; the loop is the same.
// Lifetime: what it points at must outlive the loop.

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

// Signals - SIGTERM, SIGINT and SIGHUP as a file descriptor.
// Why: a handler may do next to nothing; the loop wants to read them like anything else.
// Thread: construct before other threads start, so that they inherit the blocked mask.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_; }

  // The next pending signal's number, 0 when there is none.
  int Take();

 private:
  int fd_ = -1;
};

int Run(const RunOptions& options, const Wrappers& wrappers = {});

// What libpq and librdkafka would reject, found without connecting anywhere. kInvalidArgument.
absl::Status Validate(const RunOptions& options);

}  // namespace walpost::runtime
