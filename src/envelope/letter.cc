#include "envelope/letter.h"

#include <array>
#include <charconv>
#include <cstring>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace walpost::envelope {
namespace {

constexpr std::string_view kKind = "walpost-dlq";
constexpr std::string_view kAction = "walpost-dlq-action";
constexpr std::string_view kPipeline = kLetterPipelineHeader;
constexpr std::string_view kTopic = "walpost-dlq-topic";
constexpr std::string_view kTable = "walpost-dlq-table";
constexpr std::string_view kId = "walpost-dlq-id";
constexpr std::string_view kType = "walpost-dlq-type";
constexpr std::string_view kPosition = "walpost-dlq-position";
constexpr std::string_view kThrough = "walpost-dlq-through";
constexpr std::string_view kReason = "walpost-dlq-reason";
constexpr std::string_view kDetail = "walpost-dlq-detail";
constexpr std::string_view kSchema = "walpost-dlq-schema";
constexpr std::string_view kAttempts = "walpost-dlq-attempts";
constexpr std::string_view kPartition = "walpost-dlq-partition";
constexpr std::string_view kTimestamp = "walpost-dlq-timestamp-ms";
constexpr std::string_view kLeftOut = "walpost-dlq-left-out-bytes";
constexpr std::string_view kAnswers = "walpost-dlq-answers";

constexpr std::array<std::string_view, 4> kKinds = {"letter", "parked", "command", "decision"};
constexpr std::array<std::string_view, 6> kActions = {"none",      "retry",     "discard",
                                                      "delivered", "discarded", "failed"};

using OwnHeaders = std::vector<std::pair<std::string_view, std::string>>;

OwnHeaders OwnHeadersOf(const Letter& letter) {
  OwnHeaders headers;
  headers.emplace_back(kKind, LetterKindName(letter.kind));  // first: the event's own end here
  const auto add = [&headers](std::string_view name, std::string_view text) {
    if (!text.empty()) {
      headers.emplace_back(name, text.substr(0, Letter::kTextMax));
    }
  };
  add(kPipeline, letter.pipeline);
  if (letter.action != LetterAction::kNone) {
    add(kAction, LetterActionName(letter.action));
  }
  add(kReason, letter.reason);
  add(kDetail, letter.detail);
  add(kId, letter.id);
  add(kType, letter.type);
  add(kTable, letter.table);
  add(kTopic, letter.topic);
  add(kPosition, letter.position);
  add(kThrough, letter.through);
  add(kSchema, letter.schema);
  if (letter.attempts > 0) {
    add(kAttempts, std::to_string(letter.attempts));
  }
  if (letter.partition >= 0) {
    add(kPartition, std::to_string(letter.partition));
  }
  if (letter.timestamp_ms != 0) {
    add(kTimestamp, std::to_string(letter.timestamp_ms));
  }
  if (letter.left_out_bytes) {
    add(kLeftOut, std::to_string(*letter.left_out_bytes));
  }
  if (letter.answers) {
    add(kAnswers, std::to_string(*letter.answers));
  }
  return headers;
}

// Where ours begin; an event may have copied a letter's headers, so the last counts.
std::size_t FirstOwn(std::span<const RecordHeader> headers) {
  for (std::size_t i = headers.size(); i > 0; --i) {
    if (headers[i - 1].name == kKind) {
      return i - 1;
    }
  }
  return headers.size();
}

absl::Status Unreadable(const RecordHeader& header) {
  return absl::DataLossError(
      absl::StrFormat("header %s has a value that this version of walpost "
                      "does not know: '%s'",
                      header.name, header.value.substr(0, 100)));
}

template <std::size_t kSize, typename Enum>
absl::Status ParseName(const RecordHeader& header, const std::array<std::string_view, kSize>& names,
                       Enum* value) {
  for (std::size_t i = 0; i < kSize; ++i) {
    if (names[i] == header.value) {
      *value = static_cast<Enum>(i);
      return absl::OkStatus();
    }
  }
  return Unreadable(header);
}

template <typename Number>
absl::Status ParseNumber(const RecordHeader& header, Number* value) {
  const char* const end = header.value.data() + header.value.size();
  const auto [rest, error] = std::from_chars(header.value.data(), end, *value);
  return error == std::errc() && rest == end ? absl::OkStatus() : Unreadable(header);
}

absl::Status Take(const RecordHeader& header, Letter* letter) {
  const std::pair<std::string_view, std::string*> texts[] = {
      {kPipeline, &letter->pipeline}, {kReason, &letter->reason},
      {kDetail, &letter->detail},     {kId, &letter->id},
      {kType, &letter->type},         {kTable, &letter->table},
      {kTopic, &letter->topic},       {kPosition, &letter->position},
      {kThrough, &letter->through},   {kSchema, &letter->schema}};
  for (const auto& [name, text] : texts) {
    if (header.name == name) {
      *text = header.value;
      return absl::OkStatus();
    }
  }
  if (header.name == kKind) {
    return ParseName(header, kKinds, &letter->kind);
  }
  if (header.name == kAction) {
    return ParseName(header, kActions, &letter->action);
  }
  if (header.name == kAttempts) {
    return ParseNumber(header, &letter->attempts);
  }
  if (header.name == kPartition) {
    return ParseNumber(header, &letter->partition);
  }
  if (header.name == kTimestamp) {
    return ParseNumber(header, &letter->timestamp_ms);
  }
  if (header.name == kLeftOut) {
    return ParseNumber(header, &letter->left_out_bytes.emplace());
  }
  if (header.name == kAnswers) {
    return ParseNumber(header, &letter->answers.emplace());
  }
  return absl::OkStatus();  // of a later version
}

}  // namespace

std::string_view LetterKindName(LetterKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

std::string_view LetterActionName(LetterAction action) {
  return kActions[static_cast<std::size_t>(action)];
}

Record EncodeLetter(const Letter& letter, std::string_view topic, const Record& event,
                    base::ChunkArena* arena) {
  const bool stub = letter.left_out_bytes.has_value();
  const OwnHeaders own = OwnHeadersOf(letter);
  const std::span<const RecordHeader> kept = stub ? std::span<const RecordHeader>() : event.headers;
  const bool with_key = event.key && (!stub || letter.kind == LetterKind::kParked ||
                                      event.key->size() <= kStubKeyBytesMax);
  std::size_t size = (kept.size() + own.size()) * sizeof(RecordHeader);
  for (const RecordHeader& header : kept) {
    size += header.name.size() + header.value.size();
  }
  for (const auto& [name, value] : own) {
    size += name.size() + value.size();
  }
  size += with_key ? event.key->size() : 0;
  size += !stub && event.value ? event.value->size() : 0;

  Record record;
  record.topic = topic;
  record.partition = 0;
  record.block = arena->Allocate(size);
  // Blocks are aligned for this array; text follows it.
  const std::size_t count = kept.size() + own.size();
  auto* headers = ::new (record.block.data) RecordHeader[count];
  char* next = record.block.data + count * sizeof(RecordHeader);
  const auto copy = [&next](std::string_view text) {
    char* const start = next;
    if (!text.empty()) {
      std::memcpy(start, text.data(), text.size());
    }
    next += text.size();
    return std::string_view(start, text.size());
  };
  std::size_t i = 0;
  for (const RecordHeader& header : kept) {
    headers[i].name = copy(header.name);
    headers[i++].value = header.value.data() == nullptr ? header.value : copy(header.value);
  }
  for (const auto& [name, value] : own) {
    headers[i++] = {copy(name), copy(value)};
  }
  record.headers = std::span<const RecordHeader>(headers, count);
  if (with_key) {
    record.key = copy(*event.key);
  }
  if (!stub && event.value) {
    record.value = copy(*event.value);
  }
  return record;
}

absl::StatusOr<std::optional<Letter>> ParseLetter(std::span<const RecordHeader> headers) {
  const std::size_t first = FirstOwn(headers);
  if (first == headers.size()) {
    return std::nullopt;
  }
  Letter letter;
  for (const RecordHeader& header : headers.subspan(first)) {
    RETURN_IF_ERROR(Take(header, &letter));
  }
  return letter;
}

std::span<const RecordHeader> EventHeaders(std::span<const RecordHeader> headers) {
  return headers.first(FirstOwn(headers));
}

std::vector<RecordHeader> RedeliveryHeaders(std::span<const RecordHeader> event_headers,
                                            std::string_view kind, std::string_view position) {
  std::vector<RecordHeader> headers;
  for (const RecordHeader& header : event_headers) {
    if (header.name != "walpost-position") {
      headers.push_back(header);
    }
  }
  headers.push_back({"walpost-redelivery", kind});
  if (!position.empty()) {
    headers.push_back({"walpost-original-position", position});
  }
  return headers;
}

}  // namespace walpost::envelope
