// TopicReach - which topics the events of an outbox may go to.
// Why: a record does not name its table. The configuration says whether two outboxes may send to the
//   same topic.
// Thread: a value.
// Limits: may say yes where no row ever names the topic; says no only where none can.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "outbox/options.h"

namespace walpost::outbox {

// The pattern of what `topic`, or the regex in its place, can give; empty for one that is not understood.
std::string ImpliedTopics(const TableOptions& options);

class TopicReach {
 public:
  explicit TopicReach(const TableOptions& options);

  bool Holds(std::string_view topic) const;
  bool Meets(const TopicReach& other) const;

 private:
  using Patterns = std::vector<std::string>;

  std::vector<Patterns> limits_;  // a topic matches one pattern of each
};

}  // namespace walpost::outbox
