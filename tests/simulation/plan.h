// Plan - what one history is made of; all of it follows from the seed, unless something was
// switched off or cut to make a failing history smaller.
// Why: every history has a random few kinds of faults only. With all of them on at once none gets
//   far enough to matter.
// Thread: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pipeline/options.h"

namespace walpost::simulation {

// Of the pipeline, and a topic of its own that no event may name.
inline constexpr char kPipelineName[] = "orders";
inline constexpr char kDeadLetterTopic[] = "walpost-dlq";
// More than any other event has.
inline constexpr std::size_t kEventBytesMax = 8'000;

// Kinds that can be switched off one by one. From gathering on they are kinds of load. New ones
// come last and are drawn apart, so that a seed means what it meant before.
#define WALPOST_SIMULATION_FAULTS(X) \
  X(connection_loss)                 \
  X(connect_failure)                 \
  X(slot_in_use)                     \
  X(server_crash)                    \
  X(server_stop)                     \
  X(server_error)                    \
  X(poison_wal)                      \
  X(operator_halt)                   \
  X(failover)                        \
  X(failover_loses)                  \
  X(slot_moved)                      \
  X(slot_made_anew)                  \
  X(other_cluster)                   \
  X(replaced)                        \
  X(edited)                          \
  X(announced_again)                 \
  X(set_back)                        \
  X(taken_over)                      \
  X(status_delay)                    \
  X(slow_server)                     \
  X(kafka_outage)                    \
  X(kafka_long_outage)               \
  X(kafka_failure)                   \
  X(kafka_session)                   \
  X(kafka_not_now)                   \
  X(kafka_slow_close)                \
  X(kafka_silent_close)              \
  X(kafka_late_landing)              \
  X(kafka_poison)                    \
  X(kafka_forgets)                   \
  X(kafka_made_anew)                 \
  X(kafka_stuck)                     \
  X(topics_unknown)                  \
  X(progress_rejected)               \
  X(progress_unreadable)             \
  X(progress_deleted)                \
  X(dead_letters_unreachable)        \
  X(dead_letters_unusable)           \
  X(undeliverable_rows)              \
  X(operator_commands)               \
  X(policy_change)                   \
  X(walpost_crash)                   \
  X(walpost_stop)                    \
  X(planned_reconnect)               \
  X(slow_catch_up)                   \
  X(gathering)                       \
  X(small_limit)                     \
  X(large_transactions)              \
  X(ddl)                             \
  X(messages)                        \
  X(savepoints)                      \
  X(promoted)                        \
  X(progress_compacted)              \
  X(silent_loss)                     \
  X(adopted)

enum class Fault : unsigned {
#define WALPOST_FAULT_NAME(name) name,
  WALPOST_SIMULATION_FAULTS(WALPOST_FAULT_NAME)
#undef WALPOST_FAULT_NAME
      count_
};

class Faults {
 public:
  bool Has(Fault fault) const { return (bits_ >> static_cast<unsigned>(fault) & 1U) != 0; }

  void Add(Fault fault) { bits_ |= std::uint64_t{1} << static_cast<unsigned>(fault); }

  void Remove(Fault fault) { bits_ &= ~(std::uint64_t{1} << static_cast<unsigned>(fault)); }

  void RemoveAll(Faults others) { bits_ &= ~others.bits_; }

  // "connection_loss,ddl"; empty when there is none.
  std::string ToString() const;
  // false for a name that is no fault.
  bool Parse(std::string_view names);

 private:
  std::uint64_t bits_ = 0;
};

struct Plan {
  std::uint64_t seed = 0;
  Faults faults;
  std::uint64_t transactions = 0;  // written while faults happen
  std::uint64_t turns = 0;         // of the loop, while faults happen
  std::uint64_t tables = 1;        // outboxes
  bool adopts = false;             // the last of them later than the others
  std::uint64_t keys = 1;
  std::int64_t wal_sender_timeout_ms = 60'000;
  bool empty_transactions_sent = false;  // as PostgreSQL 14 and older do
  bool raw = false;                      // the value's format
  bool framed = false;                   // values need a schema of a registry
  pipeline::PipelineOptions options;

  bool remembers() const { return !options.progress_topic.empty(); }

  // How it is named on the command line.
  std::string ToString() const;
};

struct Cuts {
  Faults without;
  std::uint64_t transactions_max = UINT64_MAX;
  std::uint64_t turns_max = UINT64_MAX;

  std::string ToString() const;
};

Plan MakePlan(std::uint64_t seed, const Cuts& cuts);

}  // namespace walpost::simulation
