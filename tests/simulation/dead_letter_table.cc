#include "dead_letter_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "envelope/control_records.h"
#include "support/retry_waits.h"
#include "violation.h"

namespace walpost::simulation {

using base::DeadLetter;
using Kind = pipeline::DeadLetterRequest::Kind;

namespace {

bool IsOfKey(const DeadLetter& row, const std::string& topic, const std::string& key) {
  return !row.closed && row.parked && row.topic == topic && row.key == key;
}

bool CommitsFrom(const DeadLetter& row, base::Lsn from) {
  const auto position = envelope::Position::Parse(row.position);
  return position.ok() && position->commit_lsn >= from;
}

}  // namespace

bool DeadLetterTable::MayHave(base::Lsn from) const {
  return std::any_of(rows_.begin(), rows_.end(), [from](const DeadLetter& row) {
    return !row.closed || CommitsFrom(row, from);
  });
}

std::vector<const DeadLetter*> DeadLetterTable::Open() const {
  std::vector<const DeadLetter*> open;
  for (const DeadLetter& row : rows_) {
    if (!row.closed) {
      open.push_back(&row);
    }
  }
  return open;
}

// Rows stand in the order of their numbers.
std::vector<DeadLetter>::iterator DeadLetterTable::Find(std::int64_t seq) {
  const auto found =
      std::lower_bound(rows_.begin(), rows_.end(), seq,
                       [](const DeadLetter& row, std::int64_t wanted) { return row.seq < wanted; });
  return found != rows_.end() && found->seq == seq && !found->closed ? found : rows_.end();
}

void DeadLetterTable::Insert(const pipeline::DeadLetterRequest& request,
                             pipeline::DeadLetterReply* reply) {
  Require(!request.rows.empty() && request.rows.size() <= pipeline::DeadLetters::kInsertRowsMax,
          "%u rows at once", request.rows.size());
  for (std::size_t i = 0; i < request.rows.size(); ++i) {
    const DeadLetter& row = request.rows[i];
    const auto there = std::find_if(rows_.begin(), rows_.end(), [&](const DeadLetter& each) {
      return each.position == row.position && each.event_id == row.event_id;
    });
    if (there != rows_.end()) {
      const bool open = !there->closed && (!row.parked || there->parked);
      reply->states.push_back(open ? base::DeadLetterState::kOpen : base::DeadLetterState::kClosed);
    } else if (request.only_known.at(i)) {
      reply->states.push_back(base::DeadLetterState::kNone);
    } else {
      Require(row.reason != envelope::kKeyParked ||
                  released_.contains({row.topic, row.key.value_or("")}) ||
                  std::any_of(rows_.begin(), rows_.end(),
                              [&](const DeadLetter& each) {
                                return IsOfKey(each, row.topic, row.key.value_or(""));
                              }),
              "event %s is parked behind nothing", row.event_id);
      Require(!remembers_ || !sent_.contains({row.position, row.event_id}),
              "event %s was sent, and is a dead letter again", row.event_id);
      reply->states.push_back(base::DeadLetterState::kOpen);
      rows_.push_back(row);
      rows_.back().seq = next_seq_++;
      rows_.back().place = row.position;
      ++open_rows_;
      ++written_;
      judge_->OnRow(row);
    }
  }
}

void DeadLetterTable::Read(const pipeline::DeadLetterRequest& request,
                           pipeline::DeadLetterReply* reply) {
  if (request.of_key && !request.begun) {
    const auto first = Find(request.seq);
    if (first == rows_.end() || !first->retry()) {
      reply->at_end = true;
      return;
    }
  }
  if (request.of_key) {
    RetryBehind(request.topic, request.key, request.seq);
  }
  std::map<std::pair<std::string, std::int64_t>, DeadLetter*> wanted;
  for (DeadLetter& row : rows_) {
    if (request.of_key ? IsOfKey(row, request.topic, request.key) && row.place < request.position
                       : !row.closed && row.seq == request.seq) {
      wanted.emplace(std::pair(row.place, row.seq), &row);
    }
  }
  std::uint64_t left = random_.Chance(500) ? 100 : random_.Between(1, 4);
  for (const auto& [at, row] : wanted) {
    if (left-- == 0) {
      return;
    }
    reply->rows.push_back(*row);
  }
  reply->at_end = true;
}

void DeadLetterTable::TakeOver() {
  for (DeadLetter& row : rows_) {
    row.place.clear();
  }
}

void DeadLetterTable::TakenBack(DeadLetter* row) {
  row->taken_back = true;
  judge_->OnTakenBack(*row);
}

void DeadLetterTable::RetryBehind(const std::string& topic, const std::string& key,
                                  std::int64_t after) {
  for (DeadLetter& row : rows_) {
    if (IsOfKey(row, topic, key) && row.decision == DeadLetter::Decision::kNone &&
        !row.taken_back && row.seq > after) {
      row.decision = DeadLetter::Decision::kRetry;
      row.of_key = true;
      decided_.push_back(row.seq);
    }
  }
}

void DeadLetterTable::LoadRows(const pipeline::DeadLetterRequest& request,
                               pipeline::DeadLetterReply* reply) {
  std::map<std::pair<base::Lsn, std::int64_t>, const DeadLetter*> wanted;
  for (const DeadLetter& row : rows_) {
    if (const auto at = envelope::Position::Parse(row.position);
        at.ok() && !row.parked_and_sent()) {
      wanted.emplace(std::pair(at->commit_lsn, row.seq), &row);
    }
  }
  std::uint64_t left = random_.Chance(500) ? UINT64_MAX : random_.Between(1, 4);
  auto next = wanted.upper_bound({request.from, request.seq});
  for (; next != wanted.end() && left > 0; ++next, --left) {
    reply->rows.push_back(*next->second);
    judge_->OnKnown(*next->second);
  }
  reply->at_end = next == wanted.end();
}

void DeadLetterTable::ReadSent(const pipeline::DeadLetterRequest& request,
                               pipeline::DeadLetterReply* reply) {
  std::map<std::pair<base::Lsn, std::string>, const DeadLetter*> wanted;
  for (const DeadLetter& row : rows_) {
    if (row.parked_and_sent()) {
      wanted.emplace(std::pair(envelope::Position::Parse(row.position)->commit_lsn, row.position),
                     &row);
    }
  }
  const base::Lsn from = envelope::Position::Parse(request.position)->commit_lsn;
  auto next = wanted.upper_bound({from, request.position});
  for (std::uint64_t left = random_.Chance(500) ? UINT64_MAX : random_.Between(1, 4);
       next != wanted.end() && left > 0; ++next, --left) {
    reply->rows.push_back(*next->second);
  }
  reply->at_end = next == wanted.end();
}

// What is closed stays.
void DeadLetterTable::Close(DeadLetter* row) {
  row->closed = true;
  --open_rows_;
  judge_->OnRowClosed(*row);
}

bool DeadLetterTable::HasDiscard(const DeadLetter& of) const {
  return of.parked && std::any_of(rows_.begin(), rows_.end(), [&](const DeadLetter& row) {
           return row.discard() && IsOfKey(row, of.topic, of.key.value_or(""));
         });
}

// The oldest; beside a release the oldest discard of something else, beside a discard the oldest
// retry of something else. 0: there is none.
std::int64_t DeadLetterTable::NextDecision(const pipeline::DeadLetterRequest& request,
                                           std::string* waits_for) {
  for (const std::int64_t seq : decided_) {
    const auto row = Find(seq);
    if (row == rows_.end() || row->decision == DeadLetter::Decision::kNone) {
      continue;
    }
    const bool released =
        seq == request.seq || (request.of_key && IsOfKey(*row, request.topic, request.key));
    if (walpost::testing::RetryWaits(*row, request.position)) {
      *waits_for = waits_for->empty() ? row->place : std::min(*waits_for, row->place);
      continue;
    }
    if (request.retries_only ? row->retry() && !HasDiscard(*row)
                             : !request.beside || (row->discard() && !released)) {
      return seq;
    }
  }
  return 0;
}

// What came later is to be sent.
bool DeadLetterTable::DiscardKey(const pipeline::DeadLetterRequest& request) {
  std::int64_t last = 0;
  for (DeadLetter& row : rows_) {
    if (IsOfKey(row, request.topic, request.key) && row.discard() && row.of_key) {
      last = std::max(last, row.seq);
      Close(&row);
    }
  }
  if (last != 0 || Find(request.seq) == rows_.end()) {
    RetryBehind(request.topic, request.key, last != 0 ? last : request.seq);
  }
  return last != 0;
}

pipeline::DeadLetterReply DeadLetterTable::CarryOut(const pipeline::DeadLetterRequest& request) {
  pipeline::DeadLetterReply reply;
  reply.id = request.id;
  const auto found = Find(request.seq);
  if (request.kind == Kind::kLoad) {
    released_.clear();
  } else if (request.of_key) {
    released_.emplace(request.topic, request.key);
  }
  switch (request.kind) {
    case Kind::kInsert:
      Insert(request, &reply);
      break;
    case Kind::kLoad: {
      std::uint64_t left = random_.Chance(500) ? UINT64_MAX : random_.Between(1, 4);
      reply.at_end = true;
      for (const DeadLetter& row : rows_) {
        if (row.closed || !row.parked || row.seq <= request.seq) {
          continue;
        }
        if (left-- == 0) {
          reply.at_end = false;
          break;
        }
        reply.keys.push_back({row.seq, row.place, row.topic, row.key.value_or("")});
      }
      break;
    }
    case Kind::kLoadRows:
      LoadRows(request, &reply);
      break;
    case Kind::kReadSent:
      ReadSent(request, &reply);
      break;
    case Kind::kDeleteSent:
      std::erase_if(rows_, [&](const DeadLetter& row) {
        return row.closed && !row.discard() && row.send_to.empty() && !row.position.empty() &&
               !CommitsFrom(row, request.from);
      });
      reply.at_end = true;
      break;
    case Kind::kDecision:
      if (const std::int64_t seq = NextDecision(request, &reply.waits_for); seq != 0) {
        reply.rows.push_back(*Find(seq));
        reply.waits_for.clear();
      }
      break;
    case Kind::kRead:
      Read(request, &reply);
      break;
    case Kind::kLookAgain:
      if (found != rows_.end()) {
        reply.rows.push_back(*found);
        judge_->OnLookedAgain(*found);
      }
      break;
    case Kind::kDelivered:
      if (found != rows_.end()) {
        judge_->OnRowDelivered(*found);
        sent_.emplace(found->position, found->event_id);
        --open_rows_;
        judge_->OnRowSent(*found);
        if (request.keep) {
          found->closed = true;
          found->decision = DeadLetter::Decision::kRetry;
        } else {
          rows_.erase(found);
        }
      }
      break;
    case Kind::kFailed:
      if (found != rows_.end()) {
        judge_->OnRetryFailed(*found, request.detail);
        if (request.unpark) {
          found->parked = found->of_key = false;
          found->decision = DeadLetter::Decision::kNone;
          break;
        }
        const DeadLetter failed = *found;
        for (DeadLetter& row : rows_) {
          if (row.retry() &&
              (row.seq == failed.seq ||
               (failed.parked && IsOfKey(row, failed.topic, failed.key.value_or(""))))) {
            row.decision = DeadLetter::Decision::kNone;
            row.of_key = false;
            TakenBack(&row);
          }
        }
      }
      break;
    case Kind::kDiscarded:
      reply.closed = found != rows_.end() && found->discard();
      if (reply.closed) {
        Close(&*found);
      }
      break;
    case Kind::kKeyDiscarded:
      reply.closed = DiscardKey(request);
      break;
  }
  reply.written = written_;
  reply.key_open = std::any_of(rows_.begin(), rows_.end(), [&](const DeadLetter& row) {
    return IsOfKey(row, request.topic, request.key);
  });
  reply.open_rows = open_rows_;
  return reply;
}

void DeadLetterTable::Decide(std::int64_t seq, DeadLetter::Decision decision, bool of_key) {
  const auto found = Find(seq);
  if (found == rows_.end()) {
    return;
  }
  const DeadLetter about = *found;
  const bool discard = decision == DeadLetter::Decision::kDiscard;
  for (DeadLetter& row : rows_) {
    const bool meant =
        of_key ? IsOfKey(row, about.topic, about.key.value_or("")) && (discard || !row.discard())
               : !row.closed && row.seq == seq;
    if (meant) {
      row.decision = decision;
      row.taken_back = false;
      if (decision == DeadLetter::Decision::kNone) {
        TakenBack(&row);
      }
      row.of_key = of_key && row.parked;
      decided_.push_back(row.seq);
      if (discard && !row.parked) {
        Close(&row);
      }
    }
  }
}

}  // namespace walpost::simulation
