// The hot path, from the payload of an Insert to the record in the arena, once it is warm: not one
// allocation per event.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "envelope/encoder.h"
#include "outbox/column_value.h"
#include "outbox/options.h"
#include "outbox/table_mapper.h"
#include "pgoutput/decoder.h"
#include "support/pgoutput_bytes.h"
#include "unit/envelope/allocation_counter.h"

namespace walpost::envelope {
namespace {

using testing::BinaryColumn;
using testing::NullColumn;
using testing::TextColumn;

constexpr pgoutput::RelationId kTable{16400};

pgoutput::Relation Table() {
  using namespace outbox::type_oid;  // NOLINT: names nothing else here
  pgoutput::Relation relation;
  relation.id = kTable;
  relation.schema = "outbox";
  relation.name = "events";
  const std::pair<const char*, std::uint32_t> columns[] = {{"id", kUuid},
                                                           {"seq", kInt8},
                                                           {"aggregate_type", kText},
                                                           {"aggregate_id", kInt8},
                                                           {"event_type", kText},
                                                           {"payload", kBytea},
                                                           {"content_type", kText},
                                                           {"headers", kJsonb},
                                                           {"traceparent", kText},
                                                           {"occurred_at", kTimestamptz}};
  for (const auto& [name, type] : columns) {
    relation.columns.push_back({name, type, -1, false});
  }
  return relation;
}

// Rows of many sizes and of topics that alternate, in the form a server of 14 or later sends, or of
// 13. Not among them: the two values TableMapper names as costing an allocation.
std::vector<std::string> Rows(bool binary) {
  std::vector<std::string> rows;
  for (int i = 0; i < 50; ++i) {
    const std::string topic = "a_topic_whose_name_is_long_number_" + std::to_string(i % 3);
    const std::string raw(static_cast<std::size_t>(i * 37), 'x');
    std::string hex = "\\x";
    for (std::size_t j = 0; j < raw.size(); ++j) {
      hex += "78";
    }
    rows.push_back(testing::InsertBytes(
        kTable,
        {binary ? BinaryColumn(std::string(16, static_cast<char>(i)))
                : TextColumn("3f2504e0-4f89-11d3-9a0c-0305e82c3301"),
         binary ? BinaryColumn(testing::BigEndian(i, 8)) : TextColumn(std::to_string(i)),
         TextColumn(topic),
         binary ? BinaryColumn(testing::BigEndian(1'000'000 * i, 8)) : TextColumn("1000000"),
         TextColumn("a type of event with a long name"),
         binary ? BinaryColumn(raw) : TextColumn(hex),
         i % 2 == 0 ? NullColumn() : TextColumn("application/octet-stream"),
         i % 2 == 0 ? NullColumn() : TextColumn("{}"),
         TextColumn("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
         binary ? BinaryColumn(testing::BigEndian(i, 8)) : NullColumn()}));
  }
  return rows;
}

// A loop that keeps some records in flight, as they wait for Kafka.
class HotPath {
 public:
  explicit HotPath(EncoderOptions options, const outbox::TableOptions& table = Options())
      : mapper_(table), encoder_(options, "a database with a long name", &schemas_) {
    EXPECT_TRUE(mapper_.Bind(Table()).ok());
    in_flight_.reserve(kInFlight);
  }

  void Take(const std::vector<std::string>& rows, int count) {
    for (int i = 0; i < count; ++i) {
      const std::string& row = rows[static_cast<std::size_t>(i) % rows.size()];
      outbox::Event event;
      Record record;
      const bool taken = decoder_.Decode(row, &message_).ok() &&
                         mapper_.Map(std::get<pgoutput::Insert>(message_).values, &event).ok() &&
                         encoder_
                             .Encode(event, Position{7, 1, base::Lsn(0x100), ordinal_++},
                                     TransactionInfo(), &arena_, &record)
                             .ok();
      if (!taken) {
        ++rejected_;
        continue;
      }
      if (in_flight_.size() < kInFlight) {
        in_flight_.push_back(record);
      } else {
        Record& oldest = in_flight_[ordinal_ % kInFlight];
        arena_.Release(oldest.block);
        oldest = record;
      }
    }
  }

  int rejected() const { return rejected_; }

  static outbox::TableOptions Options() {
    outbox::TableOptions options = *outbox::PresetOptions("walpost");
    options.topic = "events.{aggregate_type}.v1";
    options.record_headers = {{"x-seq", "seq"}};
    options.columns.timestamp = {"occurred_at"};
    options.topics.by_aggregate_type = {{"a_topic_whose_name_is_long_number_2", "one_of_its_own"}};
    options.topics.allowed = {"events.a_topic_whose_name_is_long_number_0.v1",
                              "events.a_topic_whose_name_is_long_number_1.v1", "one_of_its_own"};
    return options;
  }

 private:
  static constexpr std::size_t kInFlight = 2'000;

  pgoutput::Decoder decoder_;
  pgoutput::Message message_;
  outbox::TableMapper mapper_;
  SchemaTable schemas_;
  Encoder encoder_;
  base::ChunkArena arena_;
  std::vector<Record> in_flight_;
  std::uint32_t ordinal_ = 0;
  int rejected_ = 0;
};

TEST(AllocationTest, CounterCounts) {
  const std::uint64_t before = AllocationCount();
  const auto number = std::make_unique<int>(1);
  EXPECT_EQ(AllocationCount(), before + 1);
}

std::vector<EncoderOptions> Formats() {
  std::vector<EncoderOptions> formats(5);
  formats[0].format = ValueFormat::kEnvelope;
  formats[1].format = ValueFormat::kRaw;
  for (std::size_t i = 2; i < formats.size(); ++i) {
    formats[i].format = ValueFormat::kCloudEvents;
    formats[i].cloud_events.mode = static_cast<CloudEventMode>(i - 2);
  }
  for (EncoderOptions& options : formats) {
    options.constant_headers = {{"environment", "a value that is long, as values may be"}};
  }
  formats.push_back(formats[0]);
  formats.back().framing.framing = Framing::kPayload;
  return formats;
}

TEST(AllocationTest, WarmPathAllocatesNothing) {
  for (const bool binary : {false, true}) {
    const std::vector<std::string> rows = Rows(binary);
    for (const EncoderOptions& options : Formats()) {
      HotPath path(options);
      path.Take(rows, 10'000);
      const std::uint64_t before = AllocationCount();
      path.Take(rows, 10'000);
      EXPECT_EQ(AllocationCount(), before)
          << (binary ? "binary" : "text") << ", format " << static_cast<int>(options.format)
          << ", mode " << static_cast<int>(options.cloud_events.mode);
      EXPECT_EQ(path.rejected(), 0);
    }
  }
}

TEST(AllocationTest, WarmPathOfDebeziumsOptionsAllocatesNothing) {
  outbox::TableOptions table = HotPath::Options();
  outbox::DebeziumOptions& debezium = table.debezium.emplace();
  debezium.topic_regex = "(.*)";
  debezium.topic_replacement = "events.$1.v1";
  debezium.placements = {{"event_type", outbox::Placement::Where::kHeader, "eventType"},
                         {"content_type", outbox::Placement::Where::kHeader, "content-type"}};
  debezium.tombstone_on_empty = true;
  for (const bool binary : {false, true}) {
    const std::vector<std::string> rows = Rows(binary);
    HotPath path({ValueFormat::kRaw, HeaderSet::kDebezium}, table);
    path.Take(rows, 10'000);
    const std::uint64_t before = AllocationCount();
    path.Take(rows, 10'000);
    EXPECT_EQ(AllocationCount(), before) << (binary ? "binary" : "text");
    EXPECT_EQ(path.rejected(), 0);
  }
}

}  // namespace
}  // namespace walpost::envelope
