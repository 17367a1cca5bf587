// What is written in each mode of CloudEvents, against the generated class and a JSON parser.
#include <gmock/gmock.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>
#include <io/cloudevents/v1/cloudevents.pb.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "envelope/cloud_event_writer.h"
#include "outbox/unfit.h"
#include "support/random_seed.h"

namespace walpost::envelope {
namespace {

using base::Lsn;
using outbox::Event;
using outbox::Header;
using outbox::PayloadForm;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using Json = nlohmann::json;
using Message = ::io::cloudevents::v1::CloudEvent;
using Attributes = std::map<std::string, std::string>;

constexpr Position kPosition{7, 2, Lsn(0x16B374D848), 3};
constexpr char kSequence[] = "0000000000000007-00000002-00000016b374d848-00000003";
// 2024-02-29T12:00:00.123456Z
constexpr base::WallTime kCommitTime{std::chrono::microseconds(1'709'208'000'123'456)};

std::string TimeText(base::WallTime time) {
  return absl::FormatTime("%E4Y-%m-%dT%H:%M:%E6SZ",
                          absl::FromUnixMicros(time.time_since_epoch().count()),
                          absl::UTCTimeZone());
}

struct Written {
  std::optional<std::string> value;
  std::vector<std::pair<std::string, std::string>> headers;

  std::string HeaderOf(const std::string& name) const {
    for (const auto& [header, text] : headers) {
      if (header == name) {
        return text;
      }
    }
    return "(none)";
  }
};

class Mode {
 public:
  explicit Mode(CloudEventMode mode, const std::string& source = "")
      : writer_(CloudEventOptions{mode, source}, "shop") {}

  absl::StatusOr<Written> Try(const Event& event, base::WallTime commit_time = kCommitTime) {
    const auto size = writer_.Measure(event, kPosition, TransactionInfo{base::Xid{7}, commit_time});
    if (!size.ok()) {
      return size.status();
    }
    Written written;
    if (*size) {
      written.value.emplace(**size + 1, '#');
      const char* end = writer_.Write(event, written.value->data());
      EXPECT_EQ(end, written.value->data() + **size) << "Write and Measure differ";
      EXPECT_EQ(written.value->back(), '#') << "written past the end";
      written.value->pop_back();
    }
    std::vector<Header> headers;
    writer_.AddHeaders(&headers);
    for (const Header& header : headers) {
      written.headers.emplace_back(header.name, header.value);
    }
    return written;
  }

  Written Of(const Event& event, base::WallTime commit_time = kCommitTime) {
    const absl::StatusOr<Written> written = Try(event, commit_time);
    EXPECT_TRUE(written.ok()) << written.status();
    return written.value_or(Written());
  }

 private:
  CloudEventWriter writer_;
};

Message Parsed(const Written& written) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(written.value.value_or("\xff")));
  return message;
}

Json ParsedJson(const Written& written) { return Json::parse(written.value.value_or("")); }

// Map entries sorted by key, as the bytes of a map are otherwise in no order.
std::string Serialized(const Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

Event Sample() {
  Event event;
  event.id = "id-1";
  event.type = "OrderPlaced";
  event.key = "42";
  event.payload = "{\"a\": 1.50}";
  event.content_type = "application/json";
  event.schema = "outbox";
  event.table = "events";
  return event;
}

Event FullSample() {
  Event event = Sample();
  event.schema_name = "https://shop.example/schemas/order?v=1";
  event.occurred_at = base::WallTime(std::chrono::microseconds(-1));
  event.traceparent = "00-ab-cd-01";
  event.tracestate = "x=y";
  return event;
}

TEST(CloudEventTest, BinaryModeIsThePayloadAndOneHeaderForEachAttribute) {
  const Written written = Mode(CloudEventMode::kBinary).Of(FullSample());
  EXPECT_EQ(written.value, "{\"a\": 1.50}");
  EXPECT_THAT(written.headers,
              ElementsAre(Pair("content-type", "application/json"), Pair("ce_specversion", "1.0"),
                          Pair("ce_id", "id-1"), Pair("ce_source", "/shop/outbox/events"),
                          Pair("ce_type", "OrderPlaced"),
                          Pair("ce_dataschema", "https://shop.example/schemas/order?v=1"),
                          Pair("ce_partitionkey", "42"),
                          Pair("ce_recordedtime", "2024-02-29T12:00:00.123456Z"),
                          Pair("ce_sequence", kSequence), Pair("ce_subject", "42"),
                          Pair("ce_time", "1969-12-31T23:59:59.999999Z"),
                          Pair("ce_traceparent", "00-ab-cd-01"), Pair("ce_tracestate", "x=y")));
}

TEST(CloudEventTest, AttributesThatAreNotGivenAreLeftOut) {
  Event event = Sample();
  event.key = std::nullopt;
  event.content_type = "";
  event.schema_name = "shop.v1.OrderPlaced";  // a name is no URI
  event.tracestate = "x=y";                   // means nothing alone
  const Written written = Mode(CloudEventMode::kBinary).Of(event);
  EXPECT_THAT(written.headers,
              ElementsAre(Pair("ce_specversion", "1.0"), Pair("ce_id", "id-1"),
                          Pair("ce_source", "/shop/outbox/events"), Pair("ce_type", "OrderPlaced"),
                          Pair("ce_recordedtime", "2024-02-29T12:00:00.123456Z"),
                          Pair("ce_sequence", kSequence)));
}

TEST(CloudEventTest, SchemaNameIsTheDataschemaWhenItIsAUri) {
  Mode mode(CloudEventMode::kBinary);
  Event event = Sample();
  for (const char* uri : {"https://x/y", "urn:a:b", "a+b-c.1:z"}) {
    event.schema_name = uri;
    EXPECT_EQ(mode.Of(event).HeaderOf("ce_dataschema"), uri);
  }
  for (const char* other : {"", "name", "a.b.C", ":x", "x:", "1a:b", "a b:c", "a:b c", "a:ä"}) {
    event.schema_name = other;
    EXPECT_EQ(mode.Of(event).HeaderOf("ce_dataschema"), "(none)") << other;
  }
}

TEST(CloudEventTest, SourceIsTheGivenOneOrTheTable) {
  EXPECT_EQ(Mode(CloudEventMode::kBinary, "urn:shop").Of(Sample()).HeaderOf("ce_source"),
            "urn:shop");
  Mode mode(CloudEventMode::kBinary);
  Event event = Sample();
  event.table = "odd name/ä";
  EXPECT_EQ(mode.Of(event).HeaderOf("ce_source"), "/shop/outbox/odd%20name%2F%C3%A4");
  event.table = event.schema = "";
  EXPECT_EQ(mode.Of(event).HeaderOf("ce_source"), "/shop");
}

TEST(CloudEventTest, NullPayloadIsATombstoneInBinaryModeOnly) {
  Event event = FullSample();
  event.payload = std::nullopt;
  EXPECT_EQ(Mode(CloudEventMode::kBinary).Of(event).value, std::nullopt);
  EXPECT_EQ(Parsed(Mode(CloudEventMode::kStructuredProtobuf).Of(event)).data_case(),
            Message::DATA_NOT_SET);
  const Json json = ParsedJson(Mode(CloudEventMode::kStructuredJson).Of(event));
  EXPECT_FALSE(json.contains("data") || json.contains("data_base64"));
  EXPECT_EQ(json.at("id"), "id-1");
}

TEST(CloudEventTest, StructuredModesSayInTheHeaderWhatTheValueIs) {
  EXPECT_THAT(Mode(CloudEventMode::kStructuredProtobuf).Of(FullSample()).headers,
              ElementsAre(Pair("content-type", "application/cloudevents+protobuf")));
  EXPECT_THAT(Mode(CloudEventMode::kStructuredJson).Of(FullSample()).headers,
              ElementsAre(Pair("content-type", "application/cloudevents+json; charset=UTF-8")));
}

// It is not parsed and written again: digits and spaces stay.
TEST(CloudEventTest, JsonStandsInJsonAsItIs) {
  const Written written = Mode(CloudEventMode::kStructuredJson).Of(Sample());
  EXPECT_THAT(*written.value, ::testing::EndsWith(",\"data\":{\"a\": 1.50}}"));
}

TEST(CloudEventTest, ProtobufTravelsAsAnyWithoutBeingDecoded) {
  Mode mode(CloudEventMode::kStructuredProtobuf);
  Event event = Sample();
  event.schema_name = "shop.v1.OrderPlaced";
  event.payload = std::string_view("\xff\x00 no message", 13);
  for (const char* type : {"application/protobuf", "Application/X-Protobuf; proto=x"}) {
    event.content_type = type;
    const Message message = Parsed(mode.Of(event));
    EXPECT_EQ(message.proto_data().type_url(), "type.googleapis.com/shop.v1.OrderPlaced");
    EXPECT_EQ(message.proto_data().value(), *event.payload);
  }
  for (const char* no_name : {"", "https://x/y", "1x"}) {
    event.schema_name = no_name;
    EXPECT_EQ(Parsed(mode.Of(event)).binary_data(), *event.payload) << no_name;
  }
}

TEST(CloudEventTest, TheColumnSaysWhatAPayloadWithoutContentTypeIs) {
  Mode json(CloudEventMode::kStructuredJson);
  Event event = Sample();
  event.content_type = "";
  event.payload_form = PayloadForm::kJson;
  Json parsed = ParsedJson(json.Of(event));
  EXPECT_EQ(parsed.at("datacontenttype"), "application/json");
  EXPECT_EQ(parsed.at("data").at("a"), 1.5);
  event.payload_form = PayloadForm::kText;
  parsed = ParsedJson(json.Of(event));
  EXPECT_EQ(parsed.at("datacontenttype"), "text/plain; charset=UTF-8");
  EXPECT_EQ(parsed.at("data"), std::string(*event.payload));
  event.payload_form = PayloadForm::kBytes;
  parsed = ParsedJson(json.Of(event));
  EXPECT_FALSE(parsed.contains("datacontenttype"));
  EXPECT_EQ(parsed.at("data_base64"), absl::Base64Escape(std::string(*event.payload)));
}

TEST(CloudEventTest, JsonThatIsNoneIsUndeliverableInJsonOnly) {
  Mode json(CloudEventMode::kStructuredJson);
  Event event = Sample();
  const std::string cases[] = {"",
                               "{",
                               "{\"s3cret\": }",
                               "1 2",
                               "nul",
                               "{} trailing",
                               "\"\xff\"",
                               "\xef\xbb\xbf{}",
                               std::string("{}\0 more", 8),
                               "// comment\n{}"};
  for (const std::string& payload : cases) {
    event.payload = payload;
    const absl::Status status = json.Try(event).status();
    EXPECT_EQ(outbox::UnfitReason(status), "payload_invalid") << payload;
    EXPECT_THAT(std::string(status.message()), HasSubstr("event 'id-1' is not JSON"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("s3cret")));
    for (const CloudEventMode mode :
         {CloudEventMode::kBinary, CloudEventMode::kStructuredProtobuf}) {
      EXPECT_TRUE(Mode(mode).Try(event).ok()) << payload;
    }
  }
  for (const char* payload : {"null", " [1, {\"a\": \"\\ud83d\\ude00\"}] ", "-1.5e10", "\"x\""}) {
    event.payload = payload;
    EXPECT_EQ(ParsedJson(json.Of(event)).at("data"), Json::parse(payload));
  }
}

// For example Latin-1, which the content type may name.
TEST(CloudEventTest, TextInAnotherEncodingTravelsAsBytes) {
  Event event = Sample();
  event.content_type = "text/plain; charset=iso-8859-1";
  event.payload =
      "gr\xf6\xdf"
      "e";
  EXPECT_EQ(Parsed(Mode(CloudEventMode::kStructuredProtobuf).Of(event)).binary_data(),
            *event.payload);
  EXPECT_EQ(ParsedJson(Mode(CloudEventMode::kStructuredJson).Of(event)).at("data_base64"),
            absl::Base64Escape(std::string(*event.payload)));
}

TEST(CloudEventTest, EventWithoutARequiredAttributeIsUndeliverable) {
  for (const CloudEventMode mode : {CloudEventMode::kBinary, CloudEventMode::kStructuredProtobuf,
                                    CloudEventMode::kStructuredJson}) {
    Event event = Sample();
    event.id = "";
    absl::Status status = Mode(mode).Try(event).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(outbox::UnfitReason(status), "cloudevent_invalid");
    EXPECT_THAT(std::string(status.message()), HasSubstr("it has no id"));
    event = Sample();
    event.type = "";
    status = Mode(mode).Try(event).status();
    EXPECT_EQ(outbox::UnfitReason(status), "cloudevent_invalid");
    EXPECT_THAT(std::string(status.message()), HasSubstr("event 'id-1': it has no type"));
  }
}

TEST(CloudEventTest, TextThatIsNotUtf8IsUndeliverableAndNotShown) {
  const std::pair<const char*, std::string_view Event::*> fields[] = {
      {"id", &Event::id},
      {"type", &Event::type},
      {"content type", &Event::content_type},
      {"traceparent", &Event::traceparent},
      {"tracestate", &Event::tracestate}};
  Mode mode(CloudEventMode::kBinary);
  for (const auto& [name, field] : fields) {
    Event event = FullSample();
    event.*field = "s3cret\xff";
    const absl::Status status = mode.Try(event).status();
    EXPECT_EQ(outbox::UnfitReason(status), "cloudevent_invalid") << name;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("its " + std::string(name) + " is not UTF-8"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("s3cret")));
  }
  Event event = Sample();
  event.key = "\xff";
  EXPECT_EQ(outbox::UnfitReason(mode.Try(event).status()), "cloudevent_invalid");
}

TEST(CloudEventTest, TimesOfTheYears1To9999CanBeSaid) {
  Mode mode(CloudEventMode::kBinary);
  Event event = Sample();
  constexpr std::int64_t kFirst = -62'135'596'800'000'000;
  constexpr std::int64_t kLast = 253'402'300'799'999'999;
  const auto at = [](std::int64_t micros) {
    return base::WallTime(std::chrono::microseconds(micros));
  };
  event.occurred_at = at(kFirst);
  EXPECT_EQ(mode.Of(event).HeaderOf("ce_time"), "0001-01-01T00:00:00.000000Z");
  event.occurred_at = at(kLast);
  EXPECT_EQ(mode.Of(event).HeaderOf("ce_time"), "9999-12-31T23:59:59.999999Z");
  for (const std::int64_t micros : {kFirst - 1, kLast + 1, INT64_MIN, INT64_MAX}) {
    event.occurred_at = at(micros);
    EXPECT_EQ(outbox::UnfitReason(mode.Try(event).status()), "cloudevent_invalid") << micros;
    event.occurred_at = std::nullopt;
    EXPECT_EQ(outbox::UnfitReason(mode.Try(event, at(micros)).status()), "cloudevent_invalid");
  }
}

TEST(CloudEventTest, PayloadBeyondTheLimitIsUndeliverable) {
  Event event = Sample();
  event.payload = std::string_view("never read", std::size_t{1} << 31);
  for (const CloudEventMode mode : {CloudEventMode::kBinary, CloudEventMode::kStructuredProtobuf,
                                    CloudEventMode::kStructuredJson}) {
    EXPECT_EQ(outbox::UnfitReason(Mode(mode).Try(event).status()), "cloudevent_invalid");
  }
}

// --- Random events ---

class RandomEvent {
 public:
  explicit RandomEvent(std::mt19937_64* random) : random_(random) {
    event.id = Keep("i" + Text());
    event.type = Keep("t" + Text());
    event.key = Below(3) == 0 ? std::nullopt : std::optional(Keep(Text()));
    event.schema = "outbox";
    event.table = Below(2) == 0 ? "events" : "others";
    event.traceparent = Keep(Text());
    event.tracestate = Keep(Text());
    constexpr const char* kSchemas[] = {"", "a.b.C", "urn:x:y", "no uri"};
    event.schema_name = kSchemas[Below(4)];
    constexpr const char* kTypes[] = {
        "",         "application/json",     "application/x+JSON ; a=b",
        "text/csv", "application/protobuf", "image/png",
        "\"odd\\\n"};
    event.content_type = kTypes[Below(7)];
    event.payload_form = static_cast<PayloadForm>(Below(3));
    if (Below(5) != 0) {
      event.payload = Keep(Payload());
    }
    if (Below(2) == 0) {
      event.occurred_at = Time();
    }
    commit_time = Time();
  }

  Event event;
  base::WallTime commit_time;

 private:
  std::size_t Below(std::size_t limit) { return (*random_)() % limit; }

  std::string_view Keep(std::string text) {
    kept_.push_back(std::make_unique<std::string>(std::move(text)));
    return *kept_.back();
  }

  std::string Text() {
    constexpr const char* kParts[] = {"a", "Z9", "ü", "漢", "😀", "\x7f", "\"", "\\", "\n", "\x01"};
    std::string text;
    for (std::size_t left = Below(4) == 0 ? Below(200) : Below(4); left > 0; --left) {
      text += kParts[Below(std::size(kParts))];
    }
    return text;
  }

  // JSON where the event may claim that it is.
  std::string Payload() {
    const bool json = event.content_type.find("json") != std::string_view::npos ||
                      event.content_type.find("JSON") != std::string_view::npos ||
                      (event.content_type.empty() && event.payload_form == PayloadForm::kJson);
    if (json) {
      return Json{{"text", Text()}, {"list", {1, nullptr, 2.5}}}.dump(Below(2) == 0 ? -1 : 1);
    }
    if (Below(2) == 0) {
      return Text();
    }
    std::string bytes(Below(300), '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(Below(256));
    }
    return bytes;
  }

  base::WallTime Time() {
    return base::WallTime(std::chrono::microseconds(
        static_cast<std::int64_t>(Below(315'537'897'599'999'999)) - 62'135'596'800'000'000));
  }

  std::mt19937_64* const random_;
  std::vector<std::unique_ptr<std::string>> kept_;
};

Attributes AttributesOf(const Written& binary) {
  Attributes attributes;
  for (const auto& [name, text] : binary.headers) {
    const bool is_type = name == "content-type";
    EXPECT_TRUE(is_type || name.substr(0, 3) == "ce_") << name;
    EXPECT_TRUE(attributes.emplace(is_type ? "datacontenttype" : name.substr(3), text).second);
  }
  return attributes;
}

// As the rules of docs/formats.md have it, said once more.
Attributes Expected(const Event& event, base::WallTime commit_time) {
  Attributes expected = {{"specversion", "1.0"},
                         {"id", std::string(event.id)},
                         {"source", "/shop/outbox/" + std::string(event.table)},
                         {"type", std::string(event.type)},
                         {"recordedtime", TimeText(commit_time)},
                         {"sequence", kSequence}};
  const auto give = [&expected](const char* name, std::string_view text) {
    if (!text.empty()) {
      expected[name] = std::string(text);
    }
  };
  give("datacontenttype", event.content_type);
  if (event.content_type.empty() && event.payload) {
    give("datacontenttype", event.payload_form == PayloadForm::kJson   ? "application/json"
                            : event.payload_form == PayloadForm::kText ? "text/plain; charset=UTF-8"
                                                                       : "");
  }
  give("dataschema", event.schema_name == "urn:x:y" ? event.schema_name : "");
  give("subject", event.key.value_or(""));
  give("partitionkey", event.key.value_or(""));
  give("time", event.occurred_at ? TimeText(*event.occurred_at) : "");
  give("traceparent", event.traceparent);
  give("tracestate", event.traceparent.empty() ? "" : event.tracestate);
  return expected;
}

Message MessageOf(const Attributes& attributes) {
  Message message;
  for (const auto& [name, text] : attributes) {
    if (name == "id") {
      message.set_id(text);
    } else if (name == "source") {
      message.set_source(text);
    } else if (name == "specversion") {
      message.set_spec_version(text);
    } else if (name == "type") {
      message.set_type(text);
    } else if (name == "dataschema") {
      (*message.mutable_attributes())[name].set_ce_uri(text);
    } else if (name == "time" || name == "recordedtime") {
      absl::Time time;
      std::string error;
      EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, &error)) << error;
      auto* timestamp = (*message.mutable_attributes())[name].mutable_ce_timestamp();
      const std::int64_t micros = absl::ToUnixMicros(time);
      const std::int64_t rest = ((micros % 1'000'000) + 1'000'000) % 1'000'000;
      timestamp->set_seconds((micros - rest) / 1'000'000);
      timestamp->set_nanos(static_cast<std::int32_t>(rest * 1'000));
    } else {
      (*message.mutable_attributes())[name].set_ce_string(text);
    }
  }
  return message;
}

void TakeData(const Json& json, std::string* data, Json* parsed) {
  if (json.contains("data_base64")) {
    EXPECT_FALSE(json.contains("data"));
    EXPECT_TRUE(absl::Base64Unescape(json.at("data_base64").get<std::string>(), data));
  } else if (json.contains("data")) {
    *parsed = json.at("data");
  }
}

TEST(CloudEventTest, AllModesSayTheSameOfRandomEvents) {
  std::mt19937_64 random(testing::RandomSeed());
  Mode binary(CloudEventMode::kBinary);
  Mode protobuf(CloudEventMode::kStructuredProtobuf);
  Mode json(CloudEventMode::kStructuredJson);
  for (int round = 0; round < 3'000; ++round) {
    SCOPED_TRACE(round);
    const RandomEvent one(&random);
    const Event& event = one.event;
    const Attributes expected = Expected(event, one.commit_time);
    const Written plain = binary.Of(event, one.commit_time);
    ASSERT_EQ(AttributesOf(plain), expected);
    ASSERT_EQ(plain.value, event.payload);

    const Written message_bytes = protobuf.Of(event, one.commit_time);
    Message message = Parsed(message_bytes);
    ASSERT_EQ(*message_bytes.value, Serialized(message)) << "not as the generated class writes it";
    const std::string data = message.has_proto_data()  ? message.proto_data().value()
                             : message.has_text_data() ? message.text_data()
                                                       : message.binary_data();
    ASSERT_EQ(data, event.payload.value_or(""));
    ASSERT_EQ(message.data_case() == Message::DATA_NOT_SET, !event.payload);
    message.clear_data();
    ASSERT_EQ(Serialized(message), Serialized(MessageOf(expected)));

    const Json parsed = ParsedJson(json.Of(event, one.commit_time));
    std::string bytes;
    Json inner;
    TakeData(parsed, &bytes, &inner);
    Attributes said;
    for (const auto& [name, value] : parsed.items()) {
      if (name != "data" && name != "data_base64") {
        said[name] = value.get<std::string>();
      }
    }
    ASSERT_EQ(said, expected);
    if (inner.is_object()) {
      ASSERT_EQ(inner, Json::parse(*event.payload));
    } else {
      ASSERT_EQ(inner.is_string() ? inner.get<std::string>() : bytes, event.payload.value_or(""));
    }
  }
}

}  // namespace
}  // namespace walpost::envelope
