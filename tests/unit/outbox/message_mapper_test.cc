#include "outbox/message_mapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "outbox/event.h"
#include "walpost/v1/outbox_message.pb.h"

namespace walpost::outbox {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using std::string_literals::operator""s;

v1::OutboxMessage Message() {
  v1::OutboxMessage message;
  message.set_id("e1");
  message.set_type("OrderPlaced");
  message.set_aggregate_type("order");
  return message;
}

class MessageMapperTest : public ::testing::Test {
 protected:
  absl::Status Map(const std::string& content, const std::string& topic = "{aggregate_type}") {
    content_ = content;  // events point into it
    mapper_.emplace(topic);
    return mapper_->Map("shop", content_, &event_);
  }

  absl::Status Map(const v1::OutboxMessage& message,
                   const std::string& topic = "{aggregate_type}") {
    return Map(message.SerializeAsString(), topic);
  }

  std::string Rejected(const std::string& content) {
    const absl::Status status = Map(content);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  std::string Rejected(const v1::OutboxMessage& message) {
    return Rejected(message.SerializeAsString());
  }

  std::vector<std::pair<std::string, std::string>> Headers() const {
    std::vector<std::pair<std::string, std::string>> headers;
    for (const Header& header : event_.headers) {
      headers.emplace_back(header.name, header.value);
    }
    return headers;
  }

  std::string content_;
  std::optional<MessageMapper> mapper_;
  Event event_;
};

TEST_F(MessageMapperTest, EveryFieldReachesTheEvent) {
  v1::OutboxMessage message = Message();
  message.set_aggregate_id("42");
  message.set_payload(std::string("\0\xff", 2));
  message.set_content_type("application/protobuf");
  message.set_schema_name("shop.OrderPlaced");
  (*message.mutable_headers())["tenant"] = "é";
  (*message.mutable_headers())["empty"] = "";
  message.mutable_occurred_at()->set_seconds(-1);
  message.mutable_occurred_at()->set_nanos(123'456'789);
  message.set_traceparent("00-1");
  message.set_tracestate("a=b");
  message.set_topic("orders");
  message.set_partition(3);
  ASSERT_TRUE(Map(message).ok()) << Map(message);
  EXPECT_EQ(event_.id, "e1");
  EXPECT_EQ(event_.type, "OrderPlaced");
  EXPECT_EQ(event_.aggregate_type, "order");
  EXPECT_EQ(event_.key, "42");
  EXPECT_EQ(event_.payload, std::string_view("\0\xff", 2));
  EXPECT_EQ(event_.content_type, "application/protobuf");
  EXPECT_EQ(event_.schema_name, "shop.OrderPlaced");
  EXPECT_THAT(Headers(), UnorderedElementsAre(Pair("tenant", "é"), Pair("empty", "")));
  EXPECT_EQ(event_.occurred_at, base::WallTime(std::chrono::microseconds(-1'000'000 + 123'456)));
  EXPECT_EQ(event_.traceparent, "00-1");
  EXPECT_EQ(event_.tracestate, "a=b");
  EXPECT_EQ(event_.topic, "orders");
  EXPECT_EQ(event_.partition, 3);
  EXPECT_EQ(event_.schema, "");
  EXPECT_EQ(event_.table, "shop");
}

TEST_F(MessageMapperTest, WhatIsNotGivenIsAbsent) {
  ASSERT_TRUE(Map(Message()).ok());
  EXPECT_EQ(event_.key, std::nullopt);
  EXPECT_EQ(event_.payload, std::nullopt);
  EXPECT_EQ(event_.occurred_at, std::nullopt);
  EXPECT_EQ(event_.partition, -1);
  EXPECT_EQ(event_.topic, "order");
  EXPECT_THAT(event_.headers, IsEmpty());
}

TEST_F(MessageMapperTest, EmptyKeyAndPayloadAreNotAbsent) {
  v1::OutboxMessage message = Message();
  message.set_aggregate_id("");
  message.set_payload("");
  ASSERT_TRUE(Map(message).ok());
  EXPECT_EQ(event_.key, "");
  EXPECT_EQ(event_.payload, "");
}

TEST_F(MessageMapperTest, NextMessageStartsFromNothing) {
  v1::OutboxMessage message = Message();
  (*message.mutable_headers())["a"] = "b";
  message.set_topic("elsewhere");
  MessageMapper mapper("{aggregate_type}");
  ASSERT_TRUE(mapper.Map("shop", message.SerializeAsString(), &event_).ok());
  content_ = Message().SerializeAsString();
  ASSERT_TRUE(mapper.Map("shop", content_, &event_).ok());
  EXPECT_THAT(event_.headers, IsEmpty());
  EXPECT_EQ(event_.topic, "order");
}

TEST_F(MessageMapperTest, RequiredFieldsAreNamedWhenMissing) {
  v1::OutboxMessage message = Message();
  message.clear_id();
  EXPECT_THAT(Rejected(message), AllOf(HasSubstr("prefix 'shop'"), HasSubstr("it has no id")));
  message = Message();
  message.clear_type();
  EXPECT_THAT(Rejected(message), AllOf(HasSubstr("event 'e1'"), HasSubstr("it has no type")));
  message = Message();
  message.clear_aggregate_type();
  EXPECT_THAT(Rejected(message), HasSubstr("it has no aggregate_type"));
  message.set_topic("orders");
  EXPECT_THAT(Rejected(message), HasSubstr("it has no aggregate_type"));
}

TEST_F(MessageMapperTest, IdThatIsTooLongIsRejected) {
  v1::OutboxMessage message = Message();
  message.set_id(std::string(kIdBytesMax, 'i'));
  EXPECT_TRUE(Map(message).ok());
  message.set_id(std::string(kIdBytesMax + 1, 'i'));
  EXPECT_THAT(Rejected(message), HasSubstr("its id has 1025 bytes, more than the 1024"));
}

TEST_F(MessageMapperTest, TopicTemplateMayNameFieldsAndThePrefix) {
  v1::OutboxMessage message = Message();
  message.set_aggregate_id("42");
  message.set_schema_name("v1");
  ASSERT_TRUE(Map(message, "{prefix}.{aggregate_type}-{type}_{key}{schema_name}.{id}").ok());
  EXPECT_EQ(event_.topic, "shop.order-OrderPlaced_42v1.e1");
  EXPECT_THAT(std::string(Map(Message(), "t-{key}").message()),
              HasSubstr("it has no key, which its topic needs"));
}

TEST_F(MessageMapperTest, TopicTemplateOfAColumnIsRejected) {
  EXPECT_THAT(std::string(ParseMessageTopic("{event_type}").status().message()),
              HasSubstr("a message has no {event_type}"));
  EXPECT_FALSE(ParseMessageTopic("{").ok());
}

TEST_F(MessageMapperTest, TopicThatKafkaDoesNotAllowIsRejectedEachTime) {
  v1::OutboxMessage message = Message();
  message.set_topic("no such/topic");
  content_ = message.SerializeAsString();
  MessageMapper mapper("{aggregate_type}");
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = mapper.Map("shop", content_, &event_);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'no such/topic'"));
  }
}

TEST_F(MessageMapperTest, BytesThatAreNoMessageAreRejectedWithoutShowingThem) {
  for (const std::string& content :
       {std::string("{\"id\": \"secret\"}"), std::string("\x0a\x05secret", 3),
        std::string("\xff\xff\xff\xff\xff\xff"), std::string("\x0b", 1), std::string("\0", 1),
        Message().SerializeAsString() + std::string("\0\x01", 2),       // field 0
        Message().SerializeAsString() + "\x80\x80\x80\x80\x10\x01"}) {  // a tag beyond 32 bits

    EXPECT_THAT(Rejected(content), AllOf(HasSubstr("is no walpost.v1.OutboxMessage"),
                                         HasSubstr("prefix 'shop'"), Not(HasSubstr("secret"))));
    EXPECT_EQ(event_.key, std::nullopt);
    EXPECT_EQ(event_.topic, "");
  }
}

TEST_F(MessageMapperTest, EveryCutOfAMessageIsRejectedOrAnEvent) {
  v1::OutboxMessage message = Message();
  message.set_aggregate_id("42");
  (*message.mutable_headers())["a"] = "b";
  message.mutable_occurred_at()->set_seconds(5);
  message.set_partition(300);
  const std::string whole = message.SerializeAsString();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    v1::OutboxMessage parsed;
    EXPECT_EQ(Map(cut).ok(), parsed.ParseFromString(cut) && !parsed.id().empty() &&
                                 !parsed.type().empty() && !parsed.aggregate_type().empty())
        << size;
  }
}

TEST_F(MessageMapperTest, TextThatIsNotUtf8IsRejected) {
  for (const std::string text : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82",
                                 "\xf0\x8f\xbf\xbf", "\xe0\x9f\xbf"}) {
    // The generated class would not write it.
    const std::string field = "\x22" + std::string(1, static_cast<char>(text.size())) + text;
    EXPECT_THAT(Rejected(Message().SerializeAsString() + field), HasSubstr("field 4 is not UTF-8"));
  }
  v1::OutboxMessage message = Message();
  message.set_aggregate_id("aé€😀\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf");
  EXPECT_TRUE(Map(message).ok());
}

TEST_F(MessageMapperTest, PartitionAndTimeThatCannotBeAreRejected) {
  v1::OutboxMessage message = Message();
  message.set_partition(-1);
  EXPECT_THAT(Rejected(message), HasSubstr("its partition is negative"));
  message = Message();
  message.mutable_occurred_at()->set_seconds(253'402'300'800);
  EXPECT_THAT(Rejected(message), HasSubstr("between the years 1 and 9999"));
  message.mutable_occurred_at()->set_seconds(0);
  message.mutable_occurred_at()->set_nanos(-1);
  EXPECT_THAT(Rejected(message), HasSubstr("between the years 1 and 9999"));
}

TEST_F(MessageMapperTest, HeaderWithoutNameIsRejected) {
  v1::OutboxMessage message = Message();
  (*message.mutable_headers())[""] = "x";
  EXPECT_THAT(Rejected(message), HasSubstr("a header has an empty name"));
}

TEST_F(MessageMapperTest, MoreHeadersThanTheLimitAreRejected) {
  v1::OutboxMessage message = Message();
  message.clear_headers();
  for (std::size_t i = 0; i <= kHeadersMax; ++i) {
    (*message.mutable_headers())["n" + std::to_string(i)] = "x";
  }
  EXPECT_THAT(Rejected(message), HasSubstr("1000 headers"));
}

// As protobuf joins messages.
TEST_F(MessageMapperTest, LastOfAFieldCounts) {
  v1::OutboxMessage first = Message();
  (*first.mutable_headers())["a"] = "1";
  (*first.mutable_headers())["b"] = "2";
  v1::OutboxMessage second;
  second.set_id("e2");
  (*second.mutable_headers())["a"] = "3";
  ASSERT_TRUE(Map(first.SerializeAsString() + second.SerializeAsString()).ok());
  EXPECT_EQ(event_.id, "e2");
  EXPECT_EQ(event_.type, "OrderPlaced");
  EXPECT_THAT(Headers(), ElementsAre(Pair("b", "2"), Pair("a", "3")));
}

TEST_F(MessageMapperTest, UnknownFieldsAreIgnored) {
  v1::OutboxMessage message = Message();
  auto* const unknown = message.GetReflection()->MutableUnknownFields(&message);
  unknown->AddVarint(900, 7);
  unknown->AddFixed32(901, 7);
  unknown->AddFixed64(902, 7);
  unknown->AddLengthDelimited(903)->assign("later");
  EXPECT_TRUE(Map(message).ok());
}

TEST_F(MessageMapperTest, NumberIsRejectedThatHasMoreBytesThanItsType) {
  const std::string message = Message().SerializeAsString();
  const std::string varint = "\xA0\x06"s;  // field 100, unknown
  const std::string bytes = "\xA2\x06"s;
  EXPECT_TRUE(Map(message + varint + std::string(9, '\x80') + '\x01').ok());
  EXPECT_FALSE(Map(message + varint + std::string(10, '\x80') + '\x01').ok());
  EXPECT_TRUE(Map(message + bytes + std::string(4, '\x80') + '\0').ok());
  EXPECT_FALSE(Map(message + bytes + std::string(5, '\x80') + '\0').ok());
}

TEST_F(MessageMapperTest, LabelsAreDistinguishedFromTables) {
  EXPECT_EQ(MessageLabel("shop"), "message:shop");
  EXPECT_TRUE(IsMessageLabel("message:shop"));
  EXPECT_FALSE(IsMessageLabel("outbox.events"));
}

TEST_F(MessageMapperTest, TopicIsOneThatTheTemplateCanGiveOrThatIsListed) {
  v1::OutboxMessage message = Message();
  message.set_topic("payments");
  const std::string content = message.SerializeAsString();
  Event event;
  EXPECT_EQ(ReasonCodeOf(MessageMapper("shop.{type}").Map("shop", content, &event)),
            "topic_not_allowed");
  EXPECT_TRUE(MessageMapper("shop.{type}", {{"pay*"}, {}, {}}).Map("shop", content, &event).ok());
  EXPECT_EQ(
      ReasonCodeOf(MessageMapper("{type}", {{"orders"}, {}, {}}).Map("shop", content, &event)),
      "topic_not_allowed");
}

TEST_F(MessageMapperTest, NoMessageReachesATopicOfWalposts) {
  MessageMapper mapper("{aggregate_type}", {{"*"}, {}, {"progress"}});
  Event event;
  for (const char* topic : {"progress", "walpost.progress.shop", "__consumer_offsets"}) {
    v1::OutboxMessage named = Message();
    named.set_topic(topic);
    EXPECT_EQ(ReasonCodeOf(mapper.Map("shop", named.SerializeAsString(), &event)),
              "topic_not_allowed");
    v1::OutboxMessage routed = Message();
    routed.set_aggregate_type(topic);
    EXPECT_EQ(ReasonCodeOf(mapper.Map("shop", routed.SerializeAsString(), &event)),
              "topic_not_allowed");
  }
}

}  // namespace
}  // namespace walpost::outbox
