// TopicMemory - what is known of topics from one producer session to the next.
// Why: a session ends with each record that Kafka rejects, and what was learned must not go with it.
// Thread: loop thread; values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "kafka/topic_limits.h"

namespace walpost::kafka {

// What look-ups said of a topic that a record was held against.
struct TopicAnswer {
  std::size_t partitions = 0;
  std::optional<std::int64_t> message_bytes_max;
  bool compacts = false;

  bool operator==(const TopicAnswer&) const = default;
};

// What outlives sessions. It changes only at a look-up, or with a record that needs more.
struct TopicMemory {
  struct Partitions {
    std::int32_t count = 0;
    bool made_anew = false;  // since then; the new topic may have fewer
    // Every look-up says so, and none was long ago.
    std::optional<base::MonotonicTime> fewer_since;
    base::MonotonicTime asked_at;
  };

  std::map<std::string, Partitions> partitions;  // by topic
  std::set<std::string>
      reported_unlimited;             // topics that the log has named as topics without a limit
  base::MonotonicTime describe_from;  // nobody answered before: asking again would only delay
  ProducerLimits limits;
  // By topic, limits under which it rejected a time that they allow: until others are read, they say too
  // little.
  std::map<std::string, TopicLimits> rejected_times;

  struct Rejecting {
    TopicAnswer answer;
    base::MonotonicTime since;  // no look-up has said anything else
    base::MonotonicTime asked_at;
  };

  std::map<std::string, Rejecting> rejecting;  // by topic
  std::map<std::string, TopicLimits>
      read_limits;  // by topic, where they may be read: the last ones

  // What brokers said of the leaders of a topic that had rejected a record.
  struct LeadersAsked {
    std::vector<std::int32_t> leaders;
    bool agreed = false;
    base::MonotonicTime at;
  };

  std::map<std::string, LeadersAsked> leaders_asked;  // by topic
  base::MonotonicTime replace_from;  // no producer is replaced sooner for what brokers say
  // A producer was replaced because its broker was behind. The next one may have met the same.
  bool compare_leaders = false;
};

}  // namespace walpost::kafka
