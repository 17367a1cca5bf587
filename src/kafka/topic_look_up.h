// Topic look-up - asks brokers whether topics exist, how many partitions they have, and what
// records they take.
// Why: a sink must know a topic before it may send to it. Many topics that do not exist must cost
//   neither time nor memory: a librdkafka client keeps every topic that it was asked about until it
//   is destroyed, so many are asked about with a client that ends with the question.
// Thread: blocking, on a helper thread; FindUnseenTopics any.
// Units/limits: one question waits kAnswerTimeout at most; AskAboutTopics begins no other after
// kJobFor.
#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "delivery/lasting_rejections.h"
#include "kafka/client.h"
#include "kafka/kafka_sink.h"
#include "kafka/topic_limits.h"

namespace walpost::kafka {

// TopicMemory - what is known of topics from one producer session to the next.
// Why: a session ends with each record that Kafka rejects, and what was learned must not go with
// it.
// Thread: loop thread; values.

// What outlives sessions. It changes only at a look-up, or with a record that needs more.
struct TopicMemory {
  explicit TopicMemory(std::chrono::milliseconds unknown_topic_wait)
      : rejections(unknown_topic_wait) {}

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
  // Each broker is asked with a client of its own, which connects anew: not for each row of a
  // writer.
  base::MonotonicTime look_up_from;
  // They did not answer: until then look-ups do not wait for them once more.
  std::set<std::int32_t> silent_brokers;
  base::MonotonicTime silent_until;
  ProducerLimits limits;
  // By topic, limits under which it rejected a time that they allow: until others are read, they
  // say too little.
  std::map<std::string, TopicLimits> rejected_times;

  delivery::LastingRejections rejections;  // by what was looked up
  std::map<std::string, TopicLimits>
      read_limits;  // by topic, where they may be read: the last ones

  // What brokers said of the leaders of a topic that had rejected a record.
  struct LeadersAsked {
    std::vector<std::int32_t> leaders;
    bool agreed = false;
    base::MonotonicTime at;
  };

  std::map<std::string, LeadersAsked> leaders_asked;  // by topic
  // By topic, when a broker contradicted another one that rejected it or a record of it.
  std::map<std::string, base::MonotonicTime> contradicted_at;

  // No rejection from before `now` counts towards one that must last.
  void OnContradicted(const std::string& topic, base::MonotonicTime now) {
    contradicted_at.insert_or_assign(topic, now);
  }

  std::optional<base::MonotonicTime> ContradictedAt(const std::string& topic) const {
    const auto found = contradicted_at.find(topic);
    return found == contradicted_at.end() ? std::nullopt : std::optional(found->second);
  }

  base::MonotonicTime replace_from;  // no producer is replaced sooner for what brokers say
  // A producer was replaced because its broker was behind. The next one may have met the same.
  bool compare_leaders = false;
};

// A broker learns of a new topic a moment after the one that made it, so that a single "unknown"
// proves nothing: it counts when no broker has known it for this long.
constexpr std::chrono::milliseconds kUnknownFor{3'000};

constexpr std::chrono::milliseconds kAnswerTimeout{2'000};
constexpr std::chrono::milliseconds kJobFor{200};

struct TopicQuestion {
  std::string name;
  // What the producer keeps with the topic, from its first question about it for ever.
  void* opaque = nullptr;
  bool producer_asked = false;
  bool asked = false;                                            // else there was no time for it
  rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;        // of the request
  rd_kafka_resp_err_t topic_error = RD_KAFKA_RESP_ERR_NO_ERROR;  // of the topic
  std::int32_t partitions = 0;
  delivery::Sequence received_below = 0;  // when it was asked
  std::int32_t partitions_wanted = 0;     // that are known, or all that any broker knows
  // It is said not to be there, not to be ours to describe, or to have fewer partitions than are
  // wanted, and another broker says that it has so many. 0 = none does.
  std::int32_t partitions_elsewhere = 0;
  // It is said to be so, and nobody answers on a new connection.
  bool alone = false;
  std::vector<std::int32_t> leaders;  // of the partitions; -1 = none
  absl::StatusOr<TopicLimits> limits = absl::UnavailableError("Kafka did not answer before");

  bool disputed() const { return partitions_elsewhere > 0; }
};

// For another broker to answer, which may be the only one that knows a topic or a right, and not
// the nearest: a new connection takes some round trips. It costs nothing while all brokers that are
// listed answer, since then nobody is waited for.
constexpr std::chrono::milliseconds kNextBrokerForLookUp{1'000};

// Of the brokers, when each one was asked.
enum class Answered : std::uint8_t { kNone, kSome, kEach, kNotAsked };

// One look-up.
struct TopicQuestions {
  std::vector<TopicQuestion> each;
  std::set<std::int32_t> silent_brokers;  // not to be waited for; afterwards: that did not answer
  Answered answered = Answered::kNotAsked;
};

// One after the other, so that the producer knows them too. With their limits if `describe`. What
// looks wrong is asked of each broker, with a client of its own: of each that is listed by those
// that answer, until none has for a second, or for a moment where only silent ones are left.
void AskAboutTopics(const KafkaOptions& options, rd_kafka_t* producer, bool describe,
                    TopicQuestions* questions);

// Whether some broker names another leader of a partition than `leaders`, by topic. Nothing: none
// has answered.
std::optional<bool> LeadersMoved(const KafkaOptions& options,
                                 const std::map<std::string, std::vector<std::int32_t>>& leaders);

// That all brokers name the same leaders is believed for so long: one that is cut off loses its
// partitions after broker.session.timeout.ms, which is 9 s.
inline constexpr std::chrono::milliseconds kLeadersKept{5'000};

// Whether a topic's leaders are those who are asked about.
enum class Leadership : std::uint8_t {
  kAgreed,    // a broker says so, and each other one that answers
  kDisputed,  // a broker names another one
  kUnsaid     // nobody answers, or one that does says nothing of the topic's partitions
};

// What the brokers say of these leaders of the topic's partitions; of none: whether they name the
// same ones. They are the brokers that are listed by those that answer. One that does not answer
// within 3 s of the last one is not heard.
Leadership AskWhoLeads(const KafkaOptions& options, const std::string& topic,
                       std::vector<std::int32_t> leaders);

// All at once, with a client of its own: who asks keeps each topic for ever. Answers those that do
// not exist or may not be described; the rest stay open.
void AskWhichTopicsAreRejected(const KafkaOptions& options, TopicQuestions* questions);

// Why a topic is not seen.
enum class Unseen : std::uint8_t {
  kUnknown,  // no broker knows it
  kHidden  // walpost's Kafka user may not describe it, so neither read nor write it; there may be none
};

using UnseenTopics = std::map<std::string, Unseen>;

// How long all brokers must say so before it is believed.
struct UnseenFor {
  std::chrono::milliseconds unknown = kUnknownFor;
  std::chrono::milliseconds hidden = kUnknownFor;
};

// Those of `names` that are not seen: one wait for all of them, and none when all are known. "All
// brokers" are those that are listed by those that answer.
// Errors: kUnavailable when one of them does not answer for `timeout`, or nobody does: it may know
//   a topic that the others do not know. While all answer, no time is too short.
absl::StatusOr<UnseenTopics> FindUnseenTopics(const KafkaOptions& options,
                                              std::vector<std::string> names,
                                              std::chrono::milliseconds timeout,
                                              const UnseenFor& unseen_for);

}  // namespace walpost::kafka
