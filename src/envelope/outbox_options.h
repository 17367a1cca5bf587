// OutboxOptions - one outbox table of the configuration: how its rows are read, and what records they become.
// Thread: values.
#pragma once

#include <vector>

#include "envelope/encoder.h"
#include "envelope/schema.h"
#include "outbox/options.h"

namespace walpost::envelope {

struct OutboxOptions {
  outbox::TableOptions table;
  EncoderOptions encoder;
};

// By SchemaNeed::source.
inline std::vector<FramingOptions> FramingsOf(const std::vector<OutboxOptions>& outboxes) {
  std::vector<FramingOptions> framings;
  for (const OutboxOptions& outbox : outboxes) {
    framings.push_back(outbox.encoder.framing);
  }
  return framings;
}

}  // namespace walpost::envelope
