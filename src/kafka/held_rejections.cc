#include "kafka/held_rejections.h"

#include <algorithm>
#include <utility>

namespace walpost::kafka {

void HeldRejections::Ask() {
  if (question_ != nullptr || held_.empty()) {
    return;
  }
  // So that one topic whose brokers do not agree keeps no other one waiting.
  const auto asked_at = [this](const Held& held) {
    const auto found = memory_->leaders_asked.find(held.topic);
    return found == memory_->leaders_asked.end() ? base::MonotonicTime() : found->second.at;
  };
  const auto next = std::min_element(held_.begin(), held_.end(), [&](const Held& a, const Held& b) {
    return asked_at(a) < asked_at(b);
  });
  question_ = std::make_shared<Question>();
  question_->topic = next->topic;
  question_->leaders = next->leaders;
  runner_->Run(
      [question = question_, options = options_] {
        if (!question->given_up) {
          question->answer = AskWhoLeads(options, question->topic, question->leaders);
        }
      },
      [question = question_] { question->answered = true; });
}

std::vector<HeldRejections::Held> HeldRejections::TakeDecided(base::MonotonicTime now) {
  const std::shared_ptr<Question> asked = answered() ? std::exchange(question_, nullptr) : nullptr;
  if (asked != nullptr) {
    memory_->leaders_asked[asked->topic] = {asked->leaders, asked->answer == Leadership::kAgreed,
                                            now};
  }
  std::vector<Held> decided;
  for (Held& held : std::exchange(held_, {})) {
    if (IsKnownToLead(held, now)) {
      decided.push_back(std::move(held));
    } else if (asked != nullptr && asked->topic == held.topic && asked->leaders == held.leaders) {
      RejectAgainLater(asked->answer, &held);
      decided.push_back(std::move(held));
    } else {
      held_.push_back(std::move(held));
    }
  }
  return decided;
}

bool HeldRejections::IsKnownToLead(const Held& held, base::MonotonicTime now) const {
  const auto found = memory_->leaders_asked.find(held.topic);
  return found != memory_->leaders_asked.end() && found->second.agreed &&
         found->second.leaders == held.leaders && now < found->second.at + kLeadersKept;
}

// By another producer, which may ask another broker.
void HeldRejections::RejectAgainLater(Leadership answer, Held* held) {
  const bool disputed = answer == Leadership::kDisputed;
  held->failure.kind = delivery::FailureKind::kSessionEnded;
  held->failure.must_last = false;
  held->failure.detail +=
      disputed ? "; another broker names another leader, so this one may be cut off from the "
                 "controller"
               : "; no broker has said who leads, so this one may be cut off from the controller";
  memory_->compare_leaders = memory_->compare_leaders || disputed;
}

std::vector<HeldRejections::Held> HeldRejections::TakeAll() {
  GiveUp();
  return std::exchange(held_, {});
}

void HeldRejections::GiveUp() {
  if (question_ != nullptr) {
    question_->given_up = true;
  }
}

}  // namespace walpost::kafka
