// What is written in each mode of CloudEvents, against the generated class and a JSON parser.
#include <gmock/gmock.h>

#include "absl/strings/escaping.h"
#include "cloud_event_modes.h"
#include "outbox/event.h"

namespace walpost::envelope {
namespace {

using outbox::Event;
using outbox::PayloadForm;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using Json = nlohmann::json;
using Message = CloudEventMessage;

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

TEST(CloudEventTest, EveryMediaTypeOfJsonIsEmbeddedAsJson) {
  Mode json(CloudEventMode::kStructuredJson);
  Event event = Sample();
  for (const char* type :
       {"text/json", "application/problem+json", "application/vnd.shop.v1+JSON; v=2"}) {
    event.content_type = type;
    EXPECT_TRUE(ParsedJson(json.Of(event)).contains("data")) << type;
  }
  for (const char* type : {"+json", "json", "application/jsonx"}) {
    event.content_type = type;
    EXPECT_TRUE(ParsedJson(json.Of(event)).contains("data_base64")) << type;
  }
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
    EXPECT_EQ(outbox::ReasonCodeOf(status), "payload_invalid") << payload;
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
    EXPECT_EQ(outbox::ReasonCodeOf(status), "cloudevent_invalid");
    EXPECT_THAT(std::string(status.message()), HasSubstr("it has no id"));
    event = Sample();
    event.type = "";
    status = Mode(mode).Try(event).status();
    EXPECT_EQ(outbox::ReasonCodeOf(status), "cloudevent_invalid");
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
    EXPECT_EQ(outbox::ReasonCodeOf(status), "cloudevent_invalid") << name;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("its " + std::string(name) + " is not UTF-8"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("s3cret")));
  }
  Event event = Sample();
  event.key = "\xff";
  EXPECT_EQ(outbox::ReasonCodeOf(mode.Try(event).status()), "cloudevent_invalid");
}

// Readers would take the payload for the event, and believe every attribute in it.
TEST(CloudEventTest, ContentTypeOfCloudEventsIsUndeliverableInBinaryMode) {
  Event event = Sample();
  for (const char* type :
       {"application/cloudevents", "application/cloudevents+json", "application/cloudevents+avro",
        "Application/CloudEvents-Batch+JSON; charset=UTF-8", " \t\napplication/cloudevents;a=b",
        "\u00a0application/cloudevents+json", "\u2003application/cloudevents+json",
        "appl\u0130cation/cloudevents+json", "application\x7f/json"}) {
    event.content_type = type;
    const absl::Status status = Mode(CloudEventMode::kBinary).Try(event).status();
    EXPECT_EQ(outbox::ReasonCodeOf(status), "cloudevent_invalid") << type;
    EXPECT_THAT(std::string(status.message()), HasSubstr("a whole CloudEvent"));
    EXPECT_EQ(Mode(CloudEventMode::kStructuredProtobuf).Of(event).HeaderOf("content-type"),
              "application/cloudevents+protobuf");
  }
  for (const char* type : {"application/cloudevent", "application/json; a=application/cloudevents",
                           "x application/cloudevents"}) {
    event.content_type = type;
    EXPECT_EQ(Mode(CloudEventMode::kBinary).Of(event).HeaderOf("content-type"), type);
  }
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
    EXPECT_EQ(outbox::ReasonCodeOf(mode.Try(event).status()), "cloudevent_invalid") << micros;
    event.occurred_at = std::nullopt;
    EXPECT_EQ(outbox::ReasonCodeOf(mode.Try(event, at(micros)).status()), "cloudevent_invalid");
  }
}

TEST(CloudEventTest, PayloadBeyondTheLimitIsUndeliverable) {
  Event event = Sample();
  event.payload = std::string_view("never read", std::size_t{1} << 31);
  for (const CloudEventMode mode : {CloudEventMode::kBinary, CloudEventMode::kStructuredProtobuf,
                                    CloudEventMode::kStructuredJson}) {
    EXPECT_EQ(outbox::ReasonCodeOf(Mode(mode).Try(event).status()), "cloudevent_invalid");
  }
}

}  // namespace
}  // namespace walpost::envelope
