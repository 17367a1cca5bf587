#include "base/log_event.h"

namespace walpost::base {

std::string_view LogEventName(LogEvent event) {
  switch (event) {
    case LogEvent::kStarted:
      return "started";
    case LogEvent::kStopping:
      return "stopping";
    case LogEvent::kStoppedAtOnce:
      return "stopped_at_once";
    case LogEvent::kStopped:
      return "stopped";
    case LogEvent::kConfigInvalid:
      return "config_invalid";
    case LogEvent::kConfigWarning:
      return "config_warning";
    case LogEvent::kHttpFailed:
      return "http_failed";
    case LogEvent::kHttpOpen:
      return "http_open";
    case LogEvent::kClearText:
      return "clear_text";
    case LogEvent::kDeliveredNotNoted:
      return "delivered_not_noted";
    case LogEvent::kOutboxAdopted:
      return "outbox_adopted";
    case LogEvent::kReloaded:
      return "reloaded";
    case LogEvent::kReloadNeedsRestart:
      return "reload_needs_restart";
    case LogEvent::kReloadRejected:
      return "reload_rejected";
    case LogEvent::kResume:
      return "resume";
    case LogEvent::kLibrary:
      return "library";
    case LogEvent::kFatal:
      return "fatal";
    case LogEvent::kStateChanged:
      return "state_changed";
    case LogEvent::kHalted:
      return "halted";
    case LogEvent::kSourceError:
      return "source_error";
    case LogEvent::kSourceBack:
      return "source_back";
    case LogEvent::kKafkaBrokersDown:
      return "kafka_brokers_down";
    case LogEvent::kKafkaBrokersBack:
      return "kafka_brokers_back";
    case LogEvent::kKafkaDeliveryFailed:
      return "kafka_delivery_failed";
    case LogEvent::kKafkaProducerFailed:
      return "kafka_producer_failed";
    case LogEvent::kKafkaProducerImpossible:
      return "kafka_producer_impossible";
    case LogEvent::kKafkaProducerReplaced:
      return "kafka_producer_replaced";
    case LogEvent::kKafkaDestroySlow:
      return "kafka_destroy_slow";
    case LogEvent::kKafkaTopicLimitsUnknown:
      return "kafka_topic_limits_unknown";
    case LogEvent::kKafkaTopicLookupFailed:
      return "kafka_topic_lookup_failed";
    case LogEvent::kKafkaError:
      return "kafka_error";
    case LogEvent::kKafkaLog:
      return "kafka_log";
    case LogEvent::kTopicPartitionsChanged:
      return "topic_partitions_changed";
    case LogEvent::kDeliveryStalled:
      return "delivery_stalled";
    case LogEvent::kDeliveryResumed:
      return "delivery_resumed";
    case LogEvent::kSchemaRegistryUnavailable:
      return "schema_registry_unavailable";
    case LogEvent::kSchemaRegistryBack:
      return "schema_registry_back";
    case LogEvent::kEventSkipped:
      return "event_skipped";
    case LogEvent::kEventDeadLettered:
      return "event_dead_lettered";
    case LogEvent::kEventParked:
      return "event_parked";
    case LogEvent::kDeadLettersForeign:
      return "dead_letters_foreign";
    case LogEvent::kDeadLetterTopicFailed:
      return "dead_letter_topic_failed";
    case LogEvent::kEventRetried:
      return "event_retried";
  }
  return "unknown";
}

}  // namespace walpost::base
