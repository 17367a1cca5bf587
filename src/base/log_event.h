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

// ReportsSkippedPublication - the one notice of the server that means lost rows.
// Why here: postgres must not drop it, pipeline halts by it; neither may use the other's rule.
// Thread: any.
// Source: PostgreSQL 18, pgoutput.c, LoadPublications.

// PostgreSQL 18 only warns, and then skips rows; older servers end the stream instead. The function
// that warns has the same name in every language; the text is in the server's language.
inline bool ReportsSkippedPublication(std::string_view notice) {
  return notice.find("LoadPublications") != std::string_view::npos ||
         notice.find("skipped loading publication") != std::string_view::npos;
}

}  // namespace walpost::base
