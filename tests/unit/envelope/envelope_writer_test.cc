// The hand-written bytes against those of the generated class.

#include "envelope/envelope_writer.h"

#include <gmock/gmock.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>
#include <walpost/v1/envelope.pb.h>

#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/random_seed.h"
#include "walpost/v1/envelope.pb.h"

namespace walpost::envelope {
namespace {

using base::Lsn;
using outbox::Event;
using outbox::Header;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kDatabase[] = "shop";

void SetTime(base::WallTime time, google::protobuf::Timestamp* timestamp) {
  constexpr std::int64_t kMicros = 1'000'000;
  const std::int64_t micros = time.time_since_epoch().count();
  const std::int64_t rest = ((micros % kMicros) + kMicros) % kMicros;
  timestamp->set_seconds(micros / kMicros - (micros % kMicros < 0 ? 1 : 0));
  timestamp->set_nanos(static_cast<std::int32_t>(rest * 1'000));
}

v1::Envelope Expected(const Event& event, const Position& position,
                      const TransactionInfo& transaction) {
  v1::Envelope envelope;
  envelope.set_id(std::string(event.id));
  envelope.set_type(std::string(event.type));
  envelope.set_aggregate_type(std::string(event.aggregate_type));
  if (event.key) {
    envelope.set_aggregate_id(std::string(*event.key));
  }
  if (event.payload) {
    envelope.set_payload(std::string(*event.payload));
  }
  envelope.set_content_type(std::string(event.content_type));
  envelope.set_schema_name(std::string(event.schema_name));
  for (const Header& header : event.headers) {
    (*envelope.mutable_headers())[std::string(header.name)] = std::string(header.value);
  }
  if (event.occurred_at) {
    SetTime(*event.occurred_at, envelope.mutable_occurred_at());
  }
  SetTime(transaction.commit_time, envelope.mutable_committed_at());
  envelope.set_traceparent(std::string(event.traceparent));
  envelope.set_tracestate(std::string(event.tracestate));
  v1::Source* source = envelope.mutable_source();
  source->set_database(kDatabase);
  source->set_schema(std::string(event.schema));
  source->set_table(std::string(event.table));
  source->set_system_identifier(position.system_identifier);
  source->set_timeline(position.timeline);
  source->set_xid(transaction.xid.value);
  envelope.mutable_position()->set_commit_lsn(position.commit_lsn.value());
  envelope.mutable_position()->set_ordinal(position.ordinal);
  return envelope;
}

// Map entries sorted by key, as the bytes of a map are otherwise in no order.
std::string Serialized(const v1::Envelope& envelope) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    envelope.SerializeToCodedStream(&coded);
  }
  return bytes;
}

std::string Written(EnvelopeWriter* writer, const Event& event, const Position& position,
                    const TransactionInfo& transaction) {
  const absl::StatusOr<std::size_t> size = writer->Measure(event, position, transaction);
  EXPECT_TRUE(size.ok()) << size.status();
  std::string bytes(size.value_or(0) + 1, '#');
  const char* end = writer->Write(event, position, transaction, bytes.data());
  EXPECT_EQ(end, bytes.data() + *size) << "Write and Measure differ";
  EXPECT_EQ(bytes.back(), '#') << "written past the end";
  bytes.pop_back();
  return bytes;
}

// An event that owns its text.
class RandomEvent {
 public:
  explicit RandomEvent(std::mt19937_64* random) : random_(random) {
    for (int i = static_cast<int>(Below(4)); i > 0; --i) {
      headers_.emplace(Text(), Text());
    }
    for (const auto& [name, value] : headers_) {
      header_views_.push_back({name, value});
    }
    for (std::string& text : texts_) {
      text = Text();
    }
    event.id = texts_[0];
    event.aggregate_type = texts_[1];
    event.type = texts_[2];
    event.content_type = texts_[3];
    event.schema_name = texts_[4];
    event.traceparent = texts_[5];
    event.tracestate = texts_[6];
    if (Below(4) != 0) {
      event.key = texts_[7];
    }
    if (Below(4) != 0) {
      payload_ = std::string(Length(), static_cast<char>(Below(256)));
      event.payload = payload_;
    }
    event.headers = header_views_;
    if (Below(2) == 0) {
      event.occurred_at = Time();
    }
    // Few of them, so that what the writer keeps of the last event is used and dropped.
    event.schema = Below(2) == 0 ? "outbox" : "public";
    event.table = Below(2) == 0 ? "events" : "events_of_a_table_with_a_long_name";
    position = {Below(3) == 0 ? Number() : 7, static_cast<std::uint32_t>(Below(3)), Lsn(Number()),
                static_cast<std::uint32_t>(Number())};
    transaction = {base::Xid{static_cast<std::uint32_t>(Number())}, Time()};
  }

  Event event;
  Position position;
  TransactionInfo transaction;

 private:
  std::size_t Below(std::size_t limit) { return (*random_)() % limit; }

  // Around the sizes at which a length takes one more byte.
  std::size_t Length() {
    constexpr std::size_t kLengths[] = {0, 1, 5, 36, 126, 127, 128, 129, 16'383, 16'384, 20'000};
    return kLengths[Below(Below(4) == 0 ? std::size(kLengths) : 5)];
  }

  std::string Text() {
    constexpr const char* kCharacters[] = {"a", "Z", "0", "ü", "漢", "😀", "\x7f", " "};
    const std::string character =
        Below(20) == 0 ? std::string(1, '\0') : kCharacters[Below(std::size(kCharacters))];
    std::string text;
    for (const std::size_t length = Length(); text.size() < length;) {
      text += character;
    }
    return text;
  }

  std::uint64_t Number() { return Below(5) == 0 ? 0 : (*random_)() >> Below(64); }

  base::WallTime Time() {
    constexpr std::int64_t kTimes[] = {0,
                                       -1,
                                       1'000'000,
                                       -1'000'000,
                                       std::numeric_limits<std::int64_t>::max(),
                                       std::numeric_limits<std::int64_t>::min()};
    const auto micros =
        Below(4) == 0 ? kTimes[Below(std::size(kTimes))] : static_cast<std::int64_t>(Number());
    return base::WallTime(std::chrono::microseconds(micros));
  }

  std::mt19937_64* const random_;
  std::map<std::string, std::string> headers_;  // by name, as Serialized sorts them
  std::vector<Header> header_views_;
  std::string texts_[8];
  std::string payload_;
};

TEST(EnvelopeWriterTest, EveryByteIsThatOfTheGeneratedClass) {
  std::mt19937_64 random(testing::RandomSeed());
  EnvelopeWriter writer(kDatabase);
  for (int round = 0; round < 5'000; ++round) {
    const RandomEvent one(&random);
    ASSERT_EQ(Written(&writer, one.event, one.position, one.transaction),
              Serialized(Expected(one.event, one.position, one.transaction)))
        << "round " << round;
  }
}

TEST(EnvelopeWriterTest, EmptyEventStillHasTimeSourceAndPosition) {
  EnvelopeWriter writer("");
  const Event event;
  v1::Envelope parsed;
  ASSERT_TRUE(parsed.ParseFromString(Written(&writer, event, Position(), TransactionInfo())));
  EXPECT_TRUE(parsed.has_committed_at());
  EXPECT_TRUE(parsed.has_source());
  EXPECT_TRUE(parsed.has_position());
  EXPECT_FALSE(parsed.has_occurred_at());
  EXPECT_FALSE(parsed.has_aggregate_id());
  EXPECT_FALSE(parsed.has_payload());
}

TEST(EnvelopeWriterTest, EmptyKeyAndPayloadArePresent) {
  EnvelopeWriter writer(kDatabase);
  Event event;
  event.key = std::string_view();
  event.payload = std::string_view();
  v1::Envelope parsed;
  ASSERT_TRUE(parsed.ParseFromString(Written(&writer, event, Position(), TransactionInfo())));
  EXPECT_TRUE(parsed.has_aggregate_id());
  EXPECT_TRUE(parsed.has_payload());
}

TEST(EnvelopeWriterTest, HeadersMayComeInAnyOrder) {
  EnvelopeWriter writer(kDatabase);
  Event event;
  const std::vector<Header> headers = {{"b", "1"}, {"a", ""}, {"c", "3"}};
  event.headers = headers;
  v1::Envelope parsed;
  ASSERT_TRUE(parsed.ParseFromString(Written(&writer, event, Position(), TransactionInfo())));
  EXPECT_EQ(parsed.headers().size(), 3U);
  EXPECT_EQ(parsed.headers().at("b"), "1");
  EXPECT_EQ(parsed.headers().at("a"), "");
}

// Failures 54, 60.
TEST(EnvelopeWriterTest, TextThatIsNotUtf8IsUndeliverableAndNotShown) {
  const std::string bad = "s3cret\xff";
  const std::vector<std::pair<std::string, std::string_view Event::*>> fields = {
      {"id", &Event::id},
      {"type", &Event::type},
      {"aggregate type", &Event::aggregate_type},
      {"content type", &Event::content_type},
      {"schema name", &Event::schema_name},
      {"traceparent", &Event::traceparent},
      {"tracestate", &Event::tracestate}};
  EnvelopeWriter writer(kDatabase);
  const auto expect_rejected = [&writer](const Event& event, const std::string& what) {
    const absl::Status status = writer.Measure(event, Position(), TransactionInfo()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    EXPECT_THAT(std::string(status.message()), HasSubstr("outbox.events"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("s3cret")));
  };
  Event good;
  good.schema = "outbox";
  good.table = "events";
  for (const auto& [name, field] : fields) {
    Event event = good;
    event.*field = bad;
    expect_rejected(event, "the " + name + " of an event is not UTF-8");
  }
  Event event = good;
  event.key = bad;
  expect_rejected(event, "the key of an event is not UTF-8");
  for (const Header& header : {Header{bad, "x"}, Header{"x", bad}}) {
    event = good;
    event.headers = std::span<const Header>(&header, 1);
    expect_rejected(event, "a header of event '' is not UTF-8");
  }
}

TEST(EnvelopeWriterTest, PayloadMayBeAnyBytes) {
  EnvelopeWriter writer(kDatabase);
  Event event;
  event.payload = "\xff\xfe";
  v1::Envelope parsed;
  ASSERT_TRUE(parsed.ParseFromString(Written(&writer, event, Position(), TransactionInfo())));
  EXPECT_EQ(parsed.payload(), "\xff\xfe");
}

// Failure 60.
TEST(EnvelopeWriterTest, PayloadBeyondProtobufsLimitIsUndeliverable) {
  EnvelopeWriter writer(kDatabase);
  Event event;
  event.id = "42";
  event.payload = std::string_view("never read", std::size_t{1} << 31);
  const absl::Status status = writer.Measure(event, Position(), TransactionInfo()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("event '42' has 2147483648 bytes"));
}

using ::testing::AllOf;

TEST(EnvelopeJsonTest, EnvelopeIsReadable) {
  v1::Envelope envelope;
  envelope.set_id("a1");
  envelope.set_payload("hello");
  EXPECT_THAT(EnvelopeAsJson(envelope.SerializeAsString()).value_or(""),
              AllOf(HasSubstr("\"id\": \"a1\""), HasSubstr("\"payload\": \"aGVsbG8=\"")));
}

TEST(EnvelopeJsonTest, OtherBytesAreNone) { EXPECT_FALSE(EnvelopeAsJson("{\"no\": 1}")); }

}  // namespace
}  // namespace walpost::envelope
