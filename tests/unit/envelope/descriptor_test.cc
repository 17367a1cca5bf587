// What readers in other languages were generated from: changing a line here breaks them.
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>
#include <walpost/v1/envelope.pb.h>
#include <walpost/v1/outbox_message.pb.h>

#include <string>
#include <vector>

namespace walpost::envelope {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// "number name type", with "?" after a type that has presence, "[]" after a repeated one.
std::vector<std::string> Fields(const Descriptor* message) {
  std::vector<std::string> lines;
  for (int i = 0; i < message->field_count(); ++i) {
    const FieldDescriptor* field = message->field(i);
    std::string type = field->type_name();
    if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
      type = field->is_map() ? "map" : field->message_type()->full_name();
    }
    const bool is_message = field->type() == FieldDescriptor::TYPE_MESSAGE;
    lines.push_back(std::to_string(field->number()) + " " + field->name() + " " + type +
                    (field->is_repeated() ? "[]" : "") +
                    (field->has_presence() && !is_message ? "?" : ""));
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST(DescriptorTest, EnvelopeKeepsItsFields) {
  const Descriptor* envelope = v1::Envelope::descriptor();
  EXPECT_EQ(envelope->full_name(), "walpost.v1.Envelope");
  EXPECT_EQ(
      Fields(envelope),
      Lines({"1 id string", "2 type string", "3 aggregate_type string", "4 aggregate_id string?",
             "5 payload bytes?", "6 content_type string", "7 schema_name string", "8 headers map[]",
             "9 occurred_at google.protobuf.Timestamp", "10 committed_at google.protobuf.Timestamp",
             "11 traceparent string", "12 tracestate string", "13 source walpost.v1.Source",
             "14 position walpost.v1.Position"}));
  const Descriptor* entry = envelope->FindFieldByNumber(8)->message_type();
  EXPECT_EQ(Fields(entry), Lines({"1 key string", "2 value string"}));
}

TEST(DescriptorTest, SourceKeepsItsFields) {
  EXPECT_EQ(Fields(v1::Source::descriptor()),
            Lines({"1 database string", "2 schema string", "3 table string",
                   "4 system_identifier uint64", "5 timeline uint32", "6 xid uint32"}));
}

TEST(DescriptorTest, PositionKeepsItsFields) {
  EXPECT_EQ(Fields(v1::Position::descriptor()), Lines({"1 commit_lsn uint64", "2 ordinal uint32"}));
}

TEST(DescriptorTest, OutboxMessageKeepsItsFields) {
  const Descriptor* message = v1::OutboxMessage::descriptor();
  EXPECT_EQ(message->full_name(), "walpost.v1.OutboxMessage");
  EXPECT_EQ(
      Fields(message),
      Lines({"1 id string", "2 type string", "3 aggregate_type string", "4 aggregate_id string?",
             "5 payload bytes?", "6 content_type string", "7 schema_name string", "8 headers map[]",
             "9 occurred_at google.protobuf.Timestamp", "11 traceparent string",
             "12 tracestate string", "15 topic string", "16 partition int32?"}));
  for (const int number : {10, 13, 14}) {
    EXPECT_TRUE(message->IsReservedNumber(number)) << number;
  }
}

TEST(DescriptorTest, PackagesOfGeneratedCodeStay) {
  const google::protobuf::FileDescriptor* file = v1::Envelope::descriptor()->file();
  EXPECT_EQ(file->package(), "walpost.v1");
  EXPECT_EQ(file->options().java_package(), "io.walpost.v1");
  EXPECT_TRUE(file->options().java_multiple_files());
  EXPECT_EQ(file->options().go_package(), "walpost.io/walpost/v1;walpostv1");
  EXPECT_EQ(file->message_type_count(), 3);
}

}  // namespace
}  // namespace walpost::envelope
