// An input is the content of a logical message. The generated class says what it means: what is
// taken as an event must be exactly that, and what that class would write must not be called
// malformed.
#include <glog/logging.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "fuzz/bounds.h"
#include "fuzz/fuzz_target.h"
#include "outbox/message_mapper.h"
#include "walpost/v1/outbox_message.pb.h"

namespace walpost::fuzz {
namespace {

void CheckEvent(const outbox::Event& event, const v1::OutboxMessage& message) {
  CHECK_EQ(event.id, message.id());
  CHECK_EQ(event.type, message.type());
  CHECK_EQ(event.aggregate_type, message.aggregate_type());
  CHECK_EQ(event.key.has_value(), message.has_aggregate_id());
  CHECK_EQ(event.key.value_or(""), message.aggregate_id());
  CHECK_EQ(event.payload.has_value(), message.has_payload());
  CHECK(event.payload.value_or("") == message.payload());
  CHECK_EQ(event.content_type, message.content_type());
  CHECK_EQ(event.schema_name, message.schema_name());
  CHECK_EQ(event.traceparent, message.traceparent());
  CHECK_EQ(event.tracestate, message.tracestate());
  CHECK_EQ(event.topic, message.topic().empty() ? message.aggregate_type() : message.topic());
  CHECK_EQ(event.partition, message.has_partition() ? message.partition() : -1);
  CHECK_EQ(event.occurred_at.has_value(), message.has_occurred_at());
  if (event.occurred_at) {
    CHECK_EQ(event.occurred_at->time_since_epoch().count(),
             message.occurred_at().seconds() * 1'000'000 + message.occurred_at().nanos() / 1'000);
  }
  std::map<std::string, std::string> headers;
  for (const outbox::Header& header : event.headers) {
    CHECK(headers.emplace(header.name, header.value).second) << "a header twice";
  }
  CHECK(headers ==
        (std::map<std::string, std::string>(message.headers().begin(), message.headers().end())));
}

std::string Sample(bool everything) {
  v1::OutboxMessage message;
  message.set_id("3f2504e0-4f89-11d3-9a0c-0305e82c3301");
  message.set_type("OrderPlaced");
  message.set_aggregate_type("order");
  if (everything) {
    message.set_aggregate_id("42");
    message.set_payload("payload");
    message.set_content_type("text/plain");
    message.set_schema_name("shop.Order");
    (*message.mutable_headers())["tenant"] = "7";
    (*message.mutable_headers())["\xc3\xa9"] = "";
    message.mutable_occurred_at()->set_seconds(-5);
    message.mutable_occurred_at()->set_nanos(999'999'999);
    message.set_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    message.set_tracestate("a=b");
    message.set_topic("orders");
    message.set_partition(300);
  }
  return message.SerializeAsString();
}

}  // namespace

std::vector<std::string> MoreInputs() {
  std::string headers = Sample(true);
  for (int i = 0; i < 50'000; ++i) {
    v1::OutboxMessage header;
    (*header.mutable_headers())[std::to_string(i)] = "";
    headers += header.SerializeAsString();
  }
  return {Sample(false), Sample(true), Sample(true) + Sample(false), headers};
}

}  // namespace walpost::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using walpost::outbox::Event;
  // libprotobuf writes to stderr when text is not UTF-8.
  static const google::protobuf::LogSilencer silence;
  const std::string content(reinterpret_cast<const char*>(data), size);
  const walpost::fuzz::Bounds bounds;
  walpost::outbox::MessageMapper mapper("{aggregate_type}");
  Event event;
  const absl::Status status = mapper.Map("shop", content, &event);
  bounds.Check();
  walpost::v1::OutboxMessage message;
  const bool parsed = message.ParseFromString(content);
  if (status.ok()) {
    CHECK(parsed);
    walpost::fuzz::CheckEvent(event, message);
    return 0;
  }
  CHECK(absl::IsInvalidArgument(status)) << status;
  // What is of another type than it should be is unknown to that class.
  const google::protobuf::Message* const parts[] = {&message, &message.occurred_at()};
  const bool known = std::all_of(std::begin(parts), std::end(parts), [](const auto* part) {
    return part->GetReflection()->GetUnknownFields(*part).empty();
  });
  if (parsed && known && message.SerializeAsString() == content) {
    CHECK(status.message().find("is no walpost.v1") == absl::string_view::npos) << status;
  }
  return 0;
}
