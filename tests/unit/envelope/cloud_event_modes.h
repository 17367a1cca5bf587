// What tests of CloudEvents share: a writer in each mode, events, and how what is written is read.
#pragma once

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>
#include <io/cloudevents/v1/cloudevents.pb.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "envelope/cloud_event_writer.h"

namespace walpost::envelope {

using CloudEventMessage = ::io::cloudevents::v1::CloudEvent;

inline constexpr Position kPosition{7, 2, base::Lsn(0x16B374D848), 3};
inline constexpr char kSequence[] = "0000000000000007-00000002-00000016b374d848-00000003";
// 2024-02-29T12:00:00.123456Z
inline constexpr base::WallTime kCommitTime{std::chrono::microseconds(1'709'208'000'123'456)};

inline std::string TimeText(base::WallTime time) {
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

  absl::StatusOr<Written> Try(const outbox::Event& event,
                              base::WallTime commit_time = kCommitTime) {
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
    std::vector<outbox::Header> headers;
    writer_.AddHeaders(&headers);
    for (const outbox::Header& header : headers) {
      written.headers.emplace_back(header.name, header.value);
    }
    return written;
  }

  Written Of(const outbox::Event& event, base::WallTime commit_time = kCommitTime) {
    const absl::StatusOr<Written> written = Try(event, commit_time);
    EXPECT_TRUE(written.ok()) << written.status();
    return written.value_or(Written());
  }

 private:
  CloudEventWriter writer_;
};

inline CloudEventMessage Parsed(const Written& written) {
  CloudEventMessage message;
  EXPECT_TRUE(message.ParseFromString(written.value.value_or("\xff")));
  return message;
}

inline nlohmann::json ParsedJson(const Written& written) {
  return nlohmann::json::parse(written.value.value_or(""));
}

// Map entries sorted by key, as the bytes of a map are otherwise in no order.
inline std::string Serialized(const CloudEventMessage& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

inline outbox::Event Sample() {
  outbox::Event event;
  event.id = "id-1";
  event.type = "OrderPlaced";
  event.key = "42";
  event.payload = "{\"a\": 1.50}";
  event.content_type = "application/json";
  event.schema = "outbox";
  event.table = "events";
  return event;
}

inline outbox::Event FullSample() {
  outbox::Event event = Sample();
  event.schema_name = "https://shop.example/schemas/order?v=1";
  event.occurred_at = base::WallTime(std::chrono::microseconds(-1));
  event.traceparent = "00-ab-cd-01";
  event.tracestate = "x=y";
  return event;
}

}  // namespace walpost::envelope
