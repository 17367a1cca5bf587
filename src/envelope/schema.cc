#include "envelope/schema.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace walpost::envelope {
namespace {

constexpr std::array<std::string_view, 3> kFramings = {"none", "payload", "header"};
constexpr std::array<std::string_view, 3> kTypes = {"protobuf", "json", "avro"};
constexpr char kPayloadMagic = 0;
constexpr char kHeaderMagic = 1;

void AppendZigZag(std::int32_t value, std::string* out) {
  const auto wide = static_cast<std::int64_t>(value);
  auto rest = static_cast<std::uint64_t>((wide << 1) ^ (wide >> 63));
  for (; rest >= 0x80; rest >>= 7) {
    out->push_back(static_cast<char>(rest | 0x80));
  }
  out->push_back(static_cast<char>(rest));
}

// The path [0], by far the most common, is a single zero.
void AppendIndexes(const std::vector<std::int32_t>& indexes, std::string* out) {
  if (indexes.size() == 1 && indexes[0] == 0) {
    out->push_back('\0');
    return;
  }
  AppendZigZag(static_cast<std::int32_t>(indexes.size()), out);
  for (const std::int32_t index : indexes) {
    AppendZigZag(index, out);
  }
}

template <std::size_t kSize>
std::optional<std::size_t> IndexOf(const std::array<std::string_view, kSize>& names,
                                   std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? std::nullopt
                              : std::optional(static_cast<std::size_t>(found - names.begin()));
}

std::string_view TakeWord(std::string_view* text) {
  const std::size_t end = std::min(text->find(' '), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

}  // namespace

std::string_view FramingName(Framing framing) {
  return kFramings[static_cast<std::size_t>(framing)];
}

std::string_view SchemaTypeName(SchemaType type) { return kTypes[static_cast<std::size_t>(type)]; }

std::string ExpandSubject(std::string_view pattern, std::string_view topic,
                          std::string_view record) {
  constexpr std::string_view kTopic = "{topic}";
  constexpr std::string_view kRecord = "{record}";
  std::string subject;
  while (!pattern.empty()) {
    if (pattern.substr(0, kTopic.size()) == kTopic) {
      subject += topic;
      pattern.remove_prefix(kTopic.size());
    } else if (pattern.substr(0, kRecord.size()) == kRecord) {
      subject += record;
      pattern.remove_prefix(kRecord.size());
    } else {
      subject += pattern.front();
      pattern.remove_prefix(1);
    }
  }
  return subject;
}

absl::StatusOr<std::string> FrameOf(const SchemaNeed& need, const Schema& schema) {
  std::string frame;
  if (need.framing == Framing::kHeader) {
    if (!schema.guid) {
      return absl::FailedPreconditionError(
          absl::StrFormat("the registry gives schema %d of subject '%s' no GUID, which `framing: "
                          "header` needs: use `framing: payload`, or a registry that has them",
                          schema.id, need.subject));
    }
    frame.push_back(kHeaderMagic);
    frame.append(schema.guid->begin(), schema.guid->end());
  } else {
    frame.push_back(kPayloadMagic);
    const auto id = static_cast<std::uint32_t>(schema.id);
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
      frame.push_back(static_cast<char>(id >> shift & 0xff));
    }
  }
  if (need.type == SchemaType::kProtobuf) {
    AppendIndexes(schema.indexes, &frame);
  }
  if (frame.size() > kSchemaRoom) {
    return absl::InvalidArgumentError(
        absl::StrFormat("message %s stands too deep in its .proto file: its place takes %u bytes, "
                        "and there is room for %u",
                        need.record, frame.size(), kSchemaRoom));
  }
  return frame;
}

Record Framed(const Record& record, Framing framing, std::string_view frame) {
  CHECK(record.value && record.schema != 0 && frame.size() <= kSchemaRoom);
  static_assert(kSchemaRoom + kSchemaHeader.size() <= Record::kSchemaBytesMax);
  Record framed = record;
  framed.schema = 0;
  // The block is the record's own; see Encoder for what stands before its value.
  char* const room = const_cast<char*>(record.value->data()) - frame.size();
  std::memcpy(room, frame.data(), frame.size());
  if (framing == Framing::kPayload) {
    framed.value = std::string_view(room, frame.size() + record.value->size());
    return framed;
  }
  auto* const spare = const_cast<RecordHeader*>(record.headers.data()) + record.headers.size();
  *spare = RecordHeader{kSchemaHeader, std::string_view(room, frame.size())};
  framed.headers = std::span<const RecordHeader>(record.headers.data(), record.headers.size() + 1);
  return framed;
}

Record WithRoom(const Record& record, base::ChunkArena* arena) {
  std::size_t size = (record.headers.size() + 1) * sizeof(RecordHeader) + kSchemaRoom +
                     record.topic.size() + record.key.value_or("").size() +
                     record.value.value_or("").size();
  for (const RecordHeader& header : record.headers) {
    size += header.name.size() + header.value.size();
  }
  Record copied = record;
  copied.block = arena->Allocate(size);
  auto* headers = ::new (copied.block.data) RecordHeader[record.headers.size() + 1];
  char* next = copied.block.data + (record.headers.size() + 1) * sizeof(RecordHeader);
  const auto copy = [&next](std::string_view text) {
    char* const start = next;
    if (!text.empty()) {
      std::memcpy(start, text.data(), text.size());
    }
    next += text.size();
    return std::string_view(start, text.size());
  };
  for (std::size_t i = 0; i < record.headers.size(); ++i) {
    const RecordHeader& header = record.headers[i];
    headers[i].name = copy(header.name);
    headers[i].value = header.value.data() == nullptr ? header.value : copy(header.value);
  }
  copied.headers = std::span<const RecordHeader>(headers, record.headers.size());
  copied.topic = copy(record.topic);
  if (record.key) {
    copied.key = copy(*record.key);
  }
  next += kSchemaRoom;
  if (record.value) {
    copied.value = copy(*record.value);
  }
  CHECK_EQ(next, copied.block.data + size);
  return copied;
}

std::string NeedAsText(const SchemaNeed& need) {
  return absl::StrFormat("%s %s %s %s", FramingName(need.framing), SchemaTypeName(need.type),
                         need.record.empty() ? "-" : need.record, need.subject);
}

absl::StatusOr<SchemaNeed> ParseNeed(std::string_view text) {
  std::string_view rest = text;
  const std::optional<std::size_t> framing = IndexOf(kFramings, TakeWord(&rest));
  const std::optional<std::size_t> type = IndexOf(kTypes, TakeWord(&rest));
  const std::string_view record = TakeWord(&rest);
  if (framing.value_or(0) == 0 || !type || record.empty() || rest.empty()) {
    return absl::DataLossError(
        absl::StrFormat("what is noted of its schema cannot be read: '%s'", text.substr(0, 100)));
  }
  return SchemaNeed{static_cast<Framing>(*framing), static_cast<SchemaType>(*type),
                    std::string(rest), record == "-" ? "" : std::string(record)};
}

namespace {

// Of an entry and its place in the index, beside the names, which stand in both.
constexpr std::size_t kEntryBytes = 400;

std::string KeyOf(const SchemaNeed& need) {
  return NeedAsText(need) + " " + std::to_string(need.source);
}

std::size_t BytesOf(const SchemaNeed& need) {
  return kEntryBytes + 2 * (need.subject.size() + need.record.size());
}

}  // namespace

SchemaTable::Ref SchemaTable::RefOf(const SchemaNeed& need) {
  const auto [found, added] = by_key_.try_emplace(KeyOf(need), 0);
  if (!added) {
    return found->second;
  }
  if (free_.empty()) {
    entries_.emplace_back();
    free_.push_back(size());
  }
  found->second = free_.back();
  free_.pop_back();
  Entry& entry = entries_.at(found->second - 1);
  entry.need = need;
  entry.made_in = epoch_;
  bytes_ += BytesOf(need);
  return found->second;
}

void SchemaTable::ForgetUnused(const std::vector<Ref>& in_use) {
  std::vector<bool> needed(size() + std::size_t{1});
  for (const Ref ref : in_use) {
    needed.at(ref) = true;
  }
  std::vector<Ref> known;
  for (const auto& [key, ref] : std::exchange(by_key_, {})) {
    const Entry& entry = entries_.at(ref - 1);
    if (needed[ref] || entry.state == State::kKnown) {
      by_key_.emplace(key, ref);
    } else {
      Drop(ref);
    }
    if (!needed[ref] && entry.state == State::kKnown) {
      known.push_back(ref);
    }
  }
  std::sort(known.begin(), known.end(), [this](Ref a, Ref b) {
    return std::pair(entry(a).used_at, a) < std::pair(entry(b).used_at, b);
  });
  for (const Ref ref : known) {
    if (bytes_ <= kBytesMax / 2) {
      break;
    }
    by_key_.erase(KeyOf(entry(ref).need));
    Drop(ref);
  }
  // What is in use stays, and may be much.
  crowded_at_ = std::max(kBytesMax, 2 * bytes_);
  ++epoch_;
}

void SchemaTable::Drop(Ref ref) {
  Entry& entry = entries_.at(ref - 1);
  wanted_.erase(ref);
  bytes_ -= BytesOf(entry.need);
  entry = Entry();
  free_.push_back(ref);
}

const SchemaTable::Entry& SchemaTable::Use(Ref ref) {
  Entry& entry = entries_.at(ref - 1);
  entry.used = true;
  entry.used_at = ++uses_;
  if (entry.state == State::kUnknown) {
    wanted_.insert(ref);
  }
  return entry;
}

void SchemaTable::Learn(Ref ref, std::string frame, bool fixed) {
  Entry& entry = entries_.at(ref - 1);
  entry.state = State::kKnown;
  entry.frame = std::move(frame);
  entry.rejection.clear();
  entry.fixed = fixed;
  entry.used = false;
  wanted_.erase(ref);
}

void SchemaTable::Reject(Ref ref, std::string rejection, bool unclear) {
  Entry& entry = entries_.at(ref - 1);
  entry.used = false;
  wanted_.erase(ref);
  if (entry.state != State::kKnown) {
    entry.state = State::kRejected;
    entry.rejection = std::move(rejection);
    entry.unclear = unclear;
  }
}

void SchemaTable::Forget(Ref ref) {
  Entry& entry = entries_.at(ref - 1);
  if (entry.state == State::kRejected) {
    entry.state = State::kUnknown;
  }
}

void SchemaTable::ForgetRejections() {
  for (Ref ref = 1; ref <= size(); ++ref) {
    Forget(ref);
  }
}

}  // namespace walpost::envelope
