// KeyCommands - what an operator wants done with parked keys: commands in the log, which `run` does
// and answers.
// Thread: one owner; blocking.
// Errors: of Kafka. A command that stays unanswered is none: it stays in the log.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kafka/record_writer.h"
#include "operations/dlq.h"

namespace walpost::operations {

struct CommandAnswers {
  std::string text;      // a line for each command
  std::size_t open = 0;  // keys with events that are still undecided
};

class KeyCommands {
 public:
  // `action`: kRetry or kDiscard.
  KeyCommands(const DlqOptions& options, envelope::LetterAction action)
      : options_(options), action_(action), writer_(options.kafka, options.write_timeout) {}

  // A parked event. `alone`: a discard is about it and not about the whole key.
  void Add(const kafka::StoredLetter& stored, bool alone);

  // What Run would do.
  std::string Describe() const;

  // Appends what is not in the log already, and waits for the answers.
  absl::StatusOr<CommandAnswers> Run(const ReadLogResult& log, std::chrono::milliseconds wait);

 private:
  struct Target {
    envelope::LetterLog::Key key;
    std::string position;  // empty = the whole key
    std::size_t events = 0;
  };

  std::string Name(const Target& target) const;
  absl::StatusOr<std::int64_t> Append(const Target& target, const ReadLogResult& log);
  absl::Status Await(std::int64_t from_offset, std::chrono::milliseconds wait,
                     std::map<std::int64_t, const Target*>* open, CommandAnswers* answers) const;

  const DlqOptions& options_;
  const envelope::LetterAction action_;
  kafka::RecordWriter writer_;
  std::vector<Target> targets_;  // in the order of the log
  std::map<std::pair<envelope::LetterLog::Key, std::string>, std::size_t> index_;
};

}  // namespace walpost::operations
