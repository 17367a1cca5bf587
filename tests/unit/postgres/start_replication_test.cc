#include "postgres/start_replication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

using ::testing::HasSubstr;
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
