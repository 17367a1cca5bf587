#include "kafka/agreed_leaders.h"

#include <poll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace walpost::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kAskAgainAfterMs = 200;

struct Opened {
  Producer client;
  std::vector<std::int32_t> leaders;
};

absl::Status Disputed(const std::string& topic, const std::string& dispute) {
  return absl::UnavailableError(absl::StrFormat(
      "topic '%s': %s: one of them may be cut off from Kafka's controller and not know what the "
      "other one has. Connect that broker again, or stop it",
      topic, dispute));
}

absl::StatusOr<Opened> OpenAtAgreedLeaders(const KafkaOptions& options, const std::string& topic,
                                           Isolation isolation, milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  const auto denied_at = std::min(deadline, steady_clock::now() + kUnknownFor);
  std::string dispute;
  for (;;) {
    Opened opened;  // only a new client asks each broker
    ASSIGN_OR_RETURN(opened.client, MakeClient(options, RD_KAFKA_CONSUMER, {}, isolation));
    absl::StatusOr<TopicLeaders> answer =
        AskForLeaders(opened.client.get(), topic, TimeLeft(deadline));
    if (answer.ok() && answer->dispute.empty()) {
      opened.leaders = std::move(answer->leaders);
      return opened;
    }
    if (answer.ok()) {
      dispute = std::move(answer->dispute);
      if (TimeLeft(deadline).count() == 0) {
        return Disputed(topic, dispute);
      }
    } else if (absl::IsPermissionDenied(answer.status()) && denied_at == deadline &&
               TimeLeft(denied_at).count() == 0) {
      return absl::UnavailableError(answer.status().message());  // there was no time to believe it
    } else if (!absl::IsPermissionDenied(answer.status()) || TimeLeft(denied_at).count() == 0) {
      return absl::IsUnavailable(answer.status()) && !dispute.empty() ? Disputed(topic, dispute)
                                                                      : answer.status();
    }
    poll(nullptr, 0, kAskAgainAfterMs);
  }
}

}  // namespace

absl::StatusOr<Producer> AskAgreedLeaders(const KafkaOptions& options, const std::string& topic,
                                          milliseconds timeout, const AskLeaders& ask,
                                          Isolation isolation) {
  const auto deadline = steady_clock::now() + timeout;
  for (;;) {
    ASSIGN_OR_RETURN(
        const Opened before,
        OpenAtAgreedLeaders(options, topic, Isolation::kReadUncommitted, TimeLeft(deadline)));
    const rd_kafka_resp_err_t error =
        ask(before.client.get(), static_cast<std::int32_t>(before.leaders.size()));
    // A client forgets a partition when a broker answers it that does not know of it yet.
    const bool forgotten = error == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
    const bool last = TimeLeft(deadline).count() == 0;
    if (!forgotten || last) {
      RETURN_IF_ERROR(FoundTopicStatus(topic, error));
    }
    ASSIGN_OR_RETURN(Opened after,
                     OpenAtAgreedLeaders(options, topic, isolation, TimeLeft(deadline)));
    if (!forgotten && after.leaders == before.leaders) {
      return std::move(after.client);
    }
    if (last) {
      return absl::UnavailableError(
          absl::StrFormat("topic '%s': its leaders move: try again", topic));
    }
  }
}

}  // namespace walpost::kafka
