#include "support/fake_dead_letters.h"

#include <algorithm>

#include "envelope/control_records.h"
#include "support/retry_waits.h"

namespace walpost::testing {

using base::DeadLetter;
using Kind = pipeline::DeadLetterRequest::Kind;

namespace {

bool IsOfKey(const DeadLetter& row, const std::string& topic, const std::string& key) {
  return !row.closed && row.parked && row.topic == topic && row.key == key;
}

}  // namespace

pipeline::DeadLetterReply FakeDeadLetters::CarryOut(const pipeline::DeadLetterRequest& request) {
  pipeline::DeadLetterReply reply;
  reply.id = request.id;
  const auto of_key = [&](const DeadLetter& row) {
    return IsOfKey(row, request.topic, request.key);
  };
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const DeadLetter& row) {
    return row.seq == request.seq && !row.closed;
  });
  switch (request.kind) {
    case Kind::kInsert:
      for (std::size_t i = 0; i < request.rows.size(); ++i) {
        const DeadLetter& row = request.rows[i];
        const auto there = std::find_if(rows.begin(), rows.end(), [&](const DeadLetter& each) {
          return each.position == row.position && each.event_id == row.event_id;
        });
        if (there != rows.end()) {
          const bool open = !there->closed && (!row.parked || there->parked);
          reply.states.push_back(open ? base::DeadLetterState::kOpen
                                      : base::DeadLetterState::kClosed);
        } else if (request.only_known.at(i)) {
          reply.states.push_back(base::DeadLetterState::kNone);
        } else {
          reply.states.push_back(base::DeadLetterState::kOpen);
          rows.push_back(row);
          rows.back().seq = next_seq_++;
          rows.back().place = row.position;
          ++written;
        }
      }
      break;
    case Kind::kLoad:
    case Kind::kRead:
      reply.at_end = true;
      if (request.kind == Kind::kRead && request.of_key && !request.begun &&
          (found == rows.end() || !found->retry())) {
        break;
      }
      for (const DeadLetter& row : rows) {
        const bool load = request.kind == Kind::kLoad;
        const bool wanted = load             ? !row.closed && row.parked && row.seq > request.seq
                            : request.of_key ? of_key(row) && row.place < request.position
                                             : !row.closed && row.seq == request.seq;
        if (wanted && std::max(reply.rows.size(), reply.keys.size()) == rows_per_reading) {
          reply.at_end = false;
          break;
        }
        if (wanted && load) {
          reply.keys.push_back({row.seq, row.place, row.topic, row.key.value_or("")});
        } else if (wanted) {
          reply.rows.push_back(row);
        }
      }
      break;
    case Kind::kLoadRows:
      for (const DeadLetter& row : rows) {
        const auto position = envelope::Position::Parse(row.position);
        if (!row.parked_and_sent() && position.ok() &&
            std::pair(position->commit_lsn, row.seq) > std::pair(request.from, request.seq)) {
          reply.rows.push_back(row);
        }
      }
      reply.at_end = true;
      break;
    case Kind::kReadSent:
      for (const DeadLetter& row : rows) {
        if (row.parked_and_sent() && row.position > request.position) {
          reply.rows.push_back(row);
        }
      }
      reply.at_end = true;
      break;
    case Kind::kDeleteSent:
      reply.at_end = true;
      break;
    case Kind::kDecision:
      ++looks;
      for (const DeadLetter& row : rows) {
        const bool released =
            row.seq == request.seq || (request.of_key && of_key(row)) || !row.discard();
        if (!row.closed && RetryWaits(row, request.position)) {
          reply.waits_for =
              reply.waits_for.empty() ? row.place : std::min(reply.waits_for, row.place);
          continue;
        }
        if (!row.closed && row.decision != DeadLetter::Decision::kNone &&
            !(request.beside && released) && !(request.retries_only && row.discard())) {
          reply.rows.push_back(row);
          break;
        }
      }
      break;
    case Kind::kLookAgain:
      if (found != rows.end()) {
        reply.rows.push_back(*found);
      }
      break;
    case Kind::kDelivered:
      if (found != rows.end() && request.keep) {
        found->closed = true;
      } else if (found != rows.end()) {
        rows.erase(found);
      }
      break;
    case Kind::kFailed:
      if (request.unpark) {
        found->detail = request.detail;
        found->parked = found->of_key = false;
        found->decision = DeadLetter::Decision::kNone;
        found->taken_back = true;
        break;
      }
      for (DeadLetter& row : rows) {
        row.detail = row.seq == request.seq ? request.detail : row.detail;
        if (row.retry() && (row.seq == request.seq || of_key(row))) {
          row.decision = DeadLetter::Decision::kNone;
          row.taken_back = true;
        }
      }
      break;
    case Kind::kDiscarded:
      reply.closed = found != rows.end() && found->discard();
      if (reply.closed) {
        found->closed = true;
      }
      break;
    case Kind::kKeyDiscarded: {
      std::int64_t last = 0;
      for (DeadLetter& row : rows) {
        if (of_key(row) && row.discard() && row.of_key) {
          row.closed = true;
          last = std::max(last, row.seq);
        }
      }
      reply.closed = last != 0;
      for (DeadLetter& row : rows) {
        if (of_key(row) && row.decision == DeadLetter::Decision::kNone &&
            row.seq > (reply.closed ? last : request.seq)) {
          row.decision = DeadLetter::Decision::kRetry;
          row.of_key = true;
        }
      }
      break;
    }
  }
  reply.written = written;
  reply.in_recovery = in_recovery;
  reply.key_open = std::any_of(rows.begin(), rows.end(), of_key);
  reply.open_rows = static_cast<std::uint64_t>(
      std::count_if(rows.begin(), rows.end(), [](const DeadLetter& row) { return !row.closed; }));
  return reply;
}

void FakeDeadLetters::Decide(std::size_t row, DeadLetter::Decision decision, bool of_key) {
  const DeadLetter about = rows.at(row);
  for (DeadLetter& each : rows) {
    if (of_key ? IsOfKey(each, about.topic, about.key.value_or("")) : each.seq == about.seq) {
      each.decision = decision;
      each.taken_back = decision == DeadLetter::Decision::kNone;
      each.of_key = of_key;
    }
  }
}

}  // namespace walpost::testing
