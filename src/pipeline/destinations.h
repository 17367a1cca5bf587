// Destinations - where events may go, by where they come from.
// Why: who writes events chooses a topic, and who decides about dead letters another: both only among those
//   that the configuration allows.
// Thread: a value.
// Source: docs/security.md.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "outbox/topic_rules.h"
#include "pipeline/options.h"

namespace walpost::pipeline {

class Destinations {
 public:
  explicit Destinations(const PipelineOptions& options);

  // For events of an outbox, by its index; every greater one stands for messages.
  bool Allow(std::uint32_t table, std::string_view topic) const;

  // For events of any of them. Else says why not.
  absl::Status Check(std::string_view topic) const;

 private:
  std::vector<outbox::TopicRules> rules_;  // of the tables, then of messages
};

}  // namespace walpost::pipeline
