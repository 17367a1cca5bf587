// Random events say the same in all modes of CloudEvents.
#include <map>
#include <memory>
#include <random>

#include "absl/strings/escaping.h"
#include "cloud_event_modes.h"
#include "support/random_seed.h"

namespace walpost::envelope {
namespace {

using outbox::Event;
using outbox::PayloadForm;
using Json = nlohmann::json;
using Message = CloudEventMessage;
using Attributes = std::map<std::string, std::string>;

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
        "\"odd\\"};
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
