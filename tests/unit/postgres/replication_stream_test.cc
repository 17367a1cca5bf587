#include "postgres/replication_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <memory>
#include <string>
#include <variant>

#include "postgres/sql_connection.h"
#include "scripted_backend.h"

namespace walpost::postgres {
namespace {

using Next = ReplicationStream::Next;
using Kind = StreamEnd::Kind;
using ::testing::HasSubstr;

class CopyStreamTest : public ::testing::Test {
 protected:
  CopyStreamTest() {
    auto opened = Connection::Open(ConnectionOptions{backend_.Conninfo(), "walpost", true});
    Connection& connection = std::get<Connection>(opened);
    const Result start = connection.Query(
        "START_REPLICATION", std::chrono::steady_clock::now() + std::chrono::seconds(10));
    EXPECT_EQ(start.status(), PGRES_COPY_BOTH);
    stream_ = std::make_unique<CopyStream>(std::move(connection), "walpost", "pub");
  }

  bool Readable(int timeout_ms = 10'000) const {
    pollfd descriptor{stream_->socket(), POLLIN, 0};
    return poll(&descriptor, 1, timeout_ms) == 1;
  }

  // Reads as the loop does until something other than kNothing comes.
  Next Await(std::string_view* frame) {
    Next next = stream_->Take(frame);
    while (next == Next::kNothing && Readable()) {
      stream_->Receive();
      next = stream_->Take(frame);
    }
    return next;
  }

  StreamEnd AwaitEnd() {
    std::string_view frame;
    EXPECT_EQ(Await(&frame), Next::kEnded);
    EXPECT_EQ(stream_->Take(&frame), Next::kEnded) << "kEnded is final";
    return stream_->end();
  }

  ScriptedBackend backend_;
  std::unique_ptr<CopyStream> stream_;
};

TEST_F(CopyStreamTest, FrameCutAnywhereArrivesWhole) {
  const std::string bytes = ScriptedBackend::Frame("hello");
  for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
    std::string_view frame;
    backend_.Send(bytes.substr(0, cut));
    ASSERT_TRUE(Readable());
    stream_->Receive();
    EXPECT_EQ(stream_->Take(&frame), Next::kNothing) << cut;
    backend_.Send(bytes.substr(cut));
    ASSERT_EQ(Await(&frame), Next::kFrame) << cut;
    EXPECT_EQ(frame, "hello");
  }
}

TEST_F(CopyStreamTest, FramesBeforeTheEndAreNotLost) {
  backend_.Send(ScriptedBackend::Frame("one") + ScriptedBackend::Frame("two") +
                ScriptedBackend::Error("XX000", "broken", "associated LSN 0/A0"));
  backend_.Close();
  std::string_view frame;
  ASSERT_EQ(Await(&frame), Next::kFrame);
  EXPECT_EQ(frame, "one");
  ASSERT_EQ(Await(&frame), Next::kFrame);
  EXPECT_EQ(frame, "two");
  const StreamEnd end = AwaitEnd();
  EXPECT_EQ(end.kind, Kind::kServerError);
  EXPECT_EQ(end.sqlstate, "XX000");
  EXPECT_EQ(end.context, "associated LSN 0/A0");
  EXPECT_THAT(std::string(end.status.message()),
              AllOf(HasSubstr("broken"), HasSubstr("\"walpost\""), HasSubstr("127.0.0.1")));
}

TEST_F(CopyStreamTest, CommandCompleteWithoutCopyDoneIsFinished) {
  backend_.Send(ScriptedBackend::CommandComplete());
  EXPECT_EQ(AwaitEnd().kind, Kind::kFinished);
}

TEST_F(CopyStreamTest, EndThatArrivesInPiecesIsAwaited) {
  std::string_view frame;
  ASSERT_TRUE(stream_->SendCopyDone().ok());
  backend_.Send(ScriptedBackend::CopyDone());
  ASSERT_TRUE(Readable());
  stream_->Receive();
  EXPECT_EQ(stream_->Take(&frame), Next::kNothing) << "the last word is still to come";
  backend_.Send(ScriptedBackend::CommandComplete() + ScriptedBackend::ReadyForQuery());
  EXPECT_EQ(AwaitEnd().kind, Kind::kFinished);
}

TEST_F(CopyStreamTest, ServerThatClosesItsSideFirstIsAnsweredByCopyDone) {
  backend_.Send(ScriptedBackend::CopyDone() + ScriptedBackend::CommandComplete());
  EXPECT_EQ(AwaitEnd().kind, Kind::kFinished);
  EXPECT_EQ(backend_.AwaitSent(5), std::string("c\0\0\0\4", 5));
}

TEST_F(CopyStreamTest, BareEndOfFileIsLost) {
  backend_.Send(ScriptedBackend::Frame("one").substr(0, 6));
  backend_.Close();
  const StreamEnd end = AwaitEnd();
  EXPECT_EQ(end.kind, Kind::kLost);
  EXPECT_EQ(end.sqlstate, "");
  EXPECT_EQ(end.status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(CopyStreamTest, MissingPublicationNeedsAnOperator) {
  backend_.Send(ScriptedBackend::Error("42704", "publication \"pub\" does not exist", ""));
  const StreamEnd end = AwaitEnd();
  EXPECT_EQ(end.kind, Kind::kOperator);
  EXPECT_EQ(end.reason, base::HaltReason::kPublicationMissing);
}

TEST_F(CopyStreamTest, NonsenseFromTheServerIsLost) {
  backend_.Send(std::string("d\0\0\0\1xxxxxxxx", 13));
  EXPECT_EQ(AwaitEnd().kind, Kind::kLost);
}

// Failure 32.
TEST_F(CopyStreamTest, WarningInTheStreamIsANotice) {
  backend_.Send(ScriptedBackend::Frame("one") +
                ScriptedBackend::Notice("WARNING", "55000", "skipped loading publication \"p\"",
                                        "LoadPublications") +
                ScriptedBackend::Notice("NOTICE", "00000", "harmless") +
                ScriptedBackend::Frame("two"));
  std::string_view frame;
  ASSERT_EQ(Await(&frame), Next::kFrame);
  EXPECT_EQ(frame, "one");
  ASSERT_EQ(Await(&frame), Next::kFrame);
  EXPECT_EQ(frame, "two");
  EXPECT_EQ(stream_->TakeNotice(), "55000 LoadPublications: skipped loading publication \"p\"");
  EXPECT_EQ(stream_->TakeNotice(), std::nullopt);
}

TEST_F(CopyStreamTest, FloodOfNoticesKeepsTheFirst) {
  std::string flood;
  for (int i = 0; i < 1000; ++i) {
    flood += ScriptedBackend::Notice("WARNING", "55000", std::to_string(i));
  }
  backend_.Send(flood + ScriptedBackend::Frame("end"));
  std::string_view frame;
  ASSERT_EQ(Await(&frame), Next::kFrame);
  EXPECT_EQ(stream_->TakeNotice(), "55000: 0");
  int kept = 1;
  while (stream_->TakeNotice().has_value()) {
    ++kept;
  }
  EXPECT_EQ(kept, 16);
}

// It means that rows are left out.
TEST_F(CopyStreamTest, FloodOfNoticesDoesNotHideTheOneAboutThePublication) {
  std::string flood;
  for (int i = 0; i < 20; ++i) {
    flood += ScriptedBackend::Notice("WARNING", "55000", std::to_string(i));
  }
  flood += ScriptedBackend::Notice("WARNING", "55000", "skipped", "LoadPublications");
  for (int i = 0; i < 20; ++i) {
    flood += ScriptedBackend::Notice("WARNING", "55000", std::to_string(i));
  }
  backend_.Send(flood + ScriptedBackend::Frame("end"));
  std::string_view frame;
  ASSERT_EQ(Await(&frame), Next::kFrame);
  std::string last;
  while (const auto notice = stream_->TakeNotice()) {
    last = *notice;
  }
  EXPECT_EQ(last, "55000 LoadPublications: skipped");
}

// Else the loop would turn without a pause.
TEST_F(CopyStreamTest, NothingWantsToBeWrittenOnceEverythingIs) {
  const std::string status(64 * 1024, 's');
  while (!stream_->wants_write()) {
    ASSERT_TRUE(stream_->Send(status).ok());
  }
  for (int i = 0; i < 1'000 && stream_->wants_write(); ++i) {
    backend_.AwaitSent(status.size());
    ASSERT_TRUE(stream_->Flush().ok());
  }
  EXPECT_FALSE(stream_->wants_write());
}

TEST_F(CopyStreamTest, StatusGoesOutAsCopyData) {
  ASSERT_TRUE(stream_->Send("status").ok());
  EXPECT_FALSE(stream_->wants_write());
  EXPECT_EQ(backend_.AwaitSent(11), std::string("d\0\0\0\12status", 11));
}

TEST_F(CopyStreamTest, SendAfterTheEndIsUnavailable) {
  backend_.Send(ScriptedBackend::CommandComplete());
  AwaitEnd();
  EXPECT_EQ(stream_->Send("status").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(stream_->SendCopyDone().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(stream_->wants_write());
}

using ::testing::Not;

StartOptions Options(int version) {
  StartOptions options;
  options.slot = "walpost";
  options.publication = "walpost";
  options.start_lsn = base::Lsn(0x16B374D848);
  options.server_version = version;
  return options;
}

TEST(QuoteTest, QuotesInsideAreDoubled) {
  EXPECT_EQ(QuoteIdentifier("My\"Pub"), "\"My\"\"Pub\"");
  EXPECT_EQ(QuoteLiteral("it's"), "'it''s'");
  EXPECT_EQ(QuoteLiteral("back\\slash"), "'back\\slash'");
}

TEST(StartReplicationTest, Version15AsksForBinary) {
  EXPECT_EQ(StartReplicationCommand(Options(150018)),
            "START_REPLICATION SLOT \"walpost\" LOGICAL 16/B374D848 (proto_version '1', "
            "publication_names '\"walpost\"', binary 'true')");
}

TEST(StartReplicationTest, Version13GetsNoOptionItDoesNotKnow) {
  StartOptions options = Options(130023);
  options.messages = true;
  const std::string command = StartReplicationCommand(options);
  EXPECT_THAT(command, Not(HasSubstr("binary")));
  EXPECT_THAT(command, Not(HasSubstr("messages")));
}

// Failure 56.
TEST(StartReplicationTest, MessagesOnlyWhenAskedFor) {
  StartOptions options = Options(140000);
  EXPECT_THAT(StartReplicationCommand(options), Not(HasSubstr("messages")));
  options.messages = true;
  EXPECT_THAT(StartReplicationCommand(options), HasSubstr("messages 'true'"));
}

TEST(StartReplicationTest, PublicationIsQuotedTwice) {
  StartOptions options = Options(150000);
  options.publication = "My,\"Pub's";
  EXPECT_THAT(StartReplicationCommand(options), HasSubstr("publication_names '\"My,\"\"Pub''s\"'"));
}

TEST(TimelineHistoryTest, AncestorsInOrder) {
  const auto history = ParseTimelineHistory(
      "1\t0/3000148\tno recovery target specified\n\n# a comment\n2\t1/A0\tbefore 2000-01-01\n");
  ASSERT_TRUE(history.ok()) << history.status();
  ASSERT_EQ(history->size(), 2u);
  EXPECT_EQ((*history)[0].timeline, 1u);
  EXPECT_EQ((*history)[0].end, base::Lsn(0x3000148));
  EXPECT_EQ((*history)[1].timeline, 2u);
  EXPECT_EQ((*history)[1].end, base::Lsn(0x1000000A0));
}

TEST(TimelineHistoryTest, LastLineWithoutNewlineCounts) {
  const auto history = ParseTimelineHistory("1\t0/A0\tx");
  ASSERT_TRUE(history.ok());
  EXPECT_EQ(history->size(), 1u);
}

TEST(TimelineHistoryTest, BrokenLinesAreDataLoss) {
  for (const char* broken : {"one\t0/A0\tx", "1\tnowhere\tx", "1", "2\t0/A0\tx\n1\t0/B0\tx",
                             "4294967296\t0/A0\tx", "1x\t0/A0"}) {
    EXPECT_EQ(ParseTimelineHistory(broken).status().code(), absl::StatusCode::kDataLoss) << broken;
  }
}

}  // namespace
}  // namespace walpost::postgres
