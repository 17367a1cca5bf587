#include "envelope/control_records.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include "absl/strings/str_format.h"
#include "base/text.h"
#include "envelope/protobuf_wire.h"
#include "outbox/message_mapper.h"
#include "walpost/v1/progress.pb.h"

namespace walpost::envelope {
namespace {

// All digits.
template <typename Number>
char* WriteHex(Number number, char* out) {
  for (std::size_t i = sizeof(number); i-- > 0;) {
    out = base::WriteHex(static_cast<std::uint8_t>(number >> 8 * i), out);
  }
  return out;
}

bool ReadHex(std::string_view text, std::uint64_t* value) {
  for (const char c : text) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
      return false;
    }
  }
  return std::from_chars(text.data(), text.data() + text.size(), *value, 16).ec == std::errc();
}

}  // namespace

void Position::Format(char* text) const {
  text = WriteHex(system_identifier, text);
  *text++ = '-';
  text = WriteHex(timeline, text);
  *text++ = '-';
  text = WriteHex(commit_lsn.value(), text);
  *text++ = '-';
  WriteHex(ordinal, text);
}

std::string Position::ToString() const {
  std::string text(kTextSize, '\0');
  Format(text.data());
  return text;
}

absl::StatusOr<Position> Position::Parse(std::string_view text) {
  std::uint64_t parts[4] = {};
  const bool shape =
      text.size() == kTextSize && text[16] == '-' && text[25] == '-' && text[42] == '-';
  if (!shape || !ReadHex(text.substr(0, 16), &parts[0]) ||
      !ReadHex(text.substr(17, 8), &parts[1]) || !ReadHex(text.substr(26, 16), &parts[2]) ||
      !ReadHex(text.substr(43, 8), &parts[3])) {
    return absl::InvalidArgumentError(absl::StrFormat("'%s' is not a walpost-position", text));
  }
  return Position{parts[0], static_cast<std::uint32_t>(parts[1]), base::Lsn(parts[2]),
                  static_cast<std::uint32_t>(parts[3])};
}

namespace {

constexpr std::uint32_t kFormat = 1;
// A hundred times what ten thousand tables need.
constexpr std::size_t kValueBytesMax = std::size_t{256} * 1024 * 1024;

bool IsTime(const google::protobuf::Timestamp& time) {
  // 0001-01-01T00:00:00Z to 9999-12-31T23:59:59Z.
  constexpr std::int64_t kSecondsMin = -62'135'596'800;
  constexpr std::int64_t kSecondsMax = 253'402'300'799;
  constexpr std::int32_t kNanosMax = 999'999'999;
  return time.seconds() >= kSecondsMin && time.seconds() <= kSecondsMax && time.nanos() >= 0 &&
         time.nanos() <= kNanosMax;
}

bool AreTimes(const v1::Fingerprint& message) {
  return IsTime(message.looked_at()) &&
         std::all_of(message.tables().begin(), message.tables().end(),
                     [](const v1::Table& table) { return IsTime(table.since_at()); }) &&
         std::all_of(message.prefix_since_at().begin(), message.prefix_since_at().end(),
                     [](const auto& prefix) { return IsTime(prefix.second); });
}

// The transactions are ascending, at or before the position, and no more than are ever written.
bool AreLastTransactions(const v1::Progress& message) {
  constexpr int kLaterMax = base::Progress::kLastTransactionsMax - 1;
  std::uint64_t before = message.last_transaction().commit_lsn();
  for (const v1::CommittedTransaction& later : message.later_transactions()) {
    if (later.commit_lsn() <= before) {
      return false;
    }
    before = later.commit_lsn();
  }
  return message.later_transactions_size() <= kLaterMax && before <= message.end_lsn();
}

bool IsPlausible(const v1::Progress& message) {
  return message.timeline() != 0 && message.system_identifier() != 0 &&
         IsTime(message.recorded_at()) && IsTime(message.passed_at()) &&
         AreTimes(message.fingerprint()) && AreLastTransactions(message);
}

void SetTime(base::WallTime time, google::protobuf::Timestamp* to) {
  const TimeParts parts = Split(time);
  to->set_seconds(parts.seconds);
  to->set_nanos(parts.nanos);
}

// The exact inverse. Wraps instead of overflowing: an origin may send any commit time.
base::WallTime TimeOf(const google::protobuf::Timestamp& time) {
  return base::WallTime(std::chrono::microseconds(
      static_cast<std::int64_t>(static_cast<std::uint64_t>(time.seconds()) * 1'000'000 +
                                static_cast<std::uint64_t>(time.nanos() / 1'000))));
}

void SetFingerprint(const base::Fingerprint& from, v1::Fingerprint* to) {
  to->set_publication_oid(from.publication_oid);
  to->set_publication_xmin(from.publication_xmin);
  for (const base::PublishedTable& table : from.tables) {
    v1::Table* const added = to->add_tables();
    added->set_oid(table.oid);
    added->set_schema(table.schema);
    added->set_name(table.name);
    added->mutable_memberships()->Add(table.memberships.begin(), table.memberships.end());
    added->set_since_lsn(table.since.lsn.value());
    added->set_since_timeline(table.since.timeline);
    added->set_first_xid(table.first_xid.xid.value);
    added->set_first_xid_timeline(table.first_xid.timeline);
    added->set_first_xid_lsn(table.first_xid.lsn.value());
    if (table.since.lsn.valid()) {
      SetTime(table.since.at, added->mutable_since_at());
    }
  }
  for (const std::string& prefix : from.message_prefixes) {
    to->add_prefixes(prefix);
  }
  for (const auto& [prefix, since] : from.prefixes_since) {
    (*to->mutable_prefix_since_lsn())[prefix] = since.lsn.value();
    SetTime(since.at, &(*to->mutable_prefix_since_at())[prefix]);
    if (since.timeline != 0) {
      (*to->mutable_prefix_since_timeline())[prefix] = since.timeline;
    }
  }
  if (from.looked_lsn.valid()) {
    to->set_looked_lsn(from.looked_lsn.value());
    SetTime(from.looked_at, to->mutable_looked_at());
  }
}

base::Fingerprint FingerprintOf(const v1::Fingerprint& from) {
  base::Fingerprint to;
  to.publication_oid = from.publication_oid();
  to.publication_xmin = from.publication_xmin();
  for (const v1::Table& table : from.tables()) {
    to.tables.push_back({table.oid(),
                         table.schema(),
                         table.name(),
                         {table.memberships().begin(), table.memberships().end()}});
    to.tables.back().since = {base::Lsn(table.since_lsn()), TimeOf(table.since_at()),
                              table.since_timeline()};
    to.tables.back().first_xid = {
        {table.first_xid()}, table.first_xid_timeline(), base::Lsn(table.first_xid_lsn())};
  }
  to.message_prefixes.assign(from.prefixes().begin(), from.prefixes().end());
  for (const auto& [prefix, lsn] : from.prefix_since_lsn()) {
    base::Since& since = to.prefixes_since[prefix];
    since.lsn = base::Lsn(lsn);
    if (const auto at = from.prefix_since_at().find(prefix); at != from.prefix_since_at().end()) {
      since.at = TimeOf(at->second);
    }
    const auto timeline = from.prefix_since_timeline().find(prefix);
    since.timeline = timeline == from.prefix_since_timeline().end() ? 0 : timeline->second;
  }
  to.looked_lsn = base::Lsn(from.looked_lsn());
  to.looked_at = TimeOf(from.looked_at());
  return to;
}

void SetTransaction(const base::CommittedTransaction& transaction,
                    v1::CommittedTransaction* message) {
  message->set_commit_lsn(transaction.commit_lsn.value());
  message->set_xid(transaction.xid.value);
  SetTime(transaction.commit_time, message->mutable_commit_time());
}

base::CommittedTransaction TransactionOf(const v1::CommittedTransaction& message) {
  return {base::Lsn(message.commit_lsn()), base::Xid{message.xid()}, TimeOf(message.commit_time())};
}

}  // namespace

std::string EncodeProgress(const base::Progress& progress) {
  v1::Progress message;
  message.set_format(kFormat);
  message.set_epoch(progress.epoch);
  message.set_system_identifier(progress.system_identifier);
  message.set_timeline(progress.timeline);
  message.set_end_lsn(progress.end_lsn.value());
  if (progress.passed_at != base::WallTime()) {
    SetTime(progress.passed_at, message.mutable_passed_at());
  }
  SetTime(progress.recorded_at, message.mutable_recorded_at());
  SetFingerprint(progress, message.mutable_fingerprint());
  for (const base::CommittedTransaction& transaction : progress.last_transactions) {
    SetTransaction(transaction, message.has_last_transaction()
                                    ? message.add_later_transactions()
                                    : message.mutable_last_transaction());
  }
  message.set_dead_letters(progress.dead_letters);
  return message.SerializeAsString();
}

absl::StatusOr<base::Progress> DecodeProgress(std::string_view value) {
  v1::Progress message;
  if (value.size() > kValueBytesMax ||
      !message.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
    return absl::DataLossError(
        absl::StrFormat("a record of %u bytes is not a walpost.v1.Progress message", value.size()));
  }
  if (message.format() == 0) {
    return absl::DataLossError("a record says no format: it is not a walpost.v1.Progress message");
  }
  if (message.epoch() > base::Progress::kEpochMax) {
    return absl::DataLossError(
        absl::StrFormat("a record says what no walpost writes: epoch %u", message.epoch()));
  }
  if (message.format() != kFormat) {
    return absl::UnimplementedError(
        absl::StrFormat("a record has format %u, this walpost reads format %u: it was written by a "
                        "newer version, or by something else",
                        message.format(), kFormat));
  }
  if (!IsPlausible(message)) {
    return absl::DataLossError(
        "a record says what no walpost writes: a position, a timeline or a time that cannot be");
  }
  base::Progress progress;
  progress.epoch = message.epoch();
  progress.system_identifier = message.system_identifier();
  progress.timeline = message.timeline();
  progress.end_lsn = base::Lsn(message.end_lsn());
  progress.passed_at = TimeOf(message.passed_at());
  progress.recorded_at = TimeOf(message.recorded_at());
  static_cast<base::Fingerprint&>(progress) = FingerprintOf(message.fingerprint());
  progress.dead_letters = message.dead_letters();
  if (message.has_last_transaction()) {
    progress.last_transactions.push_back(TransactionOf(message.last_transaction()));
  }
  for (const v1::CommittedTransaction& later : message.later_transactions()) {
    progress.last_transactions.push_back(TransactionOf(later));
  }
  return progress;
}

std::uint64_t EpochOf(std::string_view value) {
  v1::Progress message;
  return message.ParseFromArray(value.data(), static_cast<int>(value.size())) ? message.epoch() : 0;
}

using base::DeadLetter;

std::vector<std::pair<std::string_view, std::string>> DescribeForTopic(const DeadLetter& row,
                                                                       std::string_view pipeline) {
  std::vector<std::pair<std::string_view, std::string>> headers;
  headers.emplace_back("walpost-dlq", row.parked ? "parked" : "dead_letter");
  const auto add = [&headers](std::string_view name, std::string_view text) {
    if (!text.empty()) {
      headers.emplace_back(name, text.substr(0, DeadLetter::kTextBytesMax));
    }
  };
  add("walpost-dlq-pipeline", pipeline);
  add("walpost-dlq-reason", row.reason);
  add("walpost-dlq-detail", row.detail);
  add("walpost-dlq-id", row.event_id);
  add("walpost-dlq-type", row.event_type);
  add("walpost-dlq-table", row.source);
  add("walpost-dlq-topic", row.topic);
  add("walpost-dlq-position", row.position);
  add("walpost-dlq-schema", row.schema);
  if (row.attempts > 0) {
    add("walpost-dlq-attempts", std::to_string(row.attempts));
  }
  if (row.partition >= 0) {
    add("walpost-dlq-partition", std::to_string(row.partition));
  }
  if (row.event_time_ms != 0) {
    add("walpost-dlq-timestamp-ms", std::to_string(row.event_time_ms));
  }
  if (row.truncated_bytes) {
    add("walpost-dlq-truncated-bytes", std::to_string(*row.truncated_bytes));
  }
  return headers;
}

void TakeRecord(const Record& record, DeadLetter* row) {
  const bool only_here = row->reason == kKeyParked || outbox::IsMessageLabel(row->source);
  TakeRecord(record, row,
             only_here ? DeadLetter::kOnlyRecordBytesMax : DeadLetter::kRecordBytesMax);
}

void TakeRecord(const Record& record, DeadLetter* row, std::size_t bytes_max) {
  std::size_t bytes = record.value ? record.value->size() : 0;
  for (const RecordHeader& header : record.headers) {
    bytes += header.name.size() + header.value.size();
  }
  const bool fits = bytes <= bytes_max;
  if (!fits && !row->truncated_bytes) {
    row->truncated_bytes = bytes;
  }
  const bool whole = !row->truncated_bytes;
  if (record.key && (whole || row->parked || record.key->size() <= kTruncatedKeyBytesMax)) {
    row->key = std::string(*record.key);
  }
  if (!fits) {
    return;
  }
  if (record.value) {
    row->value = std::string(*record.value);
  }
  for (const RecordHeader& header : record.headers) {
    DeadLetter::Header& added = row->headers.emplace_back();
    added.name = header.name;
    if (header.value.data() != nullptr) {
      added.value = std::string(header.value);
    }
  }
}

std::vector<RecordHeader> RedeliveryHeaders(std::span<const RecordHeader> event_headers,
                                            std::string_view kind, std::string_view position) {
  std::vector<RecordHeader> headers;
  for (const RecordHeader& header : event_headers) {
    if (header.name != "walpost-position") {
      headers.push_back(header);
    }
  }
  headers.push_back({kRedelivery, kind});
  if (!position.empty()) {
    headers.push_back({"walpost-original-position", position});
  }
  return headers;
}

std::vector<RecordHeader> HeadersOf(const DeadLetter& row) {
  std::vector<RecordHeader> headers;
  for (const DeadLetter::Header& header : row.headers) {
    headers.push_back({header.name, header.value ? *header.value : std::string_view()});
  }
  return headers;
}

std::vector<RecordHeader> RedeliveryHeaders(const DeadLetter& row, std::string_view kind) {
  return RedeliveryHeaders(HeadersOf(row), kind, row.position);
}

}  // namespace walpost::envelope
