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

}  // namespace walpost::envelope
