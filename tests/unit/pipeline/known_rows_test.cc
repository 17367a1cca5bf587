// Events that come again and are dead letters already.
#include "pipeline/known_rows.h"

#include "park_fixture.h"

namespace walpost::pipeline {
namespace {

using base::Lsn;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

envelope::Position At(std::uint64_t commit_lsn, std::uint32_t ordinal) {
  return {7, 1, Lsn(commit_lsn), ordinal};
}

constexpr std::int64_t kWrittenAtMs = 2'000;

base::SourceFacts Facts() {
  base::SourceFacts facts;
  facts.system_identifier = 7;
  return facts;
}

base::DeadLetter RowAt(const envelope::Position& position, const std::string& event_id,
                       bool parked) {
  base::DeadLetter row;
  row.position = position.ToString();
  row.event_id = event_id;
  row.topic = "orders";
  row.key = "k";
  row.parked = parked;
  row.written_at_ms = kWrittenAtMs;
  return row;
}

KnownRows WithRow(const envelope::Position& position, const std::string& event_id,
                  bool parked = false, const base::SourceFacts& facts = Facts()) {
  KnownRows rows;
  rows.Start(/*same_ordinals=*/true);
  rows.Add(RowAt(position, event_id, parked), facts);
  return rows;
}

bool Settled(const KnownRows& rows, const envelope::Position& position, const std::string& id,
             const std::string& key = "other", std::int64_t commit_ms = kWrittenAtMs - 1) {
  outbox::Event event;
  event.id = id;
  event.topic = "orders";
  event.key = key;
  return rows.Settle(position, base::WallTime(std::chrono::milliseconds(commit_ms)), event);
}

TEST(KnownRowsTest, RowIsOfTheEventWithItsPositionAndId) {
  const KnownRows rows = WithRow(At(100, 2), "a");
  EXPECT_TRUE(Settled(rows, At(100, 2), "a"));
  EXPECT_FALSE(Settled(rows, At(100, 3), "a"));
  EXPECT_FALSE(Settled(rows, At(101, 2), "a"));
  EXPECT_FALSE(Settled(rows, At(100, 2), "b")) << "others may be sent under that ordinal by now";
}

TEST(KnownRowsTest, IdThatTheTableHasCutOrWrittenInAsciiIsTheSame) {
  const std::string long_id(base::DeadLetter::kTextBytesMax + 10, 'x');
  EXPECT_TRUE(Settled(WithRow(At(1, 0), long_id.substr(0, base::DeadLetter::kTextBytesMax)),
                      At(1, 0), long_id));
  EXPECT_TRUE(
      Settled(WithRow(At(1, 0), "order ?? ?"), At(1, 0), std::string("order \xc3\xa4 \0", 10)));
}

TEST(KnownRowsTest, EventOfTheKeyBeforeARowThatParksItIsSettled) {
  KnownRows rows = WithRow(At(100, 2), "a", /*parked=*/true);
  EXPECT_TRUE(Settled(rows, At(100, 1), "before", "k"));
  EXPECT_FALSE(Settled(rows, At(100, 3), "behind", "k"));
  EXPECT_FALSE(Settled(rows, At(100, 1), "before", "another key"));
  rows.Add(RowAt(At(200, 0), "b", /*parked=*/true), Facts());
  EXPECT_TRUE(Settled(rows, At(100, 3), "behind", "k")) << "it was parked a second time";
  EXPECT_FALSE(Settled(WithRow(At(100, 2), "a"), At(100, 1), "before", "k")) << "it parks nothing";
}

// Somebody has taken a table or prefix out of the configuration: an event may have a lower number than before.
TEST(KnownRowsTest, WithOtherOrdinalsOnlyEarlierTransactionsAreSettled) {
  KnownRows rows;
  rows.Start(/*same_ordinals=*/false);
  rows.Add(RowAt(At(100, 2), "a", /*parked=*/true), Facts());
  EXPECT_FALSE(Settled(rows, At(100, 1), "behind", "k"));
  EXPECT_TRUE(Settled(rows, At(99, 5), "before", "k"));
}

// After a restore the same positions name other events, and rows may have come back with a dump.
TEST(KnownRowsTest, RowOfAnotherHistorySettlesNothingBeforeIt) {
  base::SourceFacts facts = Facts();
  EXPECT_FALSE(Settled(WithRow(At(100, 2), "a", true), At(100, 1), "new", "k", kWrittenAtMs));
  facts.system_identifier = 8;
  EXPECT_FALSE(Settled(WithRow(At(100, 2), "a", true, facts), At(100, 1), "new", "k"));
  facts.system_identifier = 7;
  facts.timeline = 2;
  facts.timeline_history = {{1, Lsn(90)}};
  EXPECT_FALSE(Settled(WithRow(At(100, 2), "a", true, facts), At(95, 1), "new", "k"));
  facts.timeline_history = {{1, Lsn(110)}};
  EXPECT_TRUE(Settled(WithRow(At(100, 2), "a", true, facts), At(95, 1), "before", "k"));
}

// The position is held back by the first event; "a1" is a dead letter behind it, and "a2" is delivered.
class KnownRowsPipelineTest : public ParkTest {
 protected:
  void HoldBack(OnUndeliverable policy) {
    options_.on_undeliverable = policy;
    options_.shutdown_timeout = std::chrono::seconds(1);
    options_.unknown_topic_wait = std::chrono::minutes(10);
    Connect();
    sink_.SetPending("returns", true);
    SendPayload(Begin(100));
    SendPayload(EventBytes("c1", "c", "returns"));
    SendPayload(Commit(100));
    sink_.Reject(1, delivery::Failure{delivery::FailureKind::kRecordTooLarge, "too large"},
                 "orders");
    Transaction(200, {"a1"});
    Run();
    ASSERT_EQ(dead_letters_.rows.size(), 1U);
  }

  void AllComesAgain(OnUndeliverable policy) {
    Restart();
    options_.on_undeliverable = policy;
    Connect();
    SendPayload(Begin(100));
    SendPayload(EventBytes("c1", "c", "returns"));
    SendPayload(Commit(100));
    Transaction(200, {"a1"});
    Transaction(300, {"a2"});
    sink_.SetPending("returns", false);
    Run();
  }
};

TEST_F(KnownRowsPipelineTest, OpenRowThatParksNoKeyStaysAndItsEventIsNotSent) {
  HoldBack(OnUndeliverable::kDeadLetter);
  AllComesAgain(OnUndeliverable::kDeadLetter);
  EXPECT_THAT(Visible('a'), ElementsAre("a2"));
  EXPECT_THAT(Rows(), ElementsAre("dead:a1"));
  EXPECT_EQ(Confirmed(), Lsn(308));
  EXPECT_EQ(pipeline().counters().events_repeated, 1U);
  ExpectAccounted();
}

TEST_F(KnownRowsPipelineTest, DiscardedEventIsNotSent) {
  HoldBack(OnUndeliverable::kPark);
  DiscardA();
  Look();
  Run();
  AllComesAgain(OnUndeliverable::kPark);
  EXPECT_THAT(Visible('a'), ElementsAre("a2"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
  EXPECT_EQ(Confirmed(), Lsn(308));
}

TEST_F(KnownRowsPipelineTest, EventThatWasSentFromItsRowIsNotSentOnceMore) {
  HoldBack(OnUndeliverable::kPark);
  RetryA();
  Look();
  Run();
  ASSERT_THAT(Visible('a'), ElementsAre("a1"));
  AllComesAgain(OnUndeliverable::kPark);
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
}

TEST_F(KnownRowsPipelineTest, DeadLetterThatIsStillUndeliverableHaltsNobody) {
  HoldBack(OnUndeliverable::kDeadLetter);
  Restart();
  options_.on_undeliverable = OnUndeliverable::kHalt;
  Connect();
  sink_.RejectTopic("orders", {delivery::FailureKind::kRecordTooLarge, "too large"});
  SendPayload(Begin(100));
  SendPayload(EventBytes("c1", "c", "returns"));
  SendPayload(Commit(100));
  Transaction(200, {"a1"});
  sink_.SetPending("returns", false);
  Run();
  EXPECT_FALSE(pipeline().halt());
  EXPECT_EQ(Confirmed(), Lsn(208));
}

TEST_F(KnownRowsPipelineTest, RowThatMakesNoRecordIsNotADeadLetterTwice) {
  options_.on_undeliverable = OnUndeliverable::kDeadLetter;
  options_.shutdown_timeout = std::chrono::seconds(1);
  Connect();
  sink_.SetPending("returns", true);
  const auto come = [this] {
    SendPayload(Begin(100));
    SendPayload(EventBytes("c1", "c", "returns"));
    SendPayload(EventBytes("a1", "a", "no such/topic"));
    SendPayload(Commit(100));
  };
  come();
  Run();
  ASSERT_THAT(Rows(), ElementsAre("dead:a1"));
  Restart();
  options_.on_undeliverable = OnUndeliverable::kHalt;
  Connect();
  come();
  sink_.SetPending("returns", false);
  Run();
  EXPECT_FALSE(pipeline().halt());
  EXPECT_THAT(Rows(), ElementsAre("dead:a1"));
  EXPECT_EQ(Confirmed(), Lsn(108));
}

TEST_F(KnownRowsPipelineTest, NothingIsReadBeforeTheRowsAreKnown) {
  serve_dead_letters_ = false;
  facts_.may_have_dead_letters = true;
  facts_.start_lsn = Lsn(90);
  facts_.confirmed_flush_lsn = Lsn(100);
  pipeline().TakeConnect(now_);
  pipeline().OnConnected(facts_, now_);
  const auto keys = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(keys);
  pipeline().OnDeadLetterReply({.id = keys->id, .status = {}, .at_end = true}, now_);
  const auto rows = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->kind, DeadLetterRequest::Kind::kLoadRows);
  EXPECT_EQ(rows->from, Lsn(100)) << "the server sends nothing before it";
  base::DeadLetter row;
  row.seq = 9;
  pipeline().OnDeadLetterReply({.id = rows->id, .status = {}, .rows = {row}}, now_);
  EXPECT_FALSE(pipeline().want_frame());
  const auto rest = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->seq, 9);
  pipeline().OnDeadLetterReply({.id = rest->id, .status = {}, .at_end = true}, now_);
  EXPECT_TRUE(pipeline().want_frame());
}

}  // namespace
}  // namespace walpost::pipeline
