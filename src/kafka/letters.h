// ReadLetters - the dead-letter topic, which is a log, from its beginning or from where an earlier
// reading ended, up to its end as of the call.
// Why: verbs show and decide letters, `run` learns which keys are parked; both need every record of
//   one pipeline in order. Another pipeline's records, or somebody else's, are passed over.
// Thread: blocking, any.
// Lifetime: views in StoredLetter end with the callback.
// Units/limits: `timeout` is for each step, not for the whole: the log may be large. Few bytes are
//   held at a time besides the record that is read, which may be as large as the topic takes.
// Errors: kNotFound (no such topic), kPermissionDenied, kFailedPrecondition (not one partition, or
//   it ends before `from_offset`: it was deleted and made again), kDataLoss (a record of this
//   pipeline that cannot be read; says where), kUnavailable (Kafka does not answer, which passes by
//   itself); and what the callback returns.
// Source: docs/dead-letters.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "envelope/letter.h"
#include "envelope/record.h"
#include "kafka/kafka_sink.h"

namespace walpost::kafka {

struct LetterPlace {
  std::string topic;
  std::string pipeline;
  std::int64_t from_offset = 0;
  // Beyond the end: how long to wait for what is written meanwhile. Ends early only by the callback.
  std::chrono::milliseconds follow{0};
};

struct StoredLetter {
  std::int64_t offset = 0;
  std::int64_t timestamp_ms = 0;  // of the record in this topic: when it was decided
  std::optional<std::string_view> key;
  std::optional<std::string_view> value;
  std::span<const envelope::RecordHeader> headers;  // all; the event's by envelope::EventHeaders
  envelope::Letter letter;
};

// An error ends the reading.
using OnLetter = std::function<absl::Status(const StoredLetter&)>;

// The offset that the next reading begins at: the end of the topic.
absl::StatusOr<std::int64_t> ReadLetters(const KafkaOptions& options, const LetterPlace& place,
                                         const OnLetter& on_letter,
                                         std::chrono::milliseconds timeout);

}  // namespace walpost::kafka
