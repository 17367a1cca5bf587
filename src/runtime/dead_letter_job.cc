#include "runtime/dead_letter_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "observe/log.h"

namespace walpost::runtime {
namespace {

using observe::LogEvent;
using observe::Severity;
using pipeline::DeadLetterReply;
using pipeline::DeadLetterRequest;
using Kind = DeadLetterRequest::Kind;

}  // namespace

DeadLetterStore DeadLetterStoreOf(const RunOptions& options,
                                  const postgres::ConnectOptions& streamed_from,
                                  const base::SourceFacts& source) {
  DeadLetterStore store;
  store.conninfo = options.dead_letter_conninfo;
  if (store.conninfo.empty()) {
    store.conninfo = streamed_from.conninfo;
    store.server = streamed_from.server;
  }
  store.application_name = options.source.application_name;
  store.pipeline = options.name;
  store.source = {source.system_identifier, source.database, source.timeline};
  store.topic = options.dead_letter_topic;
  store.kafka = options.kafka;
  return store;
}

DeadLetterReply DeadLetterJob::Run(const DeadLetterStore& store, const DeadLetterRequest& request) {
  DeadLetterReply reply;
  reply.id = request.id;
  reply.status = Open(store);
  if (reply.status.ok()) {
    reply.status = CarryOut(request, &reply);
  }
  if (reply.status.ok()) {
    PublishToTopic(store, request, reply);
    return reply;
  }
  table_.reset();
  return reply;
}

absl::Status DeadLetterJob::Open(const DeadLetterStore& store) {
  // Behind one address there may be another server by now.
  std::string wanted =
      absl::StrFormat("%u %u %s %s", store.source.system_identifier, store.source.timeline,
                      store.source.database, store.conninfo);
  if (store.server) {
    wanted += " " + store.server->host + " " + store.server->hostaddr + " " + store.server->port;
  }
  if (table_ && opened_ == wanted) {
    return absl::OkStatus();
  }
  table_.reset();
  ASSIGN_OR_RETURN(table_,
                   postgres::DeadLetterTable::Open(store.conninfo, store.application_name,
                                                   store.pipeline, store.source, store.server));
  opened_ = wanted;
  return table_->LimitStatements();
}

absl::Status DeadLetterJob::CarryOut(const DeadLetterRequest& request, DeadLetterReply* reply) {
  std::uint64_t gone = 0;  // open rows that were delivered
  switch (request.kind) {
    case Kind::kInsert: {
      ASSIGN_OR_RETURN(const postgres::DeadLetterTable::Inserted inserted,
                       table_->Insert(request.rows, request.only_known));
      reply->states = inserted.states;
      reply->written = inserted.written;
      break;
    }
    case Kind::kLoad: {
      ASSIGN_OR_RETURN(reply->keys, table_->ReadParked(request.seq));
      reply->at_end = reply->keys.empty();
      ASSIGN_OR_RETURN(const postgres::DeadLetterTable::Written written, table_->CountWritten());
      reply->written = written.rows;
      reply->in_recovery = written.in_recovery;
      ASSIGN_OR_RETURN(const std::uint64_t foreign, table_->CountForeign());
      if (foreign > 0) {
        observe::LogRepeated(
            Severity::kWarning, LogEvent::kDeadLettersForeign, "",
            absl::StrFormat(
                "walpost.dead_letters has %d open rows that another cluster wrote; they "
                "do not count: they came with a dump, or the server was replaced",
                foreign));
      }
      break;
    }
    case Kind::kLoadRows: {
      ASSIGN_OR_RETURN(reply->rows, table_->ReadRowsFrom(request.from, request.seq));
      reply->at_end = reply->rows.empty();
      break;
    }
    case Kind::kReadSent: {
      ASSIGN_OR_RETURN(reply->rows, table_->ReadSent(request.position, kRowsAtATime));
      reply->at_end = reply->rows.empty();
      break;
    }
    case Kind::kDeleteSent: {
      ASSIGN_OR_RETURN(const std::size_t deleted, table_->DeleteSentBefore(request.from));
      reply->at_end = deleted == 0;
      break;
    }
    case Kind::kDecision: {
      postgres::DeadLetterTable::Decided decided;
      if (request.beside) {
        const auto key = request.of_key ? std::optional(request.key) : std::nullopt;
        ASSIGN_OR_RETURN(decided.row, table_->NextDiscardBeside(request.seq, request.topic, key));
      } else {
        ASSIGN_OR_RETURN(decided, table_->NextDecision(request.position, request.retries_only));
      }
      if (decided.row) {
        reply->rows.push_back(*std::move(decided.row));
      }
      reply->waits_for = decided.waits_for;
      break;
    }
    case Kind::kRead: {
      if (!request.of_key) {
        ASSIGN_OR_RETURN(reply->rows, table_->ReadRow(request.seq, /*whole=*/true));
        reply->at_end = true;
        break;
      }
      if (!request.begun) {
        ASSIGN_OR_RETURN(const auto first, table_->ReadRow(request.seq, /*whole=*/false));
        if (first.empty() || !first.front().retry()) {
          reply->at_end = true;
          break;
        }
      }
      RETURN_IF_ERROR(table_->RetryBehind(request.topic, request.key, request.seq));
      ASSIGN_OR_RETURN(reply->rows,
                       table_->ReadKey(request.topic, request.key, request.position, kRowsAtATime));
      std::size_t bytes = 0;
      for (const base::DeadLetter& row : reply->rows) {
        bytes += row.Bytes();
      }
      reply->at_end =
          reply->rows.size() < kRowsAtATime && bytes < postgres::DeadLetterTable::kReadBytesMax;
      break;
    }
    case Kind::kLookAgain: {
      ASSIGN_OR_RETURN(reply->rows, table_->ReadRow(request.seq, /*whole=*/false));
      break;
    }
    case Kind::kDelivered: {
      ASSIGN_OR_RETURN(const bool was_open, table_->Delivered(request.seq, request.keep));
      gone = was_open ? 1 : 0;
      break;
    }
    case Kind::kFailed:
      RETURN_IF_ERROR(table_->RetryFailed(request.seq, request.detail, request.unpark));
      break;
    case Kind::kDiscarded: {
      ASSIGN_OR_RETURN(reply->closed, table_->Discarded(request.seq));
      break;
    }
    case Kind::kKeyDiscarded: {
      ASSIGN_OR_RETURN(reply->closed,
                       table_->KeyDiscarded(request.topic, request.key, request.seq));
      break;
    }
  }
  if ((request.kind == Kind::kRead || request.kind == Kind::kDiscarded ||
       request.kind == Kind::kKeyDiscarded) &&
      request.of_key) {
    ASSIGN_OR_RETURN(reply->key_open, table_->KeyIsOpen(request.topic, request.key));
  }
  // Counting takes the longer the more there are, so not for each row of a release, or for each
  // release. But verbs write rows as well: that there are none left is never a matter of
  // subtraction.
  const bool counts = request.kind != Kind::kRead && request.kind != Kind::kLookAgain;
  const bool releases =
      request.kind == Kind::kDelivered || (request.kind == Kind::kDecision && !reply->rows.empty());
  if (releases && open_rows_ > 1) {
    open_rows_ -= gone;
  } else if (counts) {
    ASSIGN_OR_RETURN(open_rows_, table_->CountOpen());
  }
  reply->open_rows = open_rows_;
  return absl::OkStatus();
}

void DeadLetterJob::PublishToTopic(const DeadLetterStore& store, const DeadLetterRequest& request,
                                   const DeadLetterReply& reply) {
  if (store.topic.empty()) {
    return;
  }
  if (!outlet_) {
    outlet_.emplace(store.kafka, store.topic, store.pipeline);
  }
  std::vector<base::DeadLetter> rows;
  for (std::size_t i = 0; i < request.rows.size(); ++i) {
    if (reply.states.at(i) == base::DeadLetterState::kOpen) {
      rows.push_back(request.rows[i]);
    }
  }
  if (const absl::Status published = outlet_->Publish(rows); !published.ok()) {
    observe::LogRepeated(
        Severity::kWarning, LogEvent::kDeadLetterTopicFailed, std::string(published.message()),
        absl::StrFormat("a dead letter was not published to the dead-letter topic; it stands in "
                        "walpost.dead_letters all the same: %s",
                        std::string(published.message())));
  }
}

}  // namespace walpost::runtime
