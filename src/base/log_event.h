// LogEvent - the names of the log's lines: every line that walpost writes has one of these.
// Why here: operators search and alert by them, so they are stable; observe writes them, and kafka,
//   which may not use observe, reports events too. Each is a row of docs/logging.md.
#pragma once

#include <string_view>

namespace walpost::base {

enum class LogEvent {
  // The process.
  kStarted,
  kStopping,
  kStoppedAtOnce,
  kStopped,
  kConfigInvalid,
  kConfigWarning,
  kHttpFailed,
  kHttpOpen,
  kClearText,
  kDeliveredNotNoted,
  kOutboxAdopted,
  kReloaded,
  kReloadNeedsRestart,
  kReloadRejected,
  kResume,
  kLibrary,
  kFatal,
  // State.
  kStateChanged,
  kHalted,
  // PostgreSQL.
  kSourceError,
  kSourceBack,
  // Kafka.
  kKafkaBrokersDown,
  kKafkaBrokersBack,
  kKafkaDeliveryFailed,
  kKafkaProducerFailed,
  kKafkaProducerImpossible,
  kKafkaProducerReplaced,
  kKafkaDestroySlow,
  kKafkaTopicLimitsUnknown,
  kKafkaTopicLookupFailed,
  kKafkaError,
  kKafkaLog,
  kTopicPartitionsChanged,
  kTopicMadeAnew,
  kDeliveryStalled,
  kDeliveryResumed,
  // Schema Registry.
  kSchemaRegistryUnavailable,
  kSchemaRegistryBack,
  // One event.
  kEventSkipped,
  kEventDeadLettered,
  kEventParked,
  kEventRetried,
  kDeadLettersForeign,
  kDeadLetterTopicFailed,
};

// snake_case, as in the log: "state_changed".
std::string_view LogEventName(LogEvent event);

}  // namespace walpost::base
