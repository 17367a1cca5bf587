// Resender - decides one letter whose key is not parked: sends its event again, or not, and says so
// in the log.
// Why: the decision is written once the event is acknowledged, so that a crash in between sends it
//   twice and never not at all.
// Thread: one owner; blocking.
// Errors: why the letter is still undecided.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kafka/record_writer.h"
#include "operations/dlq.h"
#include "operations/framer.h"
#include "operations/stub_row.h"

namespace walpost::operations {

class Resender {
 public:
  explicit Resender(const DlqOptions& options);

  // What was done, in words.
  absl::StatusOr<std::string> Retry(const kafka::StoredLetter& stored, const std::string& to_topic);
  absl::StatusOr<std::string> Discard(const kafka::StoredLetter& stored);

 private:
  absl::StatusOr<envelope::Record> FramedLetter(const envelope::Record& record,
                                                const envelope::Letter& letter);
  std::uint32_t SourceOf(const std::string& table) const;
  absl::Status WriteDecision(const kafka::StoredLetter& stored, envelope::LetterAction action);

  const DlqOptions& options_;
  kafka::RecordWriter writer_;
  StubRow rows_;
  Framer framer_;
  base::ChunkArena arena_;  // of the record that is sent
};

}  // namespace walpost::operations
