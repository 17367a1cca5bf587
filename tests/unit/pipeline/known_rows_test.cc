// Events that come again and are dead letters already.
#include "pipeline/known_rows.h"

#include "park_fixture.h"

namespace walpost::pipeline {
namespace {

using base::Lsn;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

envelope::Position At(std::uint64_t commit_lsn, std::uint32_t ordinal) {
  return {7, 1, Lsn(commit_lsn), ordinal};
}

KnownRows WithRow(const envelope::Position& position, const std::string& event_id) {
  KnownRows rows;
  base::DeadLetter row;
  row.position = position.ToString();
  row.event_id = event_id;
  rows.Add(row);
  return rows;
}

TEST(KnownRowsTest, RowIsOfTheEventWithItsPositionAndId) {
  const KnownRows rows = WithRow(At(100, 2), "a");
  EXPECT_TRUE(rows.Has(At(100, 2), "a"));
  EXPECT_FALSE(rows.Has(At(100, 3), "a"));
  EXPECT_FALSE(rows.Has(At(101, 2), "a"));
  EXPECT_FALSE(rows.Has(At(100, 2), "b")) << "others may be sent under that ordinal by now";
}

TEST(KnownRowsTest, IdThatTheTableHasCutOrWrittenInAsciiIsTheSame) {
  const std::string long_id(base::DeadLetter::kTextBytesMax + 10, 'x');
  EXPECT_TRUE(
      WithRow(At(1, 0), long_id.substr(0, base::DeadLetter::kTextBytesMax)).Has(At(1, 0), long_id));
  EXPECT_TRUE(WithRow(At(1, 0), "order ?? ?").Has(At(1, 0), std::string("order \xc3\xa4 \0", 10)));
}

// The position is held back by the first event; behind it "a0" is delivered, "a1" is a dead letter,
// and "a2" comes later.
class KnownRowsPipelineTest : public ParkTest {
 protected:
  void HoldBack(OnUndeliverable policy) {
    options_.on_undeliverable = policy;
    options_.shutdown_timeout = std::chrono::seconds(1);
    options_.unknown_topic_wait = std::chrono::minutes(10);
    Connect();
    sink_.SetPending("returns", true);
    HeldEvent();
    Transaction(150, {"a0"});
    RejectA1();
    Transaction(200, {"a1"});
    Run();
    ASSERT_EQ(dead_letters_.rows.size(), 1U);
  }

  // Its topic is not known yet.
  void HeldEvent() {
    SendPayload(Begin(100));
    SendPayload(EventBytes("c1", "c", "returns"));
    SendPayload(Commit(100));
  }

  void RejectA1() {
    sink_.Reject(2, delivery::Failure{delivery::FailureKind::kRecordTooLarge, "too large"},
                 "orders");
  }

  void AllComesAgain(OnUndeliverable policy) {
    Restart();
    options_.on_undeliverable = policy;
    Connect();
    HeldEvent();
    Transaction(150, {"a0"});
    Transaction(200, {"a1"});
    Transaction(300, {"a2"});
    sink_.SetPending("returns", false);
    Run();
  }
};

TEST_F(KnownRowsPipelineTest, OpenRowThatParksNoKeyStaysAndItsEventIsNotSent) {
  HoldBack(OnUndeliverable::kDeadLetter);
  AllComesAgain(OnUndeliverable::kDeadLetter);
  EXPECT_THAT(Visible('a'), ElementsAre("a0", "a0", "a2"));
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
  EXPECT_THAT(Visible('a'), ElementsAre("a0", "a0", "a2"));
  EXPECT_EQ(pipeline().parked_keys(), 0U);
  EXPECT_EQ(Confirmed(), Lsn(308));
}

TEST_F(KnownRowsPipelineTest, EventFromBeforeItsKeyWasParkedGoesByItselfAndNotBehindTheRows) {
  HoldBack(OnUndeliverable::kPark);
  AllComesAgain(OnUndeliverable::kPark);
  EXPECT_THAT(Visible('a'), ElementsAre("a0", "a0"));
  EXPECT_THAT(Rows(), ElementsAre("parked:a1", "parked:a2"));
  RetryA();
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a0", "a0", "a1", "a2"));
}

// What was delivered before it comes again, too, and must not be the last of the key.
TEST_F(KnownRowsPipelineTest, EventThatWasSentFromItsRowIsSentAgainInItsOrder) {
  HoldBack(OnUndeliverable::kPark);
  RetryA();
  Look();
  Run();
  ASSERT_THAT(Visible('a'), ElementsAre("a0", "a1"));
  AllComesAgain(OnUndeliverable::kPark);
  EXPECT_THAT(Visible('a'), ElementsAre("a0", "a1", "a0", "a1", "a2"));
}

TEST_F(KnownRowsPipelineTest, EventThatWasSentFromItsRowIsSentAsTheRowHasIt) {
  HoldBack(OnUndeliverable::kPark);
  RetryA();
  Look();
  Run();
  Restart();
  options_.on_undeliverable = OnUndeliverable::kHalt;
  Connect();
  HeldEvent();
  Transaction(150, {"a0"});
  SendPayload(Begin(200));
  SendPayload(EventBytes({testing::TextColumn("a1"), testing::TextColumn("a"),
                          testing::TextColumn("orders"), testing::NullColumn(),
                          testing::BinaryColumn("becomes no record")}));
  SendPayload(Commit(200));
  Transaction(300, {"a2"});
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a0", "a1", "a0", "a1", "a2"));
  EXPECT_EQ(MarkOf('a', 3), "dlq-retry");
}

// Then its row is of no use, and the event goes as the stream has it.
TEST_F(KnownRowsPipelineTest, EventWhoseSentRowMakesNoRecordIsSentAsTheStreamHasIt) {
  HoldBack(OnUndeliverable::kPark);
  RetryA();
  Look();
  Run();
  dead_letters_.rows[0].truncated_bytes = 7;
  AllComesAgain(OnUndeliverable::kPark);
  EXPECT_THAT(Visible('a'), ElementsAre("a0", "a1", "a0", "a1", "a2"));
  EXPECT_EQ(MarkOf('a', 3), "");
}

TEST_F(KnownRowsPipelineTest, EventWhoseSentRowMayNotGoToItsTopicIsSentAsTheStreamHasIt) {
  HoldBack(OnUndeliverable::kPark);
  RetryA();
  Look();
  Run();
  dead_letters_.rows[0].topic = "elsewhere";
  options_.outboxes[0].table.topics.allowed = {"orders", "returns"};
  AllComesAgain(OnUndeliverable::kPark);
  EXPECT_THAT(Visible('a'), ElementsAre("a0", "a1", "a0", "a1", "a2"));
  EXPECT_EQ(MarkOf('a', 3), "");
}

TEST_F(KnownRowsPipelineTest, RowsAreSentBehindWhatComesAgainBeforeThem) {
  HoldBack(OnUndeliverable::kPark);
  Restart();
  Connect();
  HeldEvent();
  RetryA();
  Look();
  Run();
  Transaction(150, {"a0"});
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a0", "a0")) << "a1 has not come again yet";
  Transaction(200, {"a1"});
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a0", "a0", "a1"));
}

TEST_F(KnownRowsPipelineTest, RowsAreSentOnceThePositionOfTheServerIsBehindThem) {
  HoldBack(OnUndeliverable::kPark);
  Restart();
  Connect();
  HeldEvent();
  RetryA();
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a0"));
  Keepalive(208);
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a0", "a1")) << "its event does not come again";
}

// Each look stops reading while half of the table is full.
TEST_F(KnownRowsPipelineTest, RetryThatWaitsForTheStreamIsLookedForOnceItsRowHasPassed) {
  options_.dead_letters_max = 8;
  HoldBack(OnUndeliverable::kPark);
  Transaction(300, {"a2", "a3", "a4", "a5"});
  Run();
  ASSERT_EQ(dead_letters_.rows.size(), 5U);
  Restart();
  dead_letters_.Decide(4, Decision::kRetry, /*of_key=*/false);
  Connect();
  HeldEvent();
  Look();
  const std::uint64_t before = dead_letters_.looks;
  Transaction(200, {"a1"});
  SendPayload(Begin(300));
  for (const char* const id : {"a2", "a3", "a4"}) {
    SendPayload(EventBytes(id, "a"));
    Tick();
  }
  EXPECT_EQ(dead_letters_.looks, before);
  SendPayload(EventBytes("a5", "a"));
  Tick();
  EXPECT_GT(dead_letters_.looks, before) << "before the end of the transaction";
}

TEST_F(KnownRowsPipelineTest, RetryWhoseRowPassesDuringALookIsLookedForAtOnce) {
  HoldBack(OnUndeliverable::kPark);
  options_.dead_letters_max = 1;
  Restart();
  RetryA();
  Connect();
  HeldEvent();
  serve_dead_letters_ = false;
  Advance(DeadLetters::kLookEvery);
  const auto look = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(look);
  ASSERT_EQ(look->kind, DeadLetterRequest::Kind::kDecision);
  SendPayload(Begin(200));
  SendPayload(EventBytes("a1", "a"));
  pipeline().OnDeadLetterReply(dead_letters_.CarryOut(*look), now_);
  EXPECT_FALSE(pipeline().want_frame()) << "it makes room";
  const auto again = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->kind, DeadLetterRequest::Kind::kDecision);
}

// The id is too long for a record. It waits behind "c1" for the topic of both.
TEST_F(KnownRowsPipelineTest, RowsThatFillTheTableAndCannotBeWrittenAreReported) {
  options_.dead_letters_max = 2;
  HoldBack(OnUndeliverable::kPark);
  SendPayload(Begin(300));
  SendPayload(EventBytes(std::string(2 * base::DeadLetter::kTextBytesMax, 'd'), "d", "returns"));
  Look();
  EXPECT_THAT(Rows(), ElementsAre("parked:a1"));
  EXPECT_FALSE(pipeline().want_frame());
  EXPECT_THAT(pipeline().last_error(), HasSubstr("dead_letters_max"));
}

TEST_F(KnownRowsPipelineTest, RowWithoutAKeyWaitsForNothingAndItsEventIsNotSentBesides) {
  HoldBack(OnUndeliverable::kDeadLetter);
  Restart();
  options_.on_undeliverable = OnUndeliverable::kHalt;
  Connect();
  HeldEvent();
  dead_letters_.Decide(0, Decision::kRetry, /*of_key=*/false);
  Look();
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a0", "a1"));
  Transaction(150, {"a0"});
  Transaction(200, {"a1"});
  Run();
  EXPECT_THAT(Visible('a'), ElementsAre("a0", "a1", "a0"));
  EXPECT_FALSE(pipeline().halt());
}

TEST_F(KnownRowsPipelineTest, DeadLetterThatIsStillUndeliverableHaltsNobody) {
  HoldBack(OnUndeliverable::kDeadLetter);
  Restart();
  options_.on_undeliverable = OnUndeliverable::kHalt;
  Connect();
  sink_.RejectTopic("orders", {delivery::FailureKind::kRecordTooLarge, "too large"});
  HeldEvent();
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
  EXPECT_FALSE(pipeline().want_frame());
  const auto again = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->kind, DeadLetterRequest::Kind::kLoad) << "a row that is known parks its key";
  pipeline().OnDeadLetterReply({.id = again->id, .status = {}, .at_end = true}, now_);
  EXPECT_FALSE(pipeline().want_frame());
  const auto sent = pipeline().TakeDeadLetterRequest(now_);
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->kind, DeadLetterRequest::Kind::kReadSent);
  pipeline().OnDeadLetterReply({.id = sent->id, .status = {}, .at_end = true}, now_);
  EXPECT_TRUE(pipeline().want_frame());
}

}  // namespace
}  // namespace walpost::pipeline
