// Dlq - what the verbs about dead letters share: which letters are meant, and the log as it stands.
// Why: the log is read twice: once for what it comes to, once for the letters themselves, so that
//   memory is that of a few records however large it is.
// Thread: values; ReadLog and VisitLetters block.
// Errors: as kafka::ReadLetters; ParseTime and CheckFilter: kInvalidArgument, for the one who typed.
// Source: docs/dead-letters.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "envelope/encoder.h"
#include "envelope/letter_log.h"
#include "kafka/kafka_sink.h"
#include "kafka/letters.h"
#include "outbox/options.h"
#include "postgres/connect.h"
#include "registry/options.h"

namespace walpost::operations {

struct DlqOutbox {
  outbox::TableOptions table;
  envelope::EncoderOptions encoder;
};

struct DlqOptions {
  std::string name;  // of the pipeline
  std::string topic;
  kafka::KafkaOptions kafka;
  postgres::ConnectOptions source;  // where the rows of stubs are
  std::vector<DlqOutbox> outboxes;
  envelope::EncoderOptions messages;  // of logical messages that are events
  registry::RegistryOptions registry;
  std::chrono::milliseconds kafka_timeout{15'000};
  std::chrono::milliseconds write_timeout{30'000};  // of each record
};

// Empty = any.
struct LetterFilter {
  std::string id;
  std::string position;
  std::string key;
  std::string type;
  std::string topic;
  std::string reason;
  std::optional<std::int64_t> since_ms;  // of the letter's record, both ends included
  std::optional<std::int64_t> until_ms;

  bool empty() const;

  // About a single event, and not about what shares something with it.
  bool one_event() const { return !id.empty() || !position.empty(); }

  bool Matches(const kafka::StoredLetter& stored) const;
};

// What cannot match anything is a slip of who typed it.
absl::Status CheckFilter(const LetterFilter& filter);

// RFC 3339 in milliseconds since 1970.
absl::StatusOr<std::int64_t> ParseTime(const std::string& text);

base::WallTime WallNow();

// What is known about a letter before it is looked at: nothing for records that are none.
struct LetterState {
  bool undecided = false;  // and the first record of its event
  const envelope::LetterLog::Decision* decision = nullptr;
};

struct ReadLogResult {
  envelope::LetterLog log;
  std::int64_t end = 0;  // offset behind what was read
};

absl::StatusOr<ReadLogResult> ReadLog(const DlqOptions& options, bool keep_decided);

using OnVisit = std::function<absl::Status(const kafka::StoredLetter&, const LetterState&)>;

// Every letter and parked event of `log` that is undecided or was decided, in order, without the
// repeats.
absl::Status VisitLetters(const DlqOptions& options, const ReadLogResult& log,
                          const OnVisit& on_visit);

// "topic 'x' is not there ..." for a log that does not exist.
std::string NoLog(const DlqOptions& options);

}  // namespace walpost::operations
