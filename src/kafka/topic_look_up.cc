#include "kafka/topic_look_up.h"

#include <poll.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "delivery/sink.h"
#include "kafka/client.h"
#include "kafka/held_rejections.h"

namespace walpost::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

using delivery::FailureKind;

constexpr std::size_t kNamesTogether = 1'000;
constexpr int kNamesAgainAfterMs = 500;
constexpr int kUnheardMin = 2;  // questions in a row
// For an answer that decides about an event. A broker that is busy gets more time than where
// another answer will do.
constexpr std::chrono::milliseconds kNextBrokerForDecision{3'000};
// For the first answer to a new client, which takes up to eight round trips, with TLS and a login.
// Below Dispatcher::kReportWaitMin: a rejection that is asked about is waited for so long at first.
constexpr std::chrono::milliseconds kFirstAnswerTimeout{4'000};
constexpr std::chrono::milliseconds kSilentBrokerFor{100};
constexpr int kAfterErrorMs = 10;
constexpr int kAnswerTimeoutMs = static_cast<int>(kAnswerTimeout.count());

void AskAboutTopic(rd_kafka_t* producer, std::chrono::milliseconds limits_timeout, bool describe,
                   TopicQuestion* question) {
  question->asked = true;
  question->producer_asked = true;
  const Topic handle = NewTopic(producer, question->name, question->opaque);
  if (handle == nullptr) {
    question->topic_error = RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION;  // no legal name
    return;
  }
  const rd_kafka_metadata_t* raw = nullptr;
  question->error = rd_kafka_metadata(producer, 0, handle.get(), &raw, kAnswerTimeoutMs);
  const Metadata metadata(raw);
  if (question->error == RD_KAFKA_RESP_ERR_NO_ERROR && metadata->topic_cnt == 1) {
    question->topic_error = metadata->topics[0].err;
    question->partitions = metadata->topics[0].partition_cnt;
    question->leaders = LeadersOf(metadata->topics[0]);
  }
  if (question->partitions > 0 && describe) {
    question->limits = ReadTopicLimits(producer, question->name, limits_timeout);
  }
}

using OnTopic = std::function<void(const rd_kafka_metadata_topic_t& topic)>;

// About all of them, with a client of its own: what each broker says. Those of `silent` are not
// waited for; afterwards it has those that did not answer.
Answered AskEachBroker(const KafkaOptions& options, const std::vector<std::string>& names,
                       const OnTopic& on_topic, std::chrono::milliseconds next_broker_for,
                       std::set<std::int32_t>* silent = nullptr) {
  const absl::StatusOr<Producer> client = MakeClient(options, RD_KAFKA_PRODUCER);
  if (!client.ok()) {
    return Answered::kNone;  // the producer's own requests will show it
  }
  // Without their own handles the request would not be about them.
  std::vector<Topic> handles;
  for (const std::string& name : names) {
    handles.emplace_back(rd_kafka_topic_new(client->get(), name.c_str(), nullptr));
  }
  Brokers brokers;
  auto until = steady_clock::now() + kFirstAnswerTimeout;
  do {
    const rd_kafka_metadata_t* raw = nullptr;
    const rd_kafka_resp_err_t error = rd_kafka_metadata(
        client->get(), 0, nullptr, &raw, std::max(1, static_cast<int>(TimeLeft(until).count())));
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR && error != RD_KAFKA_RESP_ERR__TIMED_OUT) {
      rd_kafka_poll(client->get(), kAfterErrorMs);  // a connection was lost: the others may answer
      continue;
    }
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
      break;  // also where the time ends before a broker far away has answered once more
    }
    const Metadata metadata(raw);
    const std::size_t answered = brokers.answered.size();
    brokers.OnAnswer(*metadata);
    if (brokers.answered.size() > answered) {
      const std::set<std::int32_t> left = brokers.unanswered();
      const bool only_silent = silent != nullptr && std::includes(silent->begin(), silent->end(),
                                                                  left.begin(), left.end());
      until = steady_clock::now() + (only_silent ? kSilentBrokerFor : next_broker_for);
      for (int i = 0; i < metadata->topic_cnt; ++i) {
        on_topic(metadata->topics[i]);
      }
    }
    rd_kafka_poll(client->get(), 1);
  } while (!brokers.all_answered() && steady_clock::now() < until);
  if (brokers.answered.empty()) {
    return Answered::kNone;
  }
  if (silent != nullptr) {
    *silent = brokers.unanswered();
  }
  return brokers.all_answered() ? Answered::kEach : Answered::kSome;
}

// What counts most of what brokers say: one that does not know a topic may not have heard of it,
// and one that hides it may not have heard of a right.
int WeightOf(rd_kafka_resp_err_t error) {
  switch (Classify(error)) {
    case FailureKind::kTopicUnknown:
      return 0;
    case FailureKind::kTopicNotAuthorized:
      return 1;
    default:
      return error == RD_KAFKA_RESP_ERR_NO_ERROR ? 3 : 2;
  }
}

// What Kafka says of each: a topic that some broker knows is there.
void AskTogether(const KafkaOptions& options, TopicQuestions* questions,
                 milliseconds next_broker_for = kNextBrokerForLookUp) {
  std::vector<std::string> names;
  std::map<std::string_view, TopicQuestion*> by_name;
  for (TopicQuestion& question : questions->each) {
    names.push_back(question.name);
    by_name.emplace(question.name, &question);
  }
  std::set<std::string_view> answered;
  const auto on_topic = [&](const rd_kafka_metadata_topic_t& topic) {
    const auto found = by_name.find(topic.topic);
    if (found == by_name.end()) {
      return;
    }
    TopicQuestion& question = *found->second;
    question.partitions = std::max(question.partitions, topic.partition_cnt);
    if (answered.insert(found->first).second ||
        WeightOf(topic.err) > WeightOf(question.topic_error)) {
      question.topic_error = topic.err;
    }
  };
  questions->answered = std::min(
      questions->answered,
      AskEachBroker(options, names, on_topic, next_broker_for, &questions->silent_brokers));
}

// Of those that are not there, may not be described, or have fewer partitions than before, by what
// one broker says.
void FindDisputed(const KafkaOptions& options, TopicQuestions* questions) {
  TopicQuestions again{.each = {}, .silent_brokers = questions->silent_brokers};
  std::vector<TopicQuestion*> doubtful;
  for (TopicQuestion& question : questions->each) {
    const FailureKind answer = Classify(question.topic_error);
    const bool rejected =
        answer == FailureKind::kTopicUnknown || answer == FailureKind::kTopicNotAuthorized;
    const bool fewer = question.partitions > 0 && question.partitions < question.partitions_wanted;
    if (question.producer_asked && (rejected || fewer)) {
      doubtful.push_back(&question);
      again.each.emplace_back().name = question.name;
    }
  }
  if (again.each.empty()) {
    return;
  }
  AskTogether(options, &again);
  for (std::size_t i = 0; i < again.each.size(); ++i) {
    if (again.answered == Answered::kNone) {
      doubtful[i]->alone = true;
    } else if (again.each[i].topic_error == RD_KAFKA_RESP_ERR_NO_ERROR &&
               again.each[i].partitions > doubtful[i]->partitions) {
      doubtful[i]->partitions_elsewhere = again.each[i].partitions;
    }
  }
  questions->answered = std::min(questions->answered, again.answered);
  questions->silent_brokers = std::move(again.silent_brokers);
}

// A leader than `known` has; one that is not there is none.
bool NamesAnother(const std::vector<std::int32_t>& named, const std::vector<std::int32_t>& known) {
  for (std::size_t i = 0; i < std::min(named.size(), known.size()); ++i) {
    if (named[i] >= 0 && named[i] != known[i]) {
      return true;
    }
  }
  return false;
}

}  // namespace

void AskAboutTopics(const KafkaOptions& options, rd_kafka_t* producer, bool describe,
                    TopicQuestions* questions) {
  const auto until = steady_clock::now() + kJobFor;
  for (TopicQuestion& question : questions->each) {
    if (question.asked) {
      continue;
    }
    AskAboutTopic(producer, options.limits_timeout, describe, &question);
    if (steady_clock::now() >= until) {
      break;
    }
  }
  FindDisputed(options, questions);
}

std::optional<bool> LeadersMoved(const KafkaOptions& options,
                                 const std::map<std::string, std::vector<std::int32_t>>& leaders) {
  std::vector<std::string> names;
  for (const auto& [name, of_partitions] : leaders) {
    names.push_back(name);
  }
  bool moved = false;
  const Answered answered = AskEachBroker(
      options, names,
      [&](const rd_kafka_metadata_topic_t& topic) {
        const auto found = leaders.find(topic.topic);
        if (found == leaders.end() || topic.err != RD_KAFKA_RESP_ERR_NO_ERROR) {
          return;
        }
        moved = moved || NamesAnother(LeadersOf(topic), found->second);
      },
      kNextBrokerForLookUp);
  return answered == Answered::kNone ? std::nullopt : std::optional(moved);
}

Leadership AskWhoLeads(const KafkaOptions& options, const std::string& topic,
                       std::vector<std::int32_t> leaders) {
  bool agreed = false;
  bool disputed = false;
  bool unsaid = false;
  AskEachBroker(
      options, {topic},
      [&](const rd_kafka_metadata_topic_t& answer) {
        if (answer.topic != topic) {
          return;
        }
        // With an error it names nobody, so it neither agrees nor contradicts.
        const bool names = answer.err == RD_KAFKA_RESP_ERR_NO_ERROR;
        const std::vector<std::int32_t> named =
            names ? LeadersOf(answer) : std::vector<std::int32_t>();
        if (leaders.empty()) {
          leaders = named;
        }
        agreed = agreed || (names && named == leaders);
        unsaid = unsaid || !names || named != leaders;
        disputed = disputed || NamesAnother(named, leaders);
      },
      kNextBrokerForDecision);
  if (disputed) {
    return Leadership::kDisputed;
  }
  return agreed && !unsaid ? Leadership::kAgreed : Leadership::kUnsaid;
}

void AskWhichTopicsAreRejected(const KafkaOptions& options, TopicQuestions* questions) {
  AskTogether(options, questions);
  for (TopicQuestion& question : questions->each) {
    const FailureKind answer = Classify(question.topic_error);
    question.asked =
        answer == FailureKind::kTopicUnknown || answer == FailureKind::kTopicNotAuthorized;
    if (!question.asked) {
      question.topic_error = RD_KAFKA_RESP_ERR_NO_ERROR;
    }
  }
}

namespace {

// Whether they are there. `silent` brokers may know.
absl::Status Undecided(const std::vector<std::string>& names, Answered answered,
                       const std::set<std::int32_t>& silent) {
  const std::string which = names.size() == 1 ? absl::StrFormat("topic '%s' is", names.front())
                                              : absl::StrFormat("topic '%s' and %d others are",
                                                                names.front(), names.size() - 1);
  if (answered == Answered::kNone) {
    return absl::UnavailableError(
        absl::StrFormat("Kafka does not answer whether %s there: check bootstrap.servers and the "
                        "network",
                        which));
  }
  return absl::UnavailableError(absl::StrFormat(
      "%s not known, and not every broker was heard: broker %s does not answer. It may know what "
      "the "
      "others do not know: start it, or check the network between it and walpost, and try again",
      which, absl::StrJoin(silent, ", ")));
}

}  // namespace

absl::StatusOr<UnseenTopics> FindUnseenTopics(const KafkaOptions& options,
                                              std::vector<std::string> names, milliseconds timeout,
                                              const UnseenFor& unseen_for) {
  UnseenTopics unseen;
  const auto began = steady_clock::now();
  auto heard_at = began;  // all of them
  int unheard = 0;
  milliseconds next_broker_for = kNextBrokerForLookUp;
  for (;;) {
    const auto asked_after = steady_clock::now() - began;
    std::vector<std::string> again;
    Answered answered = Answered::kEach;
    std::set<std::int32_t> silent;  // waited for once, not for each thousand names
    for (std::size_t first = 0; first < names.size(); first += kNamesTogether) {
      TopicQuestions questions{.each = {}, .silent_brokers = silent};
      for (std::size_t i = first; i < std::min(first + kNamesTogether, names.size()); ++i) {
        questions.each.emplace_back().name = names[i];
      }
      AskTogether(options, &questions, next_broker_for);
      answered = std::min(answered, questions.answered);
      silent = std::move(questions.silent_brokers);
      for (const TopicQuestion& question : questions.each) {
        const FailureKind answer = Classify(question.topic_error);
        const bool unknown = answer == FailureKind::kTopicUnknown;
        const bool is_unseen = unknown || answer == FailureKind::kTopicNotAuthorized;
        unseen.erase(question.name);
        if (is_unseen) {
          unseen.emplace(question.name, unknown ? Unseen::kUnknown : Unseen::kHidden);
        }
        const bool lasts = asked_after >= (unknown ? unseen_for.unknown : unseen_for.hidden);
        if (questions.answered == Answered::kNone ||
            (is_unseen && !(lasts && questions.answered == Answered::kEach))) {
          again.push_back(question.name);
        }
      }
    }
    names = std::move(again);
    if (names.empty()) {
      return unseen;
    }
    if (answered == Answered::kEach) {
      heard_at = steady_clock::now();
      unheard = 0;
    } else {  // a broker may be slow, or far away
      next_broker_for = std::min(2 * next_broker_for, std::max(timeout, next_broker_for));
      ++unheard;  // one pass over many names may take longer than `timeout`
    }
    if (unheard >= kUnheardMin && TimeLeft(heard_at + timeout).count() == 0) {
      return Undecided(names, answered, silent);
    }
    poll(nullptr, 0, kNamesAgainAfterMs);
  }
}

}  // namespace walpost::kafka
