#include "operations/rows/row_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "envelope/control_records.h"
#include "operations/deadletters/dlq_list.h"
#include "operations/rows/table_columns.h"

namespace walpost::operations {
namespace {

constexpr std::size_t kTopicsNamedMax = 10;

// On one line: it may quote what a row has, or what a registry answers.
std::string Shown(const absl::Status& status) {
  return base::Printable(base::Cut(std::string(status.message()), base::kMessageBytesMax));
}

}  // namespace

RowSender::RowSender(const kafka::KafkaOptions& kafka, const registry::RegistryOptions& registry,
                     const std::vector<envelope::OutboxOptions>& outboxes, std::string_view kind,
                     std::chrono::milliseconds patience, OnWarning on_warning)
    : framer_(registry, envelope::FramingsOf(outboxes)),
      writer_(kafka, patience,
              [this](const std::string& id, const absl::Status& why) { return Reject(id, why); }),
      kind_(kind),
      on_warning_(std::move(on_warning)) {}

absl::Status RowSender::FollowParkedKeys(const PipelineSettings& options,
                                         const std::string& source) {
  source_ = source;
  ASSIGN_OR_RETURN(dead_letters_, FindDeadLetters(options));
  parked_.clear();
  std::int64_t after = 0;
  for (bool more = dead_letters_.has_value(); more;) {
    ASSIGN_OR_RETURN(const std::vector<base::ParkedKey> keys, dead_letters_->ReadParked(after));
    for (const base::ParkedKey& key : keys) {
      parked_.insert(base::ParkedKeyIdOf(key.topic, key.key));
      after = key.seq;
    }
    more = !keys.empty();
  }
  if (dead_letters_) {
    ASSIGN_OR_RETURN(const std::uint64_t open, dead_letters_->CountOpen());
    dead_letters_max_ = options.dead_letters_max;
    room_ = dead_letters_max_ / 2 - std::min(open, dead_letters_max_ / 2);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RowSender::Follow(const envelope::Record& record,
                                       const envelope::SchemaTable& schemas) {
  if (parked_.empty() || !record.key ||
      !parked_.contains(base::ParkedKeyIdOf(record.topic, *record.key))) {
    return false;
  }
  if (room_ == 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "event '%s' has a parked key, so it would become a dead letter, and half of "
        "delivery.dead_letters_max, which is %u, is open: decide about some "
        "(docs/dead-letters.md), "
        "then run this again",
        Printable(std::string(HeaderOf(record, "id")), base::kShownBytesMax), dead_letters_max_));
  }
  // The row does not say where it stands in the stream.
  envelope::Record placeless = record;
  std::vector<envelope::RecordHeader> headers(record.headers.begin(), record.headers.end());
  std::erase_if(headers, [](const auto& header) { return header.name == "walpost-position"; });
  placeless.headers = headers;
  base::DeadLetter row;
  row.event_id = HeaderOf(record, "id");
  row.event_type = HeaderOf(record, "type");
  row.source = source_;
  row.topic = record.topic;
  row.partition = record.partition;
  row.event_time_ms = record.timestamp_ms;
  row.reason = envelope::kKeyParked;
  row.parked = true;
  if (record.schema != 0) {
    row.schema = envelope::NeedAsText(schemas.entry(record.schema).need);
  }
  envelope::TakeRecord(placeless, &row);
  ASSIGN_OR_RETURN(const bool parked, dead_letters_->InsertBehindParked(row));
  followed_ += parked ? 1 : 0;
  room_ -= parked ? 1 : 0;
  return parked;
}

absl::Status RowSender::SendRow(const ReadRow& row, const envelope::SchemaTable& schemas,
                                bool leave_out) {
  leave_out_ = leave_out;
  return row.record.ok() ? Send(*row.record, schemas) : Reject(row.id, row.record.status());
}

absl::Status RowSender::Send(envelope::Record record, const envelope::SchemaTable& schemas) {
  ASSIGN_OR_RETURN(const bool parked, Follow(record, schemas));
  if (parked) {
    return absl::OkStatus();
  }
  // A schema of a topic that takes nothing is not asked for, nor registered.
  ASSIGN_OR_RETURN(const bool takes_something, writer_.TakesSomething(record));
  if (!takes_something) {
    return writer_.Write(record);
  }
  const absl::StatusOr<envelope::Record> framed = framer_.Frame(record, schemas, leave_out_);
  if (!framed.ok()) {
    return RejectSchema(std::string(HeaderOf(record, "id")), framed.status());
  }
  record = *framed;
  const std::vector<envelope::RecordHeader> headers =
      envelope::RedeliveryHeaders(record.headers, kind_, "");
  record.headers = headers;
  return writer_.Write(record);
}

absl::Status RowSender::RejectSchema(const std::string& id, const absl::Status& why) {
  if (absl::IsAborted(why)) {
    return absl::AbortedError(absl::StrFormat(
        "event '%s': %s: try again; if it stays so, let walpost read this subject, or leave such "
        "rows out: --skip-undeliverable",
        Printable(id, base::kShownBytesMax), Shown(why)));
  }
  if (!absl::IsNotFound(why)) {
    return Reject(id, why);
  }
  schemas_out_ += leave_out_ ? 1 : 0;
  return Reject(id, absl::InvalidArgumentError(why.message()));
}

absl::Status RowSender::Reject(const std::string& id, const absl::Status& status) {
  const absl::Status why(status.code(), Shown(status));
  const std::string shown = Printable(id, base::kShownBytesMax);
  const std::string event = "event '" + shown + "'";
  if (!absl::IsInvalidArgument(why)) {
    return base::Annotate(why, event);
  }
  if (!leave_out_) {
    return base::Annotate(why, event +
                                   " (fix its row or delete it, or leave such rows out: "
                                   "--skip-undeliverable)");
  }
  ++left_out_;
  if (on_warning_) {
    on_warning_(absl::StrFormat("%s is left out: %s", event, std::string(why.message())));
  }
  return absl::OkStatus();
}

std::string RowSender::TakeAccount() {
  std::string text = Count(writer_.TakeAcknowledged(), "event") + " sent";
  if (followed_ > 0) {
    text += absl::StrFormat(", %d parked behind others of their key", std::exchange(followed_, 0));
  }
  std::uint64_t closed_out = 0;
  std::vector<std::string> topics;
  for (const kafka::ClosedTopic& topic : writer_.TakeClosedTopics()) {
    closed_out += topic.records;
    if (topics.size() < kTopicsNamedMax) {
      topics.push_back(
          absl::StrFormat("'%s' (%s)", Printable(topic.name, base::kShownBytesMax), topic.why));
    }
  }
  const std::uint64_t schemas_out = std::exchange(schemas_out_, 0);
  schemas_out_before_ += schemas_out;
  if (const std::uint64_t no_records = std::exchange(left_out_, 0) - closed_out - schemas_out;
      no_records > 0) {
    text += absl::StrFormat(
        ", %d left out, since they can be no records, or their topics do not take them",
        no_records);
  }
  if (schemas_out > 0) {
    text += absl::StrFormat(", %d left out, since there was no schema for them", schemas_out);
  }
  if (closed_out > 0) {
    text += absl::StrFormat(", %d left out, since their topics take nothing: %s", closed_out,
                            absl::StrJoin(topics, ", "));
  }
  return text;
}

using postgres::SqlConnection;

absl::StatusOr<SharedIds> SharedIds::Read(const std::vector<outbox::TableOptions>& tables,
                                          const std::string& publication,
                                          SqlConnection* connection) {
  SharedIds shared;
  if (tables.size() < 2) {
    return shared;
  }
  for (const outbox::TableOptions& table : tables) {
    const auto columns = TableColumns::Read(connection, publication, table);
    if (absl::IsNotFound(columns.status())) {
      continue;
    }
    RETURN_IF_ERROR(columns.status());
    if (columns->Has(columns->Find(table.columns.id), kUuidType)) {
      continue;
    }
    Table here{absl::StrFormat("%s.%s", table.schema, table.table), outbox::TopicReach(table)};
    for (const Table& other : shared.tables_) {
      if (here.reach.Meets(other.reach)) {
        shared.pairs_.emplace_back(other.name, here.name);
      }
    }
    shared.tables_.push_back(std::move(here));
  }
  return shared;
}

absl::StatusOr<SharedIds> SharedIds::Read(const PipelineSettings& pipeline) {
  std::vector<outbox::TableOptions> tables;
  for (const envelope::OutboxOptions& outbox : pipeline.outboxes) {
    tables.push_back(outbox.table);
  }
  if (tables.size() < 2) {
    return SharedIds();
  }
  ASSIGN_OR_RETURN(
      SqlConnection connection,
      SqlConnection::Connect(pipeline.source.conninfo, pipeline.source.application_name));
  return Read(tables, pipeline.source.publication, &connection);
}

bool SharedIds::In(std::string_view table, std::string_view topic) const {
  const auto named = [&](const Table& each) { return each.name == table; };
  return std::any_of(tables_.begin(), tables_.end(), named) &&
         std::any_of(tables_.begin(), tables_.end(),
                     [&](const Table& other) { return !named(other) && other.reach.Holds(topic); });
}

std::string SharedIds::TextOf(const Pair& pair) {
  return absl::StrFormat(
      "%s and %s may have the same ids in the same topic, and records do not name their table",
      pair.first, pair.second);
}

std::string SharedIds::TextAbout(const std::vector<std::string>& tables) const {
  const auto asked = [&](const std::string& table) {
    return std::find(tables.begin(), tables.end(), table) != tables.end();
  };
  for (const Pair& pair : pairs_) {
    if (asked(pair.first) || asked(pair.second)) {
      return absl::StrFormat(
          "%s, so it is not known which of their rows Kafka holds: --send-unproven sends all rows "
          "of "
          "which it is not known, so some come again; to end this, %s",
          TextOf(pair), kSharedIdsCure);
    }
  }
  return "";
}

}  // namespace walpost::operations
