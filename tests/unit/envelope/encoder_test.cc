#include "envelope/encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <walpost/v1/envelope.pb.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "outbox/event.h"

namespace walpost::envelope {
namespace {

using base::Lsn;
using outbox::Event;
using outbox::Header;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr char kPosition[] = "0000000000000007-00000002-00000016b374d848-00000003";
constexpr char kEnvelopeType[] = "application/protobuf; proto=walpost.v1.Envelope";
constexpr base::WallTime kCommitTime{std::chrono::microseconds(1'709'208'000'123'999)};

class EncoderTest : public ::testing::Test {
 protected:
  EncoderTest() {
    event_.id = "id-1";
    event_.key = "42";
    event_.aggregate_type = "order";
    event_.type = "Placed";
    event_.payload = std::string_view("\0\xff", 2);
    event_.content_type = "application/json";
    event_.traceparent = "00-ab-cd-01";
    event_.tracestate = "x=y";
    event_.topic = "orders";
    event_.headers = row_headers_;
    event_.record_headers = column_headers_;
    event_.schema = "outbox";
    event_.table = "events";
  }

  Record Encode(Encoder* encoder) {
    Record record;
    const absl::Status status = encoder->Encode(event_, position_, transaction_, &arena_, &record);
    EXPECT_TRUE(status.ok()) << status;
    return record;
  }

  Record Encode(EncoderOptions options) {
    encoders_.push_back(Encoder(options, "shop"));
    return Encode(&encoders_.back());
  }

  using Pairs = std::vector<std::pair<std::string, std::string>>;

  static Pairs Headers(const Record& record) {
    Pairs pairs;
    for (const RecordHeader& header : record.headers) {
      pairs.emplace_back(header.name, header.value);
    }
    return pairs;
  }

  static v1::Envelope Parsed(const Record& record) {
    v1::Envelope envelope;
    EXPECT_TRUE(envelope.ParseFromString(std::string(record.value.value_or("\xff"))));
    return envelope;
  }

  const std::vector<Header> row_headers_ = {{"tenant", "a"}, {"b", ""}};
  const std::vector<Header> column_headers_ = {{"x-seq", "99"}};
  Event event_;
  Position position_{7, 2, Lsn(0x16B374D848), 3};
  TransactionInfo transaction_{base::Xid{700}, kCommitTime};
  base::ChunkArena arena_;
  std::vector<Encoder> encoders_;
};

TEST_F(EncoderTest, EnvelopeCarriesEverythingAndTheHeadersARouterNeeds) {
  const Record record = Encode({ValueFormat::kEnvelope, HeaderSet::kWalpost});
  EXPECT_EQ(record.topic, "orders");
  EXPECT_EQ(record.key, "42");
  EXPECT_EQ(record.partition, -1);
  EXPECT_EQ(record.timestamp_ms, 1'709'208'000'123);
  EXPECT_THAT(
      Headers(record),
      ElementsAre(Pair("id", "id-1"), Pair("type", "Placed"), Pair("content-type", kEnvelopeType),
                  Pair("traceparent", "00-ab-cd-01"), Pair("tracestate", "x=y"),
                  Pair("walpost-position", kPosition), Pair("x-seq", "99")));
  const v1::Envelope envelope = Parsed(record);
  EXPECT_EQ(envelope.id(), "id-1");
  EXPECT_EQ(envelope.payload(), std::string("\0\xff", 2));
  EXPECT_EQ(envelope.content_type(), "application/json");
  EXPECT_EQ(envelope.headers().at("tenant"), "a");
  EXPECT_EQ(envelope.source().database(), "shop");
  EXPECT_EQ(envelope.source().xid(), 700U);
  EXPECT_EQ(envelope.position().commit_lsn(), 0x16B374D848U);
  EXPECT_EQ(envelope.position().ordinal(), 3U);
}

TEST_F(EncoderTest, RawValueIsThePayloadAndTheRowsHeadersAreTheRecords) {
  const Record record = Encode({ValueFormat::kRaw, HeaderSet::kWalpost});
  EXPECT_EQ(record.value, std::string_view("\0\xff", 2));
  EXPECT_THAT(
      Headers(record),
      ElementsAre(Pair("id", "id-1"), Pair("type", "Placed"),
                  Pair("content-type", "application/json"), Pair("traceparent", "00-ab-cd-01"),
                  Pair("tracestate", "x=y"), Pair("walpost-position", kPosition),
                  Pair("x-seq", "99"), Pair("tenant", "a"), Pair("b", "")));
}

// A consumer of Debezium's Event Router notices no change.
TEST_F(EncoderTest, DebeziumHasNoHeaderOfOurs) {
  event_.headers = {};
  event_.record_headers = {};
  event_.traceparent = event_.tracestate = "";  // no column is mapped to them
  const Record record = Encode({ValueFormat::kRaw, HeaderSet::kDebezium});
  EXPECT_THAT(Headers(record), ElementsAre(Pair("id", "id-1")));
}

TEST_F(EncoderTest, TraceContextIsInTheHeadersWhereItIsMapped) {
  event_.headers = {};
  event_.record_headers = {};
  event_.baggage = "k=v";
  event_.tracingspancontext = "traceparent=00-ab-cd-01";
  const Record record = Encode({ValueFormat::kRaw, HeaderSet::kDebezium});
  EXPECT_THAT(Headers(record), ElementsAre(Pair("id", "id-1"), Pair("traceparent", "00-ab-cd-01"),
                                           Pair("tracestate", "x=y"), Pair("baggage", "k=v"),
                                           Pair("tracingspancontext", "traceparent=00-ab-cd-01")));
}

TEST_F(EncoderTest, ConstantHeadersStandOnEveryRecord) {
  EncoderOptions options;
  options.constant_headers = {{"env", "prod"}, {"empty", ""}};
  for (const ValueFormat format :
       {ValueFormat::kEnvelope, ValueFormat::kRaw, ValueFormat::kCloudEvents}) {
    options.format = format;
    EXPECT_THAT(Headers(Encode(options)),
                AllOf(Contains(Pair("env", "prod")), Contains(Pair("empty", ""))));
  }
}

// The headers of CloudEvents are tested where they are made: cloud_event_test.cc.
TEST_F(EncoderTest, CloudEventHasItsHeadersBesideThoseOfEveryFormat) {
  const Record record = Encode({ValueFormat::kCloudEvents, HeaderSet::kWalpost});
  EXPECT_EQ(record.value, std::string_view("\0\xff", 2));
  EXPECT_THAT(Headers(record), Contains(Pair("ce_specversion", "1.0")));
  for (const auto& header : Pairs{{"id", "id-1"},
                                  {"type", "Placed"},
                                  {"content-type", "application/json"},
                                  {"traceparent", "00-ab-cd-01"},
                                  {"tracestate", "x=y"},
                                  {"walpost-position", kPosition},
                                  {"x-seq", "99"},
                                  {"tenant", "a"},
                                  {"ce_sequence", kPosition},
                                  {"ce_source", "/shop/outbox/events"}}) {
    EXPECT_THAT(Headers(record), Contains(header).Times(1));
  }
}

TEST_F(EncoderTest, CloudEventForDebeziumsConsumersStillSaysWhatItIs) {
  EncoderOptions options{ValueFormat::kCloudEvents, HeaderSet::kDebezium};
  options.cloud_events.mode = CloudEventMode::kStructuredProtobuf;
  event_.headers = {};
  event_.record_headers = {};
  event_.traceparent = event_.tracestate = "";
  EXPECT_THAT(
      Headers(Encode(options)),
      ElementsAre(Pair("id", "id-1"), Pair("content-type", "application/cloudevents+protobuf")));
}

TEST_F(EncoderTest, TombstoneOfACloudEventIsANullValue) {
  event_.payload = std::nullopt;
  EXPECT_EQ(Encode({ValueFormat::kCloudEvents, HeaderSet::kWalpost}).value, std::nullopt);
}

TEST_F(EncoderTest, TimestampIsTheColumnsWhereItIsGiven) {
  event_.timestamp = base::WallTime(std::chrono::microseconds(1'600'000'000'000'999));
  EXPECT_EQ(Encode({ValueFormat::kRaw, HeaderSet::kWalpost}).timestamp_ms, 1'600'000'000'000);
  // Kafka has no time before 1970, and 0 means none.
  for (const std::int64_t micros : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN}) {
    event_.timestamp = base::WallTime(std::chrono::microseconds(micros));
    EXPECT_EQ(Encode({ValueFormat::kRaw, HeaderSet::kWalpost}).timestamp_ms, 1);
  }
}

TEST_F(EncoderTest, HeadersThatWereNotGivenAreLeftOut) {
  event_.type = event_.content_type = event_.traceparent = event_.tracestate = "";
  event_.headers = {};
  event_.record_headers = {};
  EXPECT_THAT(Headers(Encode({ValueFormat::kRaw, HeaderSet::kWalpost})),
              ElementsAre(Pair("id", "id-1"), Pair("walpost-position", kPosition)));
  EXPECT_THAT(Headers(Encode({ValueFormat::kEnvelope, HeaderSet::kWalpost})),
              ElementsAre(Pair("id", "id-1"), Pair("content-type", kEnvelopeType),
                          Pair("walpost-position", kPosition)));
}

TEST_F(EncoderTest, NullIsNotEmpty) {
  event_.key = std::nullopt;
  event_.payload = std::nullopt;
  Record record = Encode({ValueFormat::kRaw, HeaderSet::kWalpost});
  EXPECT_EQ(record.key, std::nullopt);
  EXPECT_EQ(record.value, std::nullopt) << "a NULL payload is a tombstone";
  event_.key = "";
  event_.payload = "";
  record = Encode({ValueFormat::kRaw, HeaderSet::kWalpost});
  EXPECT_EQ(record.key, "");
  EXPECT_EQ(record.value, "");
}

TEST_F(EncoderTest, HeaderWithoutValueIsNotEmpty) {
  const std::vector<Header> headers = {{"null", "", true}, {"empty", ""}};
  event_.record_headers = headers;
  const Record record = Encode({ValueFormat::kRaw, HeaderSet::kDebezium});
  ASSERT_EQ(record.headers.size(), 7u);  // id, trace context, these, the row's
  EXPECT_EQ(record.headers[3].name, "null");
  EXPECT_EQ(record.headers[3].value.data(), nullptr);
  EXPECT_NE(record.headers[4].value.data(), nullptr);
}

TEST_F(EncoderTest, EnvelopeOfANullPayloadIsNoTombstone) {
  event_.payload = std::nullopt;
  EXPECT_FALSE(Parsed(Encode({ValueFormat::kEnvelope, HeaderSet::kWalpost})).has_payload());
}

TEST_F(EncoderTest, ChosenPartitionIsKept) {
  event_.partition = 7;
  EXPECT_EQ(Encode({ValueFormat::kRaw, HeaderSet::kWalpost}).partition, 7);
}

TEST_F(EncoderTest, RecordOutlivesTheRow) {
  for (const ValueFormat format :
       {ValueFormat::kEnvelope, ValueFormat::kRaw, ValueFormat::kCloudEvents}) {
    Encoder encoder({format, HeaderSet::kWalpost}, "shop");
    std::string row = "row-bytes";
    event_.id = event_.type = event_.topic = row;
    event_.key = event_.payload = row;
    const Header header{row, row};
    event_.headers = std::span<const Header>(&header, 1);
    const Record record = Encode(&encoder);
    row.assign("XXXXXXXXX");
    EXPECT_EQ(record.topic, "row-bytes");
    EXPECT_EQ(record.key, "row-bytes");
    EXPECT_THAT(std::string(*record.value), ::testing::Not(::testing::HasSubstr("XX")));
    for (const auto& [name, value] : Headers(record)) {
      EXPECT_NE(name, row);
      EXPECT_NE(value, row);
    }
  }
}

TEST_F(EncoderTest, RecordLiesInItsBlock) {
  const Record record = Encode({ValueFormat::kEnvelope, HeaderSet::kWalpost});
  const auto inside = [&record](const void* data, std::size_t size) {
    const char* start = static_cast<const char*>(data);
    return start >= record.block.data && start + size <= record.block.data + record.block.size;
  };
  EXPECT_TRUE(inside(record.headers.data(), record.headers.size_bytes()));
  for (const RecordHeader& header : record.headers) {
    EXPECT_TRUE(inside(header.name.data(), header.name.size())) << header.name;
    EXPECT_TRUE(inside(header.value.data(), header.value.size())) << header.name;
  }
  EXPECT_TRUE(inside(record.key->data(), record.key->size()));
  EXPECT_TRUE(inside(record.topic.data(), record.topic.size()));
  // The value is the last part and fills the block: nothing was allocated that is not used.
  EXPECT_EQ(record.value->data() + record.value->size(), record.block.data + record.block.size);
}

TEST_F(EncoderTest, RedeliveryHasTheSameBytes) {
  const EncoderOptions options{ValueFormat::kEnvelope, HeaderSet::kWalpost};
  const Record first = Encode(options);
  const Record second = Encode(options);
  EXPECT_EQ(first.value, second.value);
  EXPECT_EQ(Headers(first), Headers(second));
  EXPECT_EQ(first.timestamp_ms, second.timestamp_ms);
}

TEST_F(EncoderTest, NothingStaysAllocatedAfterAnError) {
  Encoder encoder({ValueFormat::kEnvelope, HeaderSet::kWalpost}, "shop");
  const base::ChunkArena::Block before = arena_.Allocate(16);
  arena_.Release(before);
  event_.type = "\xff";
  Record record;
  const absl::Status status = encoder.Encode(event_, position_, transaction_, &arena_, &record);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(arena_.Allocate(16).data, before.data);
}

TEST_F(EncoderTest, RawKeyAndValueNeedNoUtf8) {
  event_.key = "\xfe";
  const Record record = Encode({ValueFormat::kRaw, HeaderSet::kWalpost});
  EXPECT_EQ(record.key, "\xfe");
}

TEST_F(EncoderTest, HeaderThatIsNotUtf8IsUndeliverableInEveryFormat) {
  const std::vector<Header> bad = {{"x-seq", "s3cret\xff"}};
  event_.record_headers = bad;
  for (const ValueFormat format :
       {ValueFormat::kEnvelope, ValueFormat::kRaw, ValueFormat::kCloudEvents}) {
    Encoder encoder({format, HeaderSet::kWalpost}, "shop");
    Record record;
    const absl::Status status = encoder.Encode(event_, position_, transaction_, &arena_, &record);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(outbox::ReasonCodeOf(status), "header_invalid");
    EXPECT_EQ(status.message(),
              "table outbox.events: header x-seq of event 'id-1' is not UTF-8: correct what writes "
              "it, or take it out of the configuration");
  }
  event_.record_headers = {};
  event_.id = "\xff";
  Encoder encoder({ValueFormat::kRaw, HeaderSet::kDebezium}, "shop");
  Record record;
  EXPECT_THAT(
      std::string(encoder.Encode(event_, position_, transaction_, &arena_, &record).message()),
      HasSubstr("header id of event '' is not UTF-8"));
}

// Whoever writes rows cannot speak for walpost.
TEST_F(EncoderTest, EventBringsNoHeaderThatWalpostWritesInItsFormat) {
  using Names = std::vector<std::string_view>;
  event_.payload = "{}";
  const EncoderOptions raw{ValueFormat::kRaw, HeaderSet::kWalpost};
  const EncoderOptions debezium{ValueFormat::kRaw, HeaderSet::kDebezium};
  EncoderOptions structured{ValueFormat::kCloudEvents, HeaderSet::kWalpost};
  structured.cloud_events.mode = CloudEventMode::kStructuredJson;
  const EncoderOptions binary{ValueFormat::kCloudEvents, HeaderSet::kDebezium};
  const auto rejected = [&](const EncoderOptions& options, std::string_view name) {
    bool found = false;
    for (const bool of_column : {false, true}) {
      const std::vector<Header> one = {{name, "x"}};
      event_.headers = of_column ? std::span<const Header>() : one;
      event_.record_headers = of_column ? std::span<const Header>(one) : std::span<const Header>();
      Record record;
      Encoder encoder(options, "shop");
      const absl::Status status = encoder.Encode(event_, position_, transaction_, &arena_, &record);
      EXPECT_TRUE(status.ok() || outbox::ReasonCodeOf(status) == "header_invalid") << status;
      // The name of a column's header is the configuration's.
      const bool plain =
          std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
      EXPECT_TRUE(!of_column || !plain || found == !status.ok()) << "of a column: " << name;
      found = found || !status.ok();
    }
    return found;
  };
  const Names always = {"id",
                        "walpost-position",
                        "walpost-dlq",
                        "walpost-",
                        "traceparent",
                        "tracestate",
                        {"ok\0", 3},
                        "a\nb",
                        // Readers that fold case as Unicode does, or leave out blanks.
                        "walpo\u017ft-position",
                        "\u0131d",
                        "id ",
                        " id",
                        "id\u00a0"};
  for (const EncoderOptions& options : {raw, debezium, structured, binary}) {
    for (const std::string_view name : always) {
      EXPECT_TRUE(rejected(options, name)) << name;
    }
    EXPECT_FALSE(rejected(options, "tenant"));
    EXPECT_FALSE(rejected(options, "walpost"));
    // There are readers that take names without case.
    for (const std::string_view name : Names{"ID", "Walpost-Position", "WALPOST-", "TraceParent"}) {
      EXPECT_TRUE(rejected(options, name)) << name;
    }
  }
  for (const std::string_view name : Names{"type", "Type", "content-type", "Content-Type"}) {
    EXPECT_TRUE(rejected(raw, name)) << name;
    EXPECT_FALSE(rejected(debezium, name)) << name;
  }
  EXPECT_TRUE(rejected(structured, "type"));
  EXPECT_FALSE(rejected(binary, "type"));
  EXPECT_TRUE(rejected(binary, "content-type"));
  EXPECT_TRUE(rejected(binary, "Content-Type"));
  for (const std::string_view name :
       Names{"ce_id", "ce_specversion", "ce_sequence", "ce_sequencetype", "CE-SequenceType",
             "ce_data", "CE_ID", "ce_Source", "Ce_type", "ce-id", "Ce-Source", "cloudEvents:id",
             "cloudevents:Type", "cloudEvents_source"}) {
    EXPECT_TRUE(rejected(binary, name)) << name;
    EXPECT_TRUE(rejected(structured, name)) << name;
    EXPECT_FALSE(rejected(raw, name)) << name;
  }
  EXPECT_FALSE(rejected(binary, "ce_tenant")) << "an extension of the event's own";
}

TEST_F(EncoderTest, HeaderStandsOnARecordOnce) {
  EncoderOptions options{ValueFormat::kRaw, HeaderSet::kWalpost};
  options.constant_headers = {{"cell", "eu-1"}};
  const std::vector<Header> of_configuration = {{"cell", "us-1"}};
  const std::vector<Header> of_column = {{"x-seq", "1"}};
  const std::vector<Header> in_another_case = {{"Cell", "us-1"}};
  for (const std::vector<Header>& headers : {of_configuration, of_column, in_another_case}) {
    event_.headers = headers;
    Record record;
    Encoder encoder(options, "shop");
    EXPECT_EQ(
        outbox::ReasonCodeOf(encoder.Encode(event_, position_, transaction_, &arena_, &record)),
        "header_invalid");
  }
}

// Inside the envelope a name is a member of a map, and means nothing but itself.
TEST_F(EncoderTest, EnvelopesOwnHeadersMayHaveAnyNameButWalposts) {
  const std::vector<Header> harmless = {{"id", "x"}, {"type", "y"}};
  event_.headers = harmless;
  event_.record_headers = {};
  const Record record = Encode({ValueFormat::kEnvelope, HeaderSet::kWalpost});
  EXPECT_EQ(Parsed(record).headers().at("id"), "x");
  for (const char* name : {"walpost-position", "Walpost-Position"}) {
    const std::vector<Header> forged = {{name, "x"}};
    event_.headers = forged;
    Record rejected;
    EXPECT_EQ(outbox::ReasonCodeOf(
                  encoders_.back().Encode(event_, position_, transaction_, &arena_, &rejected)),
              "header_invalid");
  }
}

TEST_F(EncoderTest, AccountedBytesAreKeyValueHeadersAndBookkeeping) {
  event_.headers = {};
  event_.record_headers = {};
  event_.traceparent = event_.tracestate = "";
  const Record record = Encode({ValueFormat::kRaw, HeaderSet::kDebezium});
  EXPECT_EQ(record.AccountedBytes(), 768U + 2 + 2 + std::string("idid-1").size());
  EXPECT_EQ(Record().AccountedBytes(), 768U);
  // Small headers take more than their bytes.
  const std::vector<RecordHeader> many(1'000, RecordHeader{"n", ""});
  Record wide;
  wide.headers = many;
  EXPECT_GT(wide.AccountedBytes(), 1'000U * 70);
}

}  // namespace
}  // namespace walpost::envelope
