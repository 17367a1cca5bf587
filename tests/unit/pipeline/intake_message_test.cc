// Logical messages as events: which are, their place among the rows, and what is wrong with some.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "outbox_wire.h"
#include "pipeline/intake.h"
#include "walpost/v1/outbox_message.pb.h"

namespace walpost::pipeline {
namespace {

using base::HaltReason;
using base::Lsn;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

std::string Content(const std::string& id, const std::string& key = "a") {
  v1::OutboxMessage message;
  message.set_id(id);
  message.set_type("created");
  message.set_aggregate_type("orders");
  message.set_aggregate_id(key);
  message.set_payload("payload of " + id);
  return message.SerializeAsString();
}

std::string Emitted(const std::string& content, const std::string& prefix = "shop",
                    bool transactional = true) {
  return walpost::testing::LogicalMessageBytes(transactional, Lsn(90), prefix, content);
}

PipelineOptions Options(OnUndeliverable policy, std::vector<std::string> prefixes,
                        bool messages_halt) {
  PipelineOptions options = OptionsOf(EventsOutbox());
  options.on_undeliverable = policy;
  options.event_bytes_max = 10'000;
  options.messages.halts = messages_halt;
  options.messages.prefixes = std::move(prefixes);
  options.messages.encoder.format = envelope::ValueFormat::kRaw;
  return options;
}

// One pipeline's intake and what it fills.
struct World {
  explicit World(OnUndeliverable policy = OnUndeliverable::kHalt,
                 std::vector<std::string> prefixes = {"billing", "shop"}, bool messages_halt = true)
      : options(Options(policy, std::move(prefixes), messages_halt)) {
    Reconnect();
  }

  void Reconnect() {
    intake.Leave();
    intake.Start(EventsFacts());
    Take({walpost::testing::RelationBytes(EventsRelation())});
  }

  void Take(const std::vector<std::string>& payloads) {
    for (const std::string& payload : payloads) {
      const std::optional<Halt> halt = intake.TakePayload(payload, {});
      ASSERT_FALSE(halt) << halt->detail;
    }
  }

  // "e1@0": id and ordinal of everything in flight.
  std::vector<std::string> Places() const {
    std::vector<std::string> places;
    for (auto i = tracker.oldest_unsettled(); i < tracker.next_sequence(); ++i) {
      places.push_back(Header(i, "id") + "@" + std::to_string(tracker.entry(i).ordinal));
    }
    return places;
  }

  std::string Header(delivery::Sequence sequence, std::string_view name) const {
    for (const envelope::RecordHeader& header : tracker.entry(sequence).record.headers) {
      if (header.name == name) {
        return std::string(header.value);
      }
    }
    return "(none)";
  }

  PipelineOptions options;
  delivery::Tracker tracker;
  Counters counters;
  DeadLetters dead_letters{options, &tracker};
  Undeliverables undeliverables{options, &tracker, &counters, &dead_letters};
  Intake intake{options, &tracker, &counters, &undeliverables};
};

TEST(IntakeMessageTest, MessageBecomesARecordAsARowDoes) {
  World world;
  world.Take({Begin(100), Emitted(Content("m1", "k1")), Commit(100)});
  ASSERT_EQ(world.tracker.in_flight_events(), 1U);
  const envelope::Record& record = world.tracker.entry(0).record;
  EXPECT_EQ(record.topic, "orders");
  EXPECT_EQ(record.key, "k1");
  EXPECT_EQ(record.value, "payload of m1");
  EXPECT_EQ(world.Header(0, "type"), "created");
  EXPECT_EQ(world.Header(0, "walpost-position"),
            "0000000000c0ffee-00000003-0000000000000064-00000000");
  EXPECT_EQ(world.tracker.safe_lsn(), Lsn());
  world.tracker.Settle(0);
  EXPECT_EQ(world.tracker.safe_lsn(), Lsn(108));
}

TEST(IntakeMessageTest, RowsAndMessagesShareOneOrderAndOneCount) {
  World world;
  world.Take({Begin(100), EventBytes("r1"), Emitted(Content("m1")), EventBytes("r2"),
              Emitted("ignored", "audit"), Emitted(Content("m2"), "billing"), Commit(100)});
  EXPECT_THAT(world.Places(), ElementsAre("r1@0", "m1@1", "r2@2", "m2@3"));
  EXPECT_EQ(world.counters.events_received, 4U);
  EXPECT_EQ(world.counters.changes_ignored, 1U);
  EXPECT_THAT(world.counters.received_by_table,
              ElementsAre(std::pair<std::string, std::uint64_t>("outbox.events", 2),
                          std::pair<std::string, std::uint64_t>("message:billing", 1),
                          std::pair<std::string, std::uint64_t>("message:shop", 1)));
}

TEST(IntakeMessageTest, PrefixMustBeTheWholePrefix) {
  World world;
  world.Take({Begin(100), Emitted(Content("m1"), "sho"), Emitted(Content("m2"), "shop2"),
              Emitted(Content("m3"), "")});
  EXPECT_EQ(world.counters.changes_ignored, 3U);
  EXPECT_EQ(world.counters.events_received, 0U);
}

// G2: they are sent even when their transaction is rolled back.
TEST(IntakeMessageTest, NonTransactionalMessageIsNeverAnEvent) {
  World world;
  world.Take({Emitted(Content("m0"), "shop", false), Begin(100),
              Emitted(Content("m1"), "shop", false), EventBytes("r1"), Commit(100)});
  EXPECT_THAT(world.Places(), ElementsAre("r1@0"));
}

TEST(IntakeMessageTest, MessagesTakenBeforeAReconnectAreNotTakenAgain) {
  World world;
  world.Take({Begin(100), EventBytes("r1"), Emitted(Content("m1"))});
  world.Reconnect();
  world.Take(
      {Begin(100), EventBytes("r1"), Emitted(Content("m1")), Emitted(Content("m2")), Commit(100)});
  EXPECT_THAT(world.Places(), ElementsAre("r1@0", "m1@1", "m2@2"));
  EXPECT_EQ(world.counters.events_repeated, 2U);
}

TEST(IntakeMessageTest, MalformedMessageHaltsAndNamesPrefixAndPlace) {
  World world;
  world.Take({Begin(100), EventBytes("r1")});
  const std::optional<Halt> halt = world.intake.TakePayload(Emitted("secret"), {});
  ASSERT_TRUE(halt);
  EXPECT_EQ(halt->reason, HaltReason::kUndeliverableEvent);
  EXPECT_THAT(halt->detail,
              AllOf(HasSubstr("prefix 'shop'"), HasSubstr("at LSN 0/5A"),
                    HasSubstr("commit LSN 0/64, ordinal 1"), Not(HasSubstr("secret"))));
}

// In no table, so the dead letter is all that is left of it.
TEST(IntakeMessageTest, DeadLetterOfAMalformedMessageKeepsItsContent) {
  World world(OnUndeliverable::kDeadLetter);
  world.Take({Begin(100), Emitted("secret"), EventBytes("r1"), Commit(100)});
  EXPECT_EQ(world.tracker.entry(0).form, delivery::Tracker::Form::kDeadLetter);
  const base::DeadLetter row = world.undeliverables.RowOf(0);
  EXPECT_EQ(row.value, "secret");
  EXPECT_EQ(row.reason, "message_malformed");
  EXPECT_EQ(row.source, "message:shop");
  EXPECT_FALSE(row.truncated_bytes);
  EXPECT_THAT(row.detail, HasSubstr("commit LSN 0/64, ordinal 0"));
  EXPECT_EQ(world.counters.events_received, 2U);
  EXPECT_THAT(
      world.counters.received_by_table,
      ElementsAre(Pair("outbox.events", 1), Pair("message:billing", 0), Pair("message:shop", 1)));
}

// Writers choose most of these texts.
TEST(IntakeMessageTest, DeadLetterThatWaitsCountsWithAllItsTexts) {
  World world(OnUndeliverable::kDeadLetter);
  world.Take({Begin(100), EventBytes("b2", "b", "no topic/")});
  const base::DeadLetter row = world.undeliverables.RowOf(0);
  EXPECT_FALSE(row.event_id.empty() || row.event_type.empty() || row.topic.empty());
  EXPECT_EQ(world.undeliverables.retained_bytes(),
            sizeof(row) + row.position.size() + row.event_id.size() + row.event_type.size() +
                row.source.size() + row.topic.size() + row.schema.size() + row.reason.size() +
                row.detail.size());
}

TEST(IntakeMessageTest, MalformedMessageIsSkippedAndCounted) {
  World world(OnUndeliverable::kSkip);
  world.Take({Begin(100), Emitted("secret"), EventBytes("r1"), Commit(100)});
  EXPECT_THAT(world.Places(), ElementsAre("r1@1"));
  EXPECT_EQ(world.counters.events_skipped, 1U);
}

// Any SQL role may emit, and none of them may stop the others.
TEST(IntakeMessageTest, MessageThatIsNoEventStopsNobodyUnlessConfigured) {
  World world(OnUndeliverable::kHalt, {"shop"}, /*messages_halt=*/false);
  world.Take({Begin(100), Emitted("junk"), EventBytes("r1"), Commit(100)});
  EXPECT_THAT(world.Places(), ElementsAre("r1@1"));
  EXPECT_EQ(world.counters.events_skipped, 1U);
  world.Take({Begin(200)});
  ASSERT_TRUE(world.intake.TakePayload(EventBytes("r2", "b", "no such/topic"), {}))
      << "a row still does";
}

TEST(IntakeMessageTest, MessageParksNoKeyUnlessMessagesMayHalt) {
  v1::OutboxMessage message;
  ASSERT_TRUE(message.ParseFromString(Content("m1", "b")));
  message.set_payload(std::string(10'000, 'x'));
  for (const bool may_halt : {false, true}) {
    World world(OnUndeliverable::kPark, {"shop"}, may_halt);
    world.Take({Begin(100), Emitted(message.SerializeAsString()), Commit(100)});
    EXPECT_EQ(world.tracker.entry(0).form,
              may_halt ? delivery::Tracker::Form::kParked : delivery::Tracker::Form::kDeadLetter);
  }
}

TEST(IntakeMessageTest, OfALongIdADeadLetterKeepsTheBegin) {
  World world(OnUndeliverable::kDeadLetter);
  world.Take({Begin(100), Emitted(Content(std::string(20'000, 'i'))), Commit(100)});
  EXPECT_EQ(world.undeliverables.RowOf(0).reason, "event_too_large");
  EXPECT_EQ(world.undeliverables.RowOf(0).event_id.size(), base::DeadLetter::kTextBytesMax + 4);
}

TEST(IntakeMessageTest, MessagesLeaveThreeQuartersOfTheDeadLettersToRows) {
  World world(OnUndeliverable::kDeadLetter, {"shop"}, /*messages_halt=*/false);
  world.Take({Begin(100)});
  for (std::size_t i = 0; i < world.options.dead_letters_max; ++i) {
    world.Take({Emitted("junk")});
  }
  EXPECT_EQ(world.counters.events_skipped, world.options.dead_letters_max / 4 * 3);
  world.Take({EventBytes("r1", "b", "no such/topic"), Commit(100)});
  EXPECT_EQ(world.tracker.entry(world.tracker.next_sequence() - 1).form,
            delivery::Tracker::Form::kDeadLetter);
}

TEST(IntakeMessageTest, MessageBeyondTheLimitIsUndeliverableWithoutItsContent) {
  World world(OnUndeliverable::kDeadLetter);
  v1::OutboxMessage message;
  ASSERT_TRUE(message.ParseFromString(Content("m1")));
  message.set_payload(std::string(10'000, 'x'));
  world.Take({Begin(100), Emitted(message.SerializeAsString()), Emitted(Content("m2")),
              Emitted(std::string(10'000, 'x')), Commit(100)});
  EXPECT_EQ(world.undeliverables.RowOf(0).reason, "event_too_large");
  EXPECT_EQ(world.undeliverables.RowOf(0).event_id, "m1");
  EXPECT_EQ(world.tracker.entry(0).record.value, std::nullopt);
  EXPECT_EQ(world.undeliverables.RowOf(2).reason, "event_too_large");
  EXPECT_THAT(world.Places(), Contains("m2@1"));
}

TEST(IntakeMessageTest, MessageNotSeenBeforeWhatIsCompleteIsOfAnotherHistory) {
  World world;
  const std::vector<std::string> first = {Begin(20), Emitted(Content("m0")), Commit(20)};
  world.Take(first);
  world.intake.TakePosition(Lsn(100));
  world.Reconnect();
  world.Take(first);
  world.Take({Begin(50)});
  const std::optional<Halt> halt = world.intake.TakePayload(Emitted(Content("m1")), {});
  ASSERT_TRUE(halt);
  EXPECT_EQ(halt->reason, HaltReason::kTimelineChanged);
}

}  // namespace
}  // namespace walpost::pipeline
