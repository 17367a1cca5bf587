// DeadLetterJob - the blocking half of what Pipeline::TakeDeadLetterRequest asks for.
// Thread: that of its queue in the helper.
// Lifetime: the connection stays between requests, until Close.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/source_facts.h"
#include "kafka/dead_letter_outlet.h"
#include "pipeline/dead_letters.h"
#include "postgres/dead_letters.h"
#include "runtime/options.h"

namespace walpost::runtime {

// Where the table is, and the topic that gets a record of each dead letter.
struct DeadLetterStore {
  std::string conninfo;
  std::string application_name;
  std::optional<postgres::ServerAddress> server;  // the one that is streamed from; none = any
  std::string pipeline;
  postgres::DeadLetterTable::Source source;
  std::string topic;  // empty = none
  kafka::KafkaOptions kafka;
};

// `streamed_from`: of the last connection. Another server of its conninfo may be a primary that was
// replaced.
DeadLetterStore DeadLetterStoreOf(const RunOptions& options,
                                  const postgres::ConnectOptions& streamed_from,
                                  const base::SourceFacts& source);

class DeadLetterJob {
 public:
  static constexpr std::size_t kRowsAtATime = 100;

  pipeline::DeadLetterReply Run(const DeadLetterStore& store,
                                const pipeline::DeadLetterRequest& request);

  void Close() { table_.reset(); }

 private:
  absl::Status Open(const DeadLetterStore& store);
  absl::Status CarryOut(const pipeline::DeadLetterRequest& request,
                        pipeline::DeadLetterReply* reply);
  void PublishToTopic(const DeadLetterStore& store, const pipeline::DeadLetterRequest& request,
                      const pipeline::DeadLetterReply& reply);

  std::optional<postgres::DeadLetterTable> table_;
  std::string opened_;           // of table_: source, conninfo and server
  std::uint64_t open_rows_ = 0;  // when they were counted last, less what was delivered since
  std::optional<kafka::DeadLetterOutlet> outlet_;
};

}  // namespace walpost::runtime
