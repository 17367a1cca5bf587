// What bytes mean: records as they were written when they were published, byte by byte. walpost
// still writes and reads exactly these, so an event of today says to yesterday's consumer what it
// said before.
#include <gtest/gtest.h>
#include <walpost/v1/envelope.pb.h>

#include <string>
#include <string_view>
#include <vector>

#include "envelope/control_records.h"
#include "envelope/envelope_writer.h"
#include "outbox/message_mapper.h"

namespace walpost {
namespace {

using base::WallTime;
using std::chrono::microseconds;
using std::string_view_literals::operator""sv;

// A tag (number << 3 | wire type), for type 2 a length, and the value; one field a line.
constexpr std::string_view kEnvelope =
    "\x0a\x02"
    "e1"
    "\x12\x0b"
    "OrderPlaced"
    "\x1a\x05"
    "order"
    "\x22\x02"
    "42"
    "\x2a\x02\x00\xff"
    "\x32\x10"
    "application/json"
    "\x3a\x0a"
    "shop.Order"
    "\x42\x06\x0a\x01"
    "a"
    "\x12\x01"
    "1"
    "\x42\x05\x0a\x01"
    "b"
    "\x12\x00"
    "\x4a\x05\x08\x01\x10\xd0\x0f"
    "\x52\x0b\x08\x80\xe2\xcf\xaa\x06\x10\x80\x94\xef\x3a"
    "\x5a\x04"
    "00-1"
    "\x62\x03"
    "x=y"
    "\x6a\x29\x0a\x04"
    "shop"
    "\x12\x06"
    "outbox"
    "\x1a\x06"
    "events"
    "\x20\x90\xe4\xd0\xb2\x87\xd3\xae\xee\xfe\x01"
    "\x28\x03"
    "\x30\x80\xd0\xac\xf3\x0e"
    "\x72\x09\x08\xc8\xb0\xd3\x9b\xeb\x02\x10\x07"sv;
// An event without key, payload and time, at the beginning of everything.
constexpr std::string_view kSmallest =
    "\x0a\x01"
    "e"
    "\x52\x00"
    "\x6a\x00"
    "\x72\x00"sv;
constexpr std::string_view kMessage =
    "\x0a\x02"
    "e1"
    "\x12\x0b"
    "OrderPlaced"
    "\x1a\x05"
    "order"
    "\x22\x02"
    "42"
    "\x2a\x02\x00\xff"
    "\x32\x10"
    "application/json"
    "\x3a\x0a"
    "shop.Order"
    "\x42\x06\x0a\x01"
    "a"
    "\x12\x01"
    "1"
    "\x4a\x05\x08\x01\x10\xd0\x0f"
    "\x5a\x04"
    "00-1"
    "\x62\x03"
    "x=y"
    "\x7a\x06"
    "orders"
    "\x80\x01\x03"sv;
constexpr std::string_view kProgress =
    "\x08\x01"
    "\x10\x90\xe4\xd0\xb2\x87\xd3\xae\xee\xfe\x01"
    "\x18\x03"
    "\x20\xc8\xb0\xd3\x9b\xeb\x02"
    "\x2a\x0b\x08\x80\xe2\xcf\xaa\x06\x10\x80\x94\xef\x3a"
    "\x32\x20\x08\x80\xd0\xac\xf3\x0e\x12\x12\x08\x07\x12\x06"
    "outbox"
    "\x1a\x06"
    "events"
    "\x1a\x04"
    "shop"
    "\x38\x04"sv;
constexpr WallTime kCommitted{microseconds(1'700'000'000'123'456)};
constexpr WallTime kOccurred{microseconds(1'000'002)};
constexpr std::uint64_t kSystem = 0xfedc'ba98'7654'3210;

std::string Written(const std::string& database, const outbox::Event& event,
                    const envelope::Position& position,
                    const envelope::TransactionInfo& transaction) {
  envelope::EnvelopeWriter writer(database);
  const absl::StatusOr<std::size_t> size = writer.Measure(event, position, transaction);
  EXPECT_TRUE(size.ok()) << size.status();
  std::string bytes(size.value_or(0), '\0');
  writer.Write(event, position, transaction, bytes.data());
  return bytes;
}

TEST(CompatibilityTest, EnvelopeIsWrittenAsItEverWas) {
  outbox::Event event;
  event.id = "e1";
  event.type = "OrderPlaced";
  event.aggregate_type = "order";
  event.key = "42";
  event.payload = "\x00\xff"sv;
  event.content_type = "application/json";
  event.schema_name = "shop.Order";
  const std::vector<outbox::Header> headers = {{"a", "1"}, {"b", ""}};
  event.headers = headers;
  event.occurred_at = kOccurred;
  event.traceparent = "00-1";
  event.tracestate = "x=y";
  event.schema = "outbox";
  event.table = "events";
  const envelope::Position position{kSystem, 3, base::Lsn(0x16'b374'd848), 7};
  EXPECT_EQ(Written("shop", event, position, {base::Xid{4'000'000'000}, kCommitted}), kEnvelope);

  outbox::Event smallest;
  smallest.id = "e";
  EXPECT_EQ(Written("", smallest, {}, {}), kSmallest);
}

TEST(CompatibilityTest, EnvelopeIsReadAsItEverWas) {
  v1::Envelope envelope;
  ASSERT_TRUE(envelope.ParseFromString(std::string(kEnvelope)));
  EXPECT_EQ(envelope.id(), "e1");
  EXPECT_EQ(envelope.type(), "OrderPlaced");
  EXPECT_EQ(envelope.aggregate_type(), "order");
  EXPECT_EQ(envelope.aggregate_id(), "42");
  EXPECT_EQ(envelope.payload(), "\x00\xff"sv);
  EXPECT_EQ(envelope.content_type(), "application/json");
  EXPECT_EQ(envelope.schema_name(), "shop.Order");
  EXPECT_EQ(envelope.headers().size(), 2U);
  EXPECT_EQ(envelope.headers().at("a"), "1");
  EXPECT_EQ(envelope.headers().at("b"), "");
  EXPECT_EQ(envelope.occurred_at().seconds(), 1);
  EXPECT_EQ(envelope.occurred_at().nanos(), 2'000);
  EXPECT_EQ(envelope.committed_at().seconds(), 1'700'000'000);
  EXPECT_EQ(envelope.committed_at().nanos(), 123'456'000);
  EXPECT_EQ(envelope.traceparent(), "00-1");
  EXPECT_EQ(envelope.tracestate(), "x=y");
  EXPECT_EQ(envelope.source().database(), "shop");
  EXPECT_EQ(envelope.source().schema(), "outbox");
  EXPECT_EQ(envelope.source().table(), "events");
  EXPECT_EQ(envelope.source().system_identifier(), kSystem);
  EXPECT_EQ(envelope.source().timeline(), 3U);
  EXPECT_EQ(envelope.source().xid(), 4'000'000'000U);
  EXPECT_EQ(envelope.position().commit_lsn(), 0x16'b374'd848U);
  EXPECT_EQ(envelope.position().ordinal(), 7U);

  v1::Envelope smallest;
  ASSERT_TRUE(smallest.ParseFromString(std::string(kSmallest)));
  EXPECT_FALSE(smallest.has_aggregate_id()) << "no key is not the empty key";
  EXPECT_FALSE(smallest.has_payload()) << "no payload is not the empty one";
  EXPECT_FALSE(smallest.has_occurred_at());
  EXPECT_TRUE(smallest.has_committed_at());
}

TEST(CompatibilityTest, OutboxMessageIsReadAsItEverWas) {
  outbox::MessageMapper mapper("{aggregate_type}");
  outbox::Event event;
  ASSERT_TRUE(mapper.Map("shop", kMessage, &event).ok());
  EXPECT_EQ(event.id, "e1");
  EXPECT_EQ(event.type, "OrderPlaced");
  EXPECT_EQ(event.aggregate_type, "order");
  EXPECT_EQ(event.key, "42");
  EXPECT_EQ(event.payload, "\x00\xff"sv);
  EXPECT_EQ(event.content_type, "application/json");
  EXPECT_EQ(event.schema_name, "shop.Order");
  ASSERT_EQ(event.headers.size(), 1U);
  EXPECT_EQ(event.headers[0].name, "a");
  EXPECT_EQ(event.headers[0].value, "1");
  EXPECT_EQ(event.occurred_at, kOccurred);
  EXPECT_EQ(event.traceparent, "00-1");
  EXPECT_EQ(event.tracestate, "x=y");
  EXPECT_EQ(event.topic, "orders");
  EXPECT_EQ(event.partition, 3);
}

TEST(CompatibilityTest, ProgressIsWrittenAndReadAsItEverWas) {
  base::Progress progress;
  progress.epoch = 4;
  progress.system_identifier = kSystem;
  progress.timeline = 3;
  progress.end_lsn = base::Lsn(0x16'b374'd848);
  progress.recorded_at = kCommitted;
  progress.publication_oid = 4'000'000'000;
  progress.tables = {{7, "outbox", "events"}};
  progress.message_prefixes = {"shop"};
  EXPECT_EQ(envelope::EncodeProgress(progress), kProgress);
  const auto read = envelope::DecodeProgress(kProgress);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->epoch, 4U);
  EXPECT_EQ(read->system_identifier, kSystem);
  EXPECT_EQ(read->timeline, 3U);
  EXPECT_EQ(read->end_lsn, progress.end_lsn);
  EXPECT_EQ(read->recorded_at, kCommitted);
  EXPECT_EQ(read->publication_oid, 4'000'000'000U);
  ASSERT_EQ(read->tables.size(), 1U);
  EXPECT_EQ(read->tables[0].oid, 7U);
  EXPECT_EQ(read->tables[0].schema, "outbox");
  EXPECT_EQ(read->tables[0].name, "events");
  EXPECT_EQ(read->message_prefixes, std::vector<std::string>{"shop"});
}

}  // namespace
}  // namespace walpost
