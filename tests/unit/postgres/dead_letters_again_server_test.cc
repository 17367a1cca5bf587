// Rows of walpost.dead_letters whose events the stream brings again.
#include <gmock/gmock.h>

#include "absl/strings/str_format.h"
#include "dead_letters_fixture.h"

namespace walpost::postgres {
namespace {

using base::DeadLetter;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(DeadLettersServerTest, RowsThatWaitOrWereDiscardedAreReadWhereTheirEventComesAgain) {
  InsertOk(
      {RowAt(At(0xfff), "a", true), RowAt(At(0x1000a), "b", false), RowAt(At(0x1000), "a", true)});
  server_->Sql("UPDATE walpost.dead_letters SET decision = 'discard' WHERE seq = 3");
  ASSERT_TRUE(*table_->Discarded(3));
  InsertOk({RowAt(At(0x2000), "c", true)});
  ASSERT_TRUE(table_->Delivered(4, /*keep=*/true).ok());
  const auto rows = table_->ReadRowsFrom(base::Lsn(0x1000), 0);
  ASSERT_THAT(*rows, SizeIs(2));
  EXPECT_EQ(rows->at(0).position, At(0x1000));
  EXPECT_EQ(rows->at(0).event_id, RowAt(At(0x1000), "a", true).event_id);
  EXPECT_EQ(rows->at(1).position, At(0x1000a));
  EXPECT_THAT(*table_->ReadRowsFrom(base::Lsn(0x1000), 3), SizeIs(1)) << "in the order of commits";
  EXPECT_THAT(*table_->ReadRowsFrom(base::Lsn(0x1000a), 2), IsEmpty());
  EXPECT_THAT(*Open("billing").ReadRowsFrom(base::Lsn(0), 0), IsEmpty());
  const auto sent = table_->ReadSent(At(0x1000), 100);
  ASSERT_THAT(*sent, SizeIs(1));
  EXPECT_EQ(sent->at(0).value, RowAt(At(0x2000), "c", true).value);
  EXPECT_THAT(*table_->ReadSent(At(0x2000), 100), IsEmpty());
}

TEST_F(DeadLettersServerTest, SentRowsGoWhenTheirEventsCannotComeAgain) {
  InsertOk({RowAt(At(0x1000), "sent", true), RowAt(At(0x1001), "open", true),
            RowAt(At(0x1002), "discarded", false), RowAt(At(0x1003), "elsewhere", false),
            RowAt(At(0x2000), "comes again", true), RowAt(At(0x1005), "taken over", true)});
  // Another one came from another cluster.
  server_->Sql(
      "UPDATE walpost.dead_letters SET position = repeat('0', 16) || substr(position, 17) WHERE "
      "seq = 6");
  server_->Sql("UPDATE walpost.dead_letters SET decision = 'discard' WHERE seq = 3");
  server_->Sql("UPDATE walpost.dead_letters SET send_to = 'other' WHERE seq = 4");
  for (const std::int64_t seq : {1, 4, 5, 6}) {
    ASSERT_TRUE(table_->Delivered(seq, /*keep=*/true).ok());
  }
  ASSERT_TRUE(Open("billing").DeleteSentBefore(base::Lsn(0x2000)).ok());
  EXPECT_EQ(*table_->DeleteSentBefore(base::Lsn(0x1000)), 0U);
  const char* const kLeft =
      "SELECT string_agg(seq::text, ' ' ORDER BY seq) FROM walpost.dead_letters";
  EXPECT_EQ(server_->Sql(kLeft), "1 2 3 4 5 6");
  EXPECT_EQ(*table_->DeleteSentBefore(base::Lsn(0x2000)), 1U);
  EXPECT_EQ(server_->Sql(kLeft), "2 3 4 5 6");
}

TEST_F(DeadLettersServerTest, RetryOfAParkedKeyIsFoundWhenTheStreamIsBehindItsRow) {
  InsertOk(
      {RowAt(At(0x1000), "a", true), RowAt(At(0x1002), "a", true), RowAt(At(0x1001), "b", false)});
  server_->Sql("UPDATE walpost.dead_letters SET decision = 'retry' WHERE seq < 3");
  EXPECT_FALSE(table_->NextDecision(At(0x1000))->row);
  EXPECT_EQ(table_->NextDecision(At(0x1000))->waits_for, At(0x1000));
  EXPECT_TRUE(table_->NextDecision(At(0x1001))->row);
  server_->Sql("UPDATE walpost.dead_letters SET decision = 'retry' WHERE seq = 3");
  EXPECT_EQ(table_->NextDecision(At(0x1000))->row->seq, 3) << "it has no order";
  server_->Sql("UPDATE walpost.dead_letters SET decision = 'discard' WHERE seq = 1");
  EXPECT_EQ(table_->NextDecision(At(0x1000))->row->seq, 3);
  server_->Sql("DELETE FROM walpost.dead_letters WHERE seq = 3");
  EXPECT_EQ(table_->NextDecision(At(0x1000))->row->seq, 1) << "a discard waits for nothing";
}

TEST_F(DeadLettersServerTest, RowThatAVerbWroteStandsBehindTheLastOfItsKey) {
  InsertOk({RowAt(At(0x2000), "a", true), RowAt(At(0x1000), "a", true)});
  ASSERT_TRUE(*table_->InsertBehindParked(RowAt("", "a", true)));
  ASSERT_TRUE(*table_->InsertBehindParked(RowAt("", "a", true)));
  InsertOk({RowAt(At(0x2000, 1), "a", true)});
  EXPECT_THAT(PositionsOf("a"), ElementsAre(At(0x1000), At(0x2000), "", "", At(0x2000, 1)));
  server_->Sql("UPDATE walpost.dead_letters SET decision = 'retry' WHERE seq = 3");
  EXPECT_FALSE(table_->NextDecision(At(0x2000))->row);
  EXPECT_EQ(table_->NextDecision(At(0x2000, 1))->row->seq, 3);
}

TEST_F(DeadLettersServerTest, RowsOfAnotherClusterStandBeforeAll) {
  InsertOk({RowAt(At(0x1000), "a", true), RowAt("f" + At(0x1000).substr(1), "a", true)});
  EXPECT_THAT(*table_->ReadParked(0), ElementsAre(Field(&base::ParkedKey::place, At(0x1000)),
                                                  Field(&base::ParkedKey::place, "")));
  EXPECT_EQ(table_->ReadKey("orders", "a", At(0x1000), 100)->at(0).seq, 2);
  ASSERT_TRUE(*table_->InsertBehindParked(RowAt("", "a", true)));
  EXPECT_EQ(table_->ReadKey("orders", "a", kEnd, 100)->at(2).place, At(0x1000) + "+");
}

TEST_F(DeadLettersServerTest, RowsThatStandBehindTheStreamAreNotRead) {
  InsertOk({RowAt(At(0x1000), "a", true), RowAt(At(0x2000), "a", true)});
  EXPECT_THAT(*table_->ReadKey("orders", "a", At(0x1001), 100), SizeIs(1));
  EXPECT_THAT(*table_->ReadKey("orders", "a", At(0x1000), 100), IsEmpty());
  ASSERT_TRUE(table_->RetryBehind("orders", "a", 1).ok());
  EXPECT_EQ(server_->Sql("SELECT string_agg(seq::text, ' ') FROM walpost.dead_letters WHERE "
                         "decision = 'retry' AND of_key"),
            "2");
}

TEST_F(DeadLettersServerTest, RowsOfAnotherClusterAreInItsOrder) {
  const std::string there = "f" + At(0x1000).substr(1);
  InsertOk({RowAt("f" + At(0x2000).substr(1), "a", true), RowAt(there, "a", true)});
  EXPECT_THAT(PositionsOf("a"), ElementsAre(there, "f" + At(0x2000).substr(1)));
}

TEST_F(DeadLettersServerTest, RowWhoseDecisionWasTakenBackIsNotDecidedWithTheOthers) {
  InsertOk(
      {RowAt(At(0x1000), "a", true), RowAt(At(0x2000), "a", true), RowAt(At(0x3000), "a", true)});
  ASSERT_TRUE(table_->Decide({1, 2}, DeadLetter::Decision::kRetry, /*of_key=*/true, "").ok());
  server_->Sql("UPDATE walpost.dead_letters SET decision = NULL, of_key = false WHERE seq = 2");
  ASSERT_TRUE(table_->RetryBehind("orders", "a", 1).ok());
  const auto key = table_->ReadKey("orders", "a", kEnd, 100);
  EXPECT_TRUE(key->at(1).taken_back && !key->at(1).retry());
  EXPECT_TRUE(key->at(2).retry() && !key->at(2).taken_back);
}

// A discard that was taken back while `run` waited for its rows.
TEST_F(DeadLettersServerTest, DiscardOfAKeyThatWasTakenBackDecidesNothing) {
  InsertOk({RowAt(At(0x1000), "a", true), RowAt(At(0x2000), "a", true)});
  EXPECT_FALSE(*table_->KeyDiscarded("orders", "a", 1));
  EXPECT_FALSE(table_->NextDecision(kEnd)->row);
}

TEST_F(DeadLettersServerTest, RowOfWhichNothingWasDecidedIsNotTakenBack) {
  InsertOk({RowAt(At(0x1000), "a", true)});
  server_->Sql("UPDATE walpost.dead_letters SET decision = NULL, of_key = false");
  EXPECT_FALSE(table_->ReadKey("orders", "a", kEnd, 1)->at(0).taken_back);
}

TEST_F(DeadLettersServerTest, RowThatIsUnparkedAndDiscardedMeanwhileIsClosed) {
  InsertOk({RowAt(At(0x1000), "a", true)});
  ASSERT_TRUE(table_->Decide({1}, DeadLetter::Decision::kDiscard, /*of_key=*/true, "").ok());
  ASSERT_TRUE(table_->RetryFailed(1, "no such partition", /*unpark=*/true).ok());
  EXPECT_EQ(*table_->CountOpen(), 0U);
  EXPECT_EQ(server_->Sql("SELECT decision FROM walpost.dead_letters WHERE closed_at IS NOT NULL"),
            "discard");
}

TEST_F(DeadLettersServerTest, RowThatIsUnparkedLeavesTheOthersOfItsKeyDecided) {
  InsertOk({RowAt(At(0x1000), "a", true), RowAt(At(0x2000), "a", true)});
  ASSERT_TRUE(table_->Decide({1, 2}, DeadLetter::Decision::kRetry, /*of_key=*/true, "").ok());
  ASSERT_TRUE(table_->RetryFailed(1, "no such partition", /*unpark=*/true).ok());
  const auto key = table_->ReadKey("orders", "a", kEnd, 100);
  ASSERT_THAT(*key, SizeIs(1));
  EXPECT_TRUE(key->at(0).retry());
  EXPECT_EQ(table_->ReadRow(1, /*whole=*/false)->at(0).detail, "no such partition");
  EXPECT_EQ(*table_->CountOpen(), 2U);
}

// A statement has 10 s.
TEST_F(DeadLettersServerTest, AsManyDecidedKeysAsRowsAreLookedThroughInTime) {
  server_->Sql(absl::StrFormat(
      "INSERT INTO walpost.dead_letters (pipeline, position, event_id, event_type, source, topic, "
      "event_time_ms, key, header_names, header_values, value_schema, reason, detail, attempts, "
      "parked, decision, of_key) SELECT '%s', left('%s', 26) || lpad(to_hex(i), 16, '0') || "
      "'-00000000', i, '', '', 'orders', 0, convert_to(lpad(i::text, 1024, 'k'), 'UTF8'), '{}', "
      "'{}', '', '', '', 1, true, 'retry', true FROM generate_series(1, 10000) AS i",
      kPipeline, At(0)));
  server_->Sql("ANALYZE walpost.dead_letters");
  ASSERT_TRUE(table_->LimitStatements().ok());
  for (const bool retries_only : {false, true}) {
    const auto next = table_->NextDecision(At(1), retries_only);
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_FALSE(next->row);
    EXPECT_EQ(next->waits_for, At(1));
  }
}

TEST_F(DeadLettersServerTest, BesideADiscardTheRetriesOfOtherKeysAreFound) {
  InsertOk({RowAt("p1", "a", true), RowAt("p2", "a", true), RowAt("p3", "b", true)});
  server_->Sql("UPDATE walpost.dead_letters SET decision = 'discard' WHERE seq = 1");
  server_->Sql("UPDATE walpost.dead_letters SET decision = 'retry' WHERE seq = 2");
  EXPECT_EQ(table_->NextDecision(kEnd)->row->seq, 1);
  EXPECT_FALSE(table_->NextDecision(kEnd, /*retries_only=*/true)->row) << "the discard goes first";
  server_->Sql("UPDATE walpost.dead_letters SET decision = 'retry' WHERE seq = 3");
  EXPECT_EQ(table_->NextDecision(kEnd, /*retries_only=*/true)->row->seq, 3);
}

TEST_F(DeadLettersServerTest, RowOfAParkedKeyIsSentToNoOtherTopic) {
  InsertOk({RowAt("p1", "a", true), RowAt("p2", "b", false)});
  auto operating = SqlConnection::Connect(server_->Conninfo(), "test");
  const auto send = [&](int seq) {
    return operating->Execute(absl::StrFormat(
        "UPDATE walpost.dead_letters SET decision = 'retry', send_to = 'other' WHERE seq = %d",
        seq));
  };
  EXPECT_FALSE(send(1).ok());
  EXPECT_TRUE(send(2).ok());
}

}  // namespace
}  // namespace walpost::postgres
