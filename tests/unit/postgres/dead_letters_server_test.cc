#include "postgres/dead_letters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "dead_letters_fixture.h"

namespace walpost::postgres {
namespace {

using base::DeadLetter;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(DeadLettersServerTest, ARowComesBackWhole) {
  DeadLetter row = RowAt("p1", std::string("k\0\xff", 3), true);
  row.value = std::string("\0\x01\\x", 4);
  row.partition = 3;
  row.event_time_ms = 1'700'000'000'123;
  row.schema = "protobuf Order -";
  InsertOk({row});
  const auto rows = table_->ReadKey("orders", *row.key, kEnd, 10);
  ASSERT_EQ(rows->size(), 1);
  const DeadLetter& read = rows->front();
  EXPECT_EQ(read.key, row.key);
  EXPECT_EQ(read.value, row.value);
  EXPECT_EQ(read.headers, row.headers);
  EXPECT_EQ(read.partition, 3);
  EXPECT_EQ(read.event_time_ms, row.event_time_ms);
  EXPECT_EQ(read.schema, row.schema);
  EXPECT_EQ(read.position, "p1");
  EXPECT_TRUE(read.parked);
  EXPECT_FALSE(read.truncated_bytes.has_value());
}

TEST_F(DeadLettersServerTest, ARepeatChangesNothing) {
  InsertOk({RowAt("p1", "a", true), RowAt("p2", "a", true)});
  EXPECT_THAT(InsertOk({RowAt("p2", "a", true), RowAt("p1", "a", true)}), ElementsAre(true, true));
  EXPECT_THAT(PositionsOf("a"), ElementsAre("p1", "p2"));
  EXPECT_EQ(*table_->CountOpen(), 2);
}

TEST_F(DeadLettersServerTest, EachRowIsCountedOnceAndForEver) {
  EXPECT_EQ(table_->CountWritten()->rows, 0);
  EXPECT_EQ(table_->Insert({RowAt("p1", "a", false), RowAt("p2", "a", false)})->written, 2);
  EXPECT_EQ(table_->Insert({RowAt("p2", "a", false), RowAt("p3", "a", false)})->written, 3);
  ASSERT_TRUE(table_->Delivered(1, false).ok());
  EXPECT_EQ(table_->CountWritten()->rows, 3);
  EXPECT_EQ(Open("other").CountWritten()->rows, 0);
}

TEST_F(DeadLettersServerTest, ARepeatOfADiscardedRowIsNotOpen) {
  InsertOk({RowAt("p1", "a", true), RowAt("p2", "a", true)});
  ASSERT_TRUE(table_->Decide({1, 2}, DeadLetter::Decision::kDiscard, /*of_key=*/true, "").ok());
  ASSERT_TRUE(table_->KeyDiscarded("orders", "a", 0).ok());
  EXPECT_THAT(InsertOk({RowAt("p1", "a", true), RowAt("p3", "a", true)}), ElementsAre(false, true));
  EXPECT_THAT(PositionsOf("a"), ElementsAre("p3"));
}

TEST_F(DeadLettersServerTest, DiscardOfAKeyLeavesTheRowsThatCameLater) {
  InsertOk({RowAt("p1", "a", true)});
  ASSERT_TRUE(table_->Decide({1}, DeadLetter::Decision::kDiscard, /*of_key=*/true, "").ok());
  InsertOk({RowAt("p2", "a", true)});
  ASSERT_TRUE(*table_->KeyDiscarded("orders", "a", 1));
  EXPECT_THAT(PositionsOf("a"), ElementsAre("p2"));
  EXPECT_TRUE(table_->NextDecision(kEnd)->row->retry()) << "they are to be sent";
  InsertOk({RowAt("p3", "a", true)});
  EXPECT_FALSE(*table_->KeyDiscarded("orders", "a", 1)) << "asked again";
  EXPECT_EQ(server_->Sql("SELECT string_agg(seq || decision || of_key, ',' ORDER BY seq) FROM "
                         "walpost.dead_letters WHERE closed_at IS NULL"),
            "2retrytrue,3retrytrue");
}

TEST_F(DeadLettersServerTest, DiscardOfAKeyDecidesNothingAboutTheRowsBefore) {
  InsertOk({RowAt("p1", "a", true), RowAt("p2", "a", true), RowAt("p3", "b", true)});
  ASSERT_TRUE(table_->Decide({2}, DeadLetter::Decision::kDiscard, /*of_key=*/true, "").ok());
  ASSERT_TRUE(*table_->KeyDiscarded("orders", "a", 2));
  EXPECT_EQ(server_->Sql("SELECT count(*) FROM walpost.dead_letters WHERE decision = 'retry'"),
            "0");
}

// What came between is later than the key's discard.
TEST_F(DeadLettersServerTest, DiscardOfAKeyIsNotAboutALaterRowThatIsDiscardedAlone) {
  InsertOk({RowAt("p1", "a", true), RowAt("p2", "a", true), RowAt("p3", "a", true)});
  ASSERT_TRUE(table_->Decide({1}, DeadLetter::Decision::kDiscard, /*of_key=*/true, "").ok());
  ASSERT_TRUE(table_->Decide({3}, DeadLetter::Decision::kDiscard, /*of_key=*/false, "").ok());
  ASSERT_TRUE(*table_->KeyDiscarded("orders", "a", 1));
  EXPECT_EQ(server_->Sql("SELECT string_agg(seq || decision, ',' ORDER BY seq) FROM "
                         "walpost.dead_letters WHERE closed_at IS NULL"),
            "2retry,3discard");
}

TEST_F(DeadLettersServerTest, BesideAReleaseTheDiscardsOfOthersAreFound) {
  InsertOk({RowAt("p1", "a", true), RowAt("p2", "b", true), RowAt("p3", "b", true)});
  ASSERT_TRUE(table_->Decide({1, 2}, DeadLetter::Decision::kRetry, true, "").ok());
  EXPECT_FALSE(table_->NextDiscardBeside(1, "orders", "a")->has_value());
  ASSERT_TRUE(table_->Decide({1, 3}, DeadLetter::Decision::kDiscard, true, "").ok());
  EXPECT_EQ(table_->NextDiscardBeside(1, "orders", "a").value()->seq, 3);
  EXPECT_EQ(table_->NextDiscardBeside(3, "orders", "b").value()->seq, 1);
  EXPECT_EQ(table_->NextDiscardBeside(3, "orders", std::nullopt).value()->seq, 1);
  EXPECT_EQ(table_->NextDiscardBeside(1, "elsewhere", "a").value()->seq, 3);
}

TEST_F(DeadLettersServerTest, RowsOfAKeyAreReadInPiecesOfBoundedSize) {
  DeadLetter large = RowAt("p1", "a", true);
  large.value = std::string(DeadLetterTable::kReadBytesMax, 'x');
  DeadLetter next = RowAt("p2", "a", true);
  InsertOk({large, next, RowAt("p3", "b", true)});
  const auto first = table_->ReadKey("orders", "a", kEnd, 100);
  ASSERT_EQ(first->size(), 1);
  ASSERT_TRUE(*table_->Delivered(first->back().seq, /*keep=*/false));
  const auto rest = table_->ReadKey("orders", "a", kEnd, 100);
  ASSERT_EQ(rest->size(), 1);
  EXPECT_EQ(rest->front().position, "p2");
}

TEST_F(DeadLettersServerTest, ParkedKeysAreReadInPiecesOfBoundedSize) {
  std::vector<DeadLetter> rows;
  for (int i = 0; i < 5; ++i) {
    rows.push_back(
        RowAt("p" + std::to_string(i), std::string(400'000, 'k') + std::to_string(i), true));
  }
  InsertOk(rows);
  std::int64_t after = 0;
  std::vector<std::size_t> pieces;
  do {
    const auto keys = table_->ReadParked(after);
    ASSERT_TRUE(keys.ok()) << keys.status();
    pieces.push_back(keys->size());
    after = keys->empty() ? 0 : keys->back().seq;
  } while (after != 0);
  EXPECT_THAT(pieces, ElementsAre(3, 2, 0));
}

TEST_F(DeadLettersServerTest, OtherPipelinesAreNoConcern) {
  InsertOk({RowAt("p1", "a", true)});
  DeadLetterTable other = Open("billing");
  EXPECT_THAT(*other.ReadParked(0), IsEmpty());
  EXPECT_EQ(*other.CountOpen(), 0);
  EXPECT_FALSE(*other.KeyIsOpen("orders", "a"));
}

TEST_F(DeadLettersServerTest, RowsOfAnotherClusterDoNotCount) {
  InsertOk({RowAt("p1", "a", true)});
  server_->Sql("UPDATE walpost.dead_letters SET system_identifier = 1, decision = 'retry'");
  EXPECT_THAT(*table_->ReadParked(0), IsEmpty());
  EXPECT_FALSE(table_->NextDecision(kEnd)->row);
  EXPECT_EQ(*table_->CountOpen(), 0);
  EXPECT_EQ(*table_->CountForeign(), 1);
}

TEST_F(DeadLettersServerTest, ATableOfAnotherClusterIsRejected) {
  const auto table =
      DeadLetterTable::Open(server_->Conninfo(), "test", kPipeline, {.system_identifier = 7});
  EXPECT_TRUE(absl::IsFailedPrecondition(table.status())) << table.status();
}

TEST_F(DeadLettersServerTest, ATableOfAnotherDatabaseIsRejected) {
  EXPECT_TRUE(DeadLetterTable::Open(server_->Conninfo(), "test", kPipeline,
                                    {.database = server_->Sql("SELECT current_database()")})
                  .ok());
  const auto table =
      DeadLetterTable::Open(server_->Conninfo(), "test", kPipeline, {.database = "another"});
  EXPECT_TRUE(absl::IsFailedPrecondition(table.status())) << table.status();
}

TEST_F(DeadLettersServerTest, APrimaryThatWasReplacedIsWaitedFor) {
  EXPECT_TRUE(DeadLetterTable::Open(server_->Conninfo(), "test", kPipeline, {.timeline = 1}).ok());
  const auto table = DeadLetterTable::Open(server_->Conninfo(), "test", kPipeline, {.timeline = 2});
  EXPECT_TRUE(absl::IsUnavailable(table.status())) << table.status();
}

TEST_F(DeadLettersServerTest, WhatWasSentAndStaysDoesNotReadAsDiscarded) {
  for (const bool was_open : {true, false}) {
    SCOPED_TRACE(was_open);
    const std::string position = was_open ? "p1" : "p2";
    InsertOk({RowAt(position, "a", true)});
    const std::string seq = server_->Sql("SELECT max(seq) FROM walpost.dead_letters");
    server_->Sql("UPDATE walpost.dead_letters SET decision = 'discard' WHERE seq = " + seq);
    if (!was_open) {
      ASSERT_TRUE(*table_->Discarded(std::stoll(seq)));
    }
    EXPECT_EQ(*table_->Delivered(std::stoll(seq), /*keep=*/true), was_open);
    EXPECT_EQ(server_->Sql("SELECT decision || (closed_at IS NOT NULL)::text || encode(value, "
                           "'escape') FROM walpost.dead_letters WHERE seq = " +
                           seq),
              "retrytruevalue of " + position);
    EXPECT_THAT(InsertOk({RowAt(position, "a", true)}), ElementsAre(false));
  }
}

TEST_F(DeadLettersServerTest, WithoutTheTableTheErrorNamesTheVerb) {
  server_->Sql("CREATE DATABASE bare");
  const auto table = DeadLetterTable::Open(server_->Conninfo("bare"), "test", kPipeline, {});
  EXPECT_TRUE(absl::IsNotFound(table.status())) << table.status();
  EXPECT_THAT(std::string(table.status().message()), ::testing::HasSubstr("walpost init"));
}

TEST_F(DeadLettersServerTest, ARetryIsCarriedOutAndItsRowGoes) {
  InsertOk({RowAt("p1", "a", true), RowAt("p2", "a", true)});
  EXPECT_EQ(*table_->Decide({1, 2}, DeadLetter::Decision::kRetry, true, ""), 2);
  const auto next = table_->NextDecision(kEnd)->row;
  ASSERT_TRUE(next);
  EXPECT_TRUE(next->retry() && next->of_key);
  ASSERT_TRUE(table_->Delivered(1, false).ok());
  EXPECT_THAT(PositionsOf("a"), ElementsAre("p2"));
  ASSERT_TRUE(table_->Delivered(2, false).ok());
  EXPECT_FALSE(*table_->KeyIsOpen("orders", "a"));
  EXPECT_EQ(server_->Sql("SELECT count(*) FROM walpost.dead_letters"), "0");
}

// Its row says that it was discarded, but Kafka has it: the row goes, and was not open any more.
TEST_F(DeadLettersServerTest, RowThatIsDiscardedWhileItsRecordIsOnItsWayGoesAndCountsOnce) {
  InsertOk({RowAt("p1", "a", false), RowAt("p2", "b", false)});
  ASSERT_TRUE(table_->Decide({1}, DeadLetter::Decision::kDiscard, false, "").ok());
  EXPECT_FALSE(*table_->Delivered(1, false));
  EXPECT_TRUE(*table_->Delivered(2, false));
  EXPECT_FALSE(*table_->Delivered(2, false));
  EXPECT_EQ(server_->Sql("SELECT count(*) FROM walpost.dead_letters"), "0");
}

TEST_F(DeadLettersServerTest, AFailedRetryIsUndecidedAgainAndSaysWhy) {
  InsertOk({RowAt("p1", "a", true), RowAt("p2", "a", true), RowAt("p3", "b", true)});
  ASSERT_TRUE(table_->Decide({1, 2, 3}, DeadLetter::Decision::kRetry, true, "").ok());
  ASSERT_TRUE(table_->RetryFailed(1, "still too large").ok());
  EXPECT_EQ(server_->Sql("SELECT detail || attempts FROM walpost.dead_letters WHERE seq = 1"),
            "still too large2");
  EXPECT_EQ(server_->Sql("SELECT string_agg(seq::text, ',') FROM walpost.dead_letters WHERE "
                         "decision IS NOT NULL"),
            "3");
}

TEST_F(DeadLettersServerTest, AFailedRetryLeavesADiscardThatWasDecidedMeanwhile) {
  InsertOk({RowAt("p1", "a", true), RowAt("p2", "a", true)});
  ASSERT_TRUE(table_->Decide({1, 2}, DeadLetter::Decision::kRetry, true, "").ok());
  ASSERT_TRUE(table_->Decide({1}, DeadLetter::Decision::kDiscard, true, "").ok());
  ASSERT_TRUE(table_->RetryFailed(1, "still too large").ok());
  EXPECT_EQ(server_->Sql("SELECT string_agg(seq || decision || of_key, ',') FROM "
                         "walpost.dead_letters WHERE decision IS NOT NULL"),
            "1discardtrue");
  EXPECT_EQ(server_->Sql("SELECT detail FROM walpost.dead_letters WHERE seq = 1"),
            "still too large");
}

TEST_F(DeadLettersServerTest, ARowIsLookedAtWithoutItsRecordWhileItIsOpen) {
  InsertOk({RowAt("p1", "a", true)});
  ASSERT_TRUE(table_->Decide({1}, DeadLetter::Decision::kDiscard, true, "").ok());
  const auto row = table_->ReadRow(1, /*whole=*/false);
  ASSERT_TRUE(row.ok() && row->size() == 1);
  EXPECT_TRUE(row->front().discard() && !row->front().value);
  ASSERT_TRUE(table_->Discarded(1).ok());
  EXPECT_THAT(*table_->ReadRow(1, /*whole=*/false), IsEmpty());
}

TEST_F(DeadLettersServerTest, WhatWasSentElsewhereStaysClosed) {
  InsertOk({RowAt("p1", "a", false)});
  ASSERT_TRUE(table_->Decide({1}, DeadLetter::Decision::kRetry, false, "fixed").ok());
  ASSERT_TRUE(table_->Delivered(1, true).ok());
  EXPECT_EQ(server_->Sql("SELECT send_to FROM walpost.dead_letters WHERE closed_at IS NOT NULL"),
            "fixed");
}

// An operator writes it, and an older table takes anything.
TEST_F(DeadLettersServerTest, AHugeTopicIsNotReadWhole) {
  InsertOk({RowAt("p1", "a", false)});
  server_->Sql("ALTER TABLE walpost.dead_letters DROP CONSTRAINT dead_letters_send_to_check");
  ASSERT_TRUE(
      table_->Decide({1}, DeadLetter::Decision::kRetry, false, std::string(1'000'000, 'a')).ok());
  const auto next = table_->NextDecision(kEnd)->row;
  ASSERT_TRUE(next);
  EXPECT_EQ(next->send_to, std::string(300, 'a')) << "no topic either";
}

TEST_F(DeadLettersServerTest, ADiscardClosesWhatHasNoOrderAtOnce) {
  InsertOk({RowAt("p1", "a", false), RowAt("p2", "b", true)});
  ASSERT_TRUE(table_->Decide({1, 2}, DeadLetter::Decision::kDiscard, true, "").ok());
  EXPECT_EQ(*table_->CountOpen(), 1);
  const auto next = table_->NextDecision(kEnd)->row;
  ASSERT_TRUE(next);
  EXPECT_EQ(next->seq, 2);
  ASSERT_TRUE(table_->Discarded(2).ok());
  EXPECT_EQ(*table_->CountOpen(), 0);
}

// What it lacks a character for is written in another way, whatever stands beside it.
TEST_F(DeadLettersServerTest, DatabaseThatIsNotUtf8TakesTheSameRowOnce) {
  server_->Sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
  auto connection = SqlConnection::Connect(server_->Conninfo("latin"), "test");
  ASSERT_TRUE(connection->Execute(Script()).ok());
  auto table = DeadLetterTable::Open(server_->Conninfo("latin"), "test", kPipeline, {});
  ASSERT_TRUE(table.ok()) << table.status();
  DeadLetter known = RowAt("p1", "a", true);
  known.event_id = "caf\xc3\xa9";
  DeadLetter unknown = RowAt("p2", "a", true);
  unknown.event_id = "\xe6\x97\xa5";
  EXPECT_EQ(table->Insert({known, unknown})->written, 2);
  EXPECT_EQ(table->Insert({known})->written, 2);
  EXPECT_EQ(table->Insert({unknown})->written, 2);
  EXPECT_EQ(*table->CountOpen(), 2);
  // What only people read, such as the message of a Schema Registry.
  EXPECT_TRUE(table->RetryFailed(1, unknown.event_id).ok());
  unknown.position = "p3";
  EXPECT_TRUE(*table->InsertBehindParked(unknown));
  EXPECT_EQ(*table->CountOpen(), 3);
}

TEST_F(DeadLettersServerTest, BesideTheStreamOnlyParkedKeysTakeRows) {
  InsertOk({RowAt("p1", "a", true)});
  EXPECT_TRUE(*table_->InsertBehindParked(RowAt("p2", "a", true)));
  EXPECT_FALSE(*table_->InsertBehindParked(RowAt("p3", "b", true)));
  EXPECT_EQ(table_->CountWritten()->rows, 2);
  EXPECT_THAT(PositionsOf("a"), ElementsAre("p1", "p2"));
  EXPECT_EQ(*table_->CountOpen(), 2);
}

TEST_F(DeadLettersServerTest, ARowBesideTheStreamWaitsForTheEndOfTheRelease) {
  InsertOk({RowAt("p1", "a", true)});
  auto release = SqlConnection::Connect(server_->Conninfo(), "release");
  ASSERT_TRUE(release->Execute("BEGIN; DELETE FROM walpost.dead_letters WHERE seq = 1").ok());
  bool inserted = true;
  std::thread other(
      [&] { inserted = *Open(kPipeline).InsertBehindParked(RowAt("p2", "a", true)); });
  while (server_->Sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") ==
         "0") {
    std::this_thread::yield();
  }
  ASSERT_TRUE(release->Execute("COMMIT").ok());
  other.join();
  EXPECT_FALSE(inserted);
}

// A row that was discarded, or one of another table with the same id, is not this one.
TEST_F(DeadLettersServerTest, RowsBesideTheStreamAreEachARowOfTheirOwn) {
  InsertOk({RowAt("p1", "a", true)});
  DeadLetter row = RowAt("", "a", true);
  EXPECT_TRUE(*table_->InsertBehindParked(row));
  ASSERT_TRUE(table_->Decide({2}, DeadLetter::Decision::kDiscard, false, "").ok());
  EXPECT_TRUE(*table_->Discarded(2));
  row.source = "outbox.others";
  EXPECT_TRUE(*table_->InsertBehindParked(row));
  EXPECT_THAT(PositionsOf("a"), ElementsAre("p1", ""));
  EXPECT_EQ(*table_->CountOpen(), 2);
}

TEST_F(DeadLettersServerTest, ADiscardWaitsForTheRowThatIsBeingAddedBehindIt) {
  InsertOk({RowAt("p1", "a", true)});
  ASSERT_TRUE(table_->Decide({1}, DeadLetter::Decision::kDiscard, false, "").ok());
  auto holder = SqlConnection::Connect(server_->Conninfo(), "holder");
  // The row beside the stream waits before it is committed.
  ASSERT_TRUE(holder->Execute("BEGIN; LOCK TABLE walpost.dead_letters IN SHARE MODE").ok());
  bool inserted = false;
  std::thread adding(
      [&] { inserted = *Open(kPipeline).InsertBehindParked(RowAt("p2", "a", true)); });
  AwaitBlocked("1");
  bool open = false;
  std::thread discarding([&] {
    EXPECT_TRUE(table_->Discarded(1).ok());
    open = *table_->KeyIsOpen("orders", "a");
  });
  AwaitBlocked("2");
  ASSERT_TRUE(holder->Execute("COMMIT").ok());
  adding.join();
  discarding.join();
  EXPECT_EQ(inserted, open) << "a row that nobody knows of";
}

// It takes its snapshot while the row is being added.
TEST_F(DeadLettersServerTest, DiscardOfAKeyDecidesAboutTheRowThatIsBeingAddedBehindIt) {
  InsertOk({RowAt("p1", "a", true)});
  ASSERT_TRUE(table_->Decide({1}, DeadLetter::Decision::kDiscard, /*of_key=*/true, "").ok());
  auto holder = SqlConnection::Connect(server_->Conninfo(), "holder");
  // The row beside the stream waits before it is committed.
  ASSERT_TRUE(holder->Execute("BEGIN; SELECT FROM walpost.dead_letter_count FOR UPDATE").ok());
  std::thread adding(
      [&] { EXPECT_TRUE(*Open(kPipeline).InsertBehindParked(RowAt("p2", "a", true))); });
  AwaitBlocked("1");
  std::thread discarding([&] { EXPECT_TRUE(*table_->KeyDiscarded("orders", "a", 1)); });
  AwaitBlocked("2");
  ASSERT_TRUE(holder->Execute("COMMIT").ok());
  adding.join();
  discarding.join();
  EXPECT_EQ(server_->Sql("SELECT string_agg(seq || coalesce(decision, '-'), ',' ORDER BY seq) FROM "
                         "walpost.dead_letters WHERE closed_at IS NULL"),
            "2retry");
}

TEST_F(DeadLettersServerTest, ADiscardThatWasTakenBackClosesNothing) {
  InsertOk({RowAt("p1", "a", true)});
  ASSERT_TRUE(table_->Decide({1}, DeadLetter::Decision::kRetry, true, "").ok());
  EXPECT_FALSE(*table_->Discarded(1));
  EXPECT_EQ(*table_->CountOpen(), 1);
}

TEST_F(DeadLettersServerTest, NothingIsParkedWithoutAKey) {
  InsertOk({RowAt("p1", "a", true)});
  EXPECT_FALSE(table_->connection()->Execute("UPDATE walpost.dead_letters SET key = NULL").ok());
}

TEST_F(DeadLettersServerTest, TextThatTheServerCannotHoldDoesNotStopTheLine) {
  DeadLetter row = RowAt("p1", "a", false);
  row.event_type = std::string("a\0b\xff", 4);
  row.detail = std::string(2'000, 'x') + "\xe2\x82\xac";
  InsertOk({row});
  EXPECT_EQ(server_->Sql("SELECT event_type FROM walpost.dead_letters"), "a?b?");
  EXPECT_EQ(server_->Sql("SELECT length(detail) FROM walpost.dead_letters"), "1024");
}

TEST_F(DeadLettersServerTest, ATruncatedRowIsRestored) {
  DeadLetter row = RowAt("p1", "a", true);
  row.value.reset();
  row.headers.clear();
  row.truncated_bytes = 77;
  InsertOk({row});
  DeadLetter whole = RowAt("p1", "a", true);
  whole.seq = 1;
  EXPECT_TRUE(*table_->Restore(whole));
  const auto rows = table_->ReadKey("orders", "a", kEnd, 10);
  EXPECT_EQ(rows->at(0).value, whole.value);
  EXPECT_FALSE(rows->at(0).truncated_bytes.has_value());
}

TEST_F(DeadLettersServerTest, VerbsSeeEveryRowInOrder) {
  std::vector<DeadLetter> rows;
  for (int i = 0; i < 250; ++i) {
    rows.push_back(RowAt("p" + std::to_string(i), "a", true));
  }
  InsertOk(rows);
  int seen = 0;
  const auto on_row = [&](const DeadLetter& row) {
    EXPECT_EQ(row.seq, ++seen);
    return absl::OkStatus();
  };
  ASSERT_TRUE(table_->ForEach("topic = $2", {"orders"}, /*whole=*/false, on_row).ok());
  EXPECT_EQ(seen, 250);
}

TEST_F(DeadLettersServerTest, VerbsReadLargeKeysInPiecesOfBoundedSize) {
  std::vector<DeadLetter> rows;
  for (int i = 0; i < 8; ++i) {
    const std::string key(DeadLetterTable::kReadBytesMax / 2, static_cast<char>('a' + i));
    rows.push_back(RowAt("p" + std::to_string(i), key, i % 2 == 0));
  }
  InsertOk(rows);
  server_->Sql("UPDATE walpost.dead_letters SET key = NULL WHERE seq = 8");
  int seen = 0;
  const auto on_row = [&](const DeadLetter& row) {
    // What was not read yet is not seen. A piece has two of these keys.
    if (++seen == 1) {
      server_->Sql("DELETE FROM walpost.dead_letters WHERE seq IN (2, 3)");
    }
    EXPECT_NE(row.seq, 3);
    return absl::OkStatus();
  };
  ASSERT_TRUE(table_->ForEach("true", {}, /*whole=*/false, on_row).ok());
  EXPECT_EQ(seen, 7);
}

TEST(StatementTimeTest, GrowsWithTheBytesUpToTwoHours) {
  using std::chrono::seconds;
  EXPECT_EQ(StatementTimeFor(0), seconds(10));
  EXPECT_EQ(StatementTimeFor((1U << 20U) - 1), seconds(10)) << "no statement more for small ones";
  EXPECT_EQ(StatementTimeFor(120U << 20U), seconds(1'210));
  EXPECT_EQ(StatementTimeFor(std::size_t{1} << 60U), seconds(7'200));
}

TEST_F(DeadLettersServerTest, LimitedStatementsHaveTheShortTimeAgainBehindALargeRow) {
  ASSERT_TRUE(table_->LimitStatements().ok());
  DeadLetter row = RowAt("1", "a", /*parked=*/true);
  row.value = std::string(3U << 20U, 'x');
  InsertOk({row});
  const auto rows = table_->ReadKey("orders", "a", kEnd, 100);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->at(0).value, row.value);
  const auto in_force = table_->connection()->Query("SHOW statement_timeout");
  ASSERT_TRUE(in_force.ok()) << in_force.status();
  EXPECT_EQ(in_force->at(0).at(0), "10s");
}

}  // namespace
}  // namespace walpost::postgres
