#include "postgres/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "postgres/connection.h"
#include "postgres/preflight.h"

namespace walpost::postgres {
namespace {

using base::HaltReason;
using ::testing::HasSubstr;
using Kind = StreamEnd::Kind;

const Endpoint kEndpoint{"db:5432", "shop", "relay"};

std::string Text(const StreamEnd& end) { return std::string(end.status.message()); }

TEST(ConnectFailureTest, LoginErrorsNeedAnOperator) {
  for (const char* sqlstate : {"28000", "28P01", "42501", "3D000", "42704", "22023"}) {
    const StreamEnd end = ConnectFailure(sqlstate, "no", kEndpoint);
    EXPECT_EQ(end.kind, Kind::kOperator) << sqlstate;
    EXPECT_EQ(end.reason, HaltReason::kAuthFailed) << sqlstate;
    EXPECT_EQ(end.sqlstate, sqlstate);
    EXPECT_EQ(end.status.code(), absl::StatusCode::kPermissionDenied);
  }
}

// Failure 5.
TEST(ConnectFailureTest, PassingTroubleIsRetried) {
  for (const char* sqlstate : {"57P03", "53300", "08006", "08P01", "57P01", ""}) {
    EXPECT_EQ(ConnectFailure(sqlstate, "no", kEndpoint).kind, Kind::kLost) << sqlstate;
  }
}

TEST(ConnectFailureTest, HbaRejectionExplainsTheReplicationKeyword) {
  const std::string text = Text(ConnectFailure("28000", "no pg_hba.conf entry", kEndpoint));
  EXPECT_THAT(text, HasSubstr("`replication` does not match logical replication connections"));
  EXPECT_THAT(text, HasSubstr("\"shop\""));
  EXPECT_THAT(text, HasSubstr("\"relay\""));
}

TEST(ConnectFailureTest, OnlyAMissingRightToReplicateGetsItsCommand) {
  const std::string command = "ALTER ROLE \"relay\" REPLICATION";
  for (const char* sqlstate : {"42501", "28000", "28P01", "3D000", "22023"}) {
    const bool advised =
        Text(ConnectFailure(sqlstate, "no", kEndpoint)).find(command) != std::string::npos;
    EXPECT_EQ(advised, std::string(sqlstate) == "42501") << sqlstate;
  }
}

TEST(ConnectFailureTest, MessageIsOneLine) {
  EXPECT_EQ(Text(ConnectFailure("", "rejected\n\tIs the server running?\n", kEndpoint)),
            "connecting to PostgreSQL failed: rejected Is the server running?");
}

// Failure 17.
TEST(PoolerTest, RejectionsAndAnswersThatPostgresDoesNotGiveNameIt) {
  EXPECT_THAT(Text(ConnectFailure("08P01", "unsupported startup parameter", kEndpoint)),
              HasSubstr("connection pooler"));
  const ServerError nonsense{"42601", "syntax error at IDENTIFY_SYSTEM", ""};
  const StreamEnd end = QueryFailure("IDENTIFY_SYSTEM", nonsense, kEndpoint);
  EXPECT_EQ(end.kind, Kind::kOperator);
  EXPECT_EQ(end.reason, HaltReason::kProtocolError);
  EXPECT_THAT(Text(end), HasSubstr("a pooler is between"));
}

TEST(HistoryFailureTest, OnlyAFileThatIsNotThereIsForAnOperator) {
  const auto history = [](const char* sqlstate) {
    return HistoryFailure("TIMELINE_HISTORY 2", ServerError{sqlstate, "text", ""}, kEndpoint);
  };
  EXPECT_EQ(history("58P01").kind, Kind::kOperator);
  EXPECT_EQ(history("58P01").reason, HaltReason::kTimelineChanged);
  for (const char* passing : {"57014", "53000", "53200", "58030", "XX001", ""}) {
    EXPECT_EQ(history(passing).kind, Kind::kLost) << passing;
    EXPECT_EQ(history(passing).sqlstate, passing);
  }
}

TEST(StartFailureTest, EachStateHasItsMeaning) {
  const auto start = [](const char* sqlstate) {
    return StartFailure(ServerError{sqlstate, "text", ""}, "walpost", kEndpoint);
  };
  EXPECT_EQ(start("55006").kind, Kind::kSlotInUse);
  EXPECT_EQ(start("42704").reason, HaltReason::kSlotMissing);
  EXPECT_EQ(start("42501").reason, HaltReason::kAuthFailed);
  EXPECT_EQ(start("XX000").reason, HaltReason::kProtocolError);
  EXPECT_EQ(start("0A000").kind, Kind::kOperator);
  EXPECT_EQ(start("55000").kind, Kind::kLost);
  EXPECT_EQ(start("").kind, Kind::kLost);
}

// Failure 8.
TEST(StreamFailureTest, EachStateHasItsMeaning) {
  const auto stream = [](const char* sqlstate) {
    return StreamFailure(ServerError{sqlstate, "text", "slot, associated LSN 0/A0"}, "walpost",
                         "pub", kEndpoint);
  };
  EXPECT_EQ(stream("57P01").kind, Kind::kLost);
  EXPECT_EQ(stream("55000").kind, Kind::kLost);
  EXPECT_EQ(stream("08006").kind, Kind::kLost);
  EXPECT_EQ(stream("").kind, Kind::kLost);
  for (const char* full : {"53100", "53200", "53300"}) {
    EXPECT_EQ(stream(full).kind, Kind::kLost) << full << ": of disk, memory, connections";
  }
  EXPECT_EQ(stream("42704").kind, Kind::kOperator);
  EXPECT_EQ(stream("42704").reason, HaltReason::kPublicationMissing);
  for (const char* poison : {"22012", "22021", "22P05", "XX000", "58P01"}) {
    const StreamEnd end = stream(poison);
    EXPECT_EQ(end.kind, Kind::kServerError) << poison;
    EXPECT_EQ(end.sqlstate, poison);
    EXPECT_EQ(end.context, "slot, associated LSN 0/A0");
  }
}

// libpq's, in both of its forms.
TEST(StreamFailureTest, RowThatNoMemoryIsLeftForIsNoLostConnection) {
  for (const char* text : {"cannot allocate memory for input buffer", "out of memory"}) {
    EXPECT_EQ(StreamFailure(ServerError{"", text, ""}, "walpost", "pub", kEndpoint).kind,
              Kind::kServerError)
        << text;
  }
}

TEST(VerboseMessageTest, LastSqlstateDecides) {
  EXPECT_EQ(SqlstateInVerboseMessage(
                "connection to server at \"a\", port 1 failed: FATAL:  57P03: the database system "
                "is starting up\nLOCATION:  ProcessStartupPacket, postmaster.c:2380\nconnection to "
                "server at \"b\", port 2 failed: FATAL:  28P01: password authentication failed\n"
                "LOCATION:  auth_failed, auth.c:335\n"),
            "28P01");
  EXPECT_EQ(SqlstateInVerboseMessage("failed: Connection refused\n\tIs the server running?"), "");
  EXPECT_EQ(SqlstateInVerboseMessage("FATAL:  no code"), "");
  EXPECT_EQ(SqlstateInVerboseMessage("FATAL:  "), "");
}

TEST(VerboseMessageTest, ServerMessagesAreKnownInAnyLanguage) {
  EXPECT_TRUE(IsServerMessage("failed: ВАЖНО:  роль не существует"));
  EXPECT_FALSE(IsServerMessage("failed: Connection refused"));
}

TEST(SqlStatusTest, CodesFollowTheSqlstate) {
  const auto code = [](const char* sqlstate) {
    return SqlStatus("SQL", ServerError{sqlstate, "text", ""}).code();
  };
  EXPECT_EQ(code(""), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code("57P01"), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code("40P01"), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code("55P03"), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code("28P01"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code("42501"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code("42P01"), absl::StatusCode::kFailedPrecondition);
}

// Failure 30.
TEST(SynchronousStandbyTest, NamesOfEveryForm) {
  EXPECT_TRUE(IsSynchronousStandby("walpost", "walpost"));
  EXPECT_TRUE(IsSynchronousStandby("a, WalPost", "walpost"));
  EXPECT_TRUE(IsSynchronousStandby("FIRST 2 (a, \"walpost\", b)", "walpost"));
  EXPECT_TRUE(IsSynchronousStandby("ANY 1 (*)", "walpost"));
  EXPECT_TRUE(IsSynchronousStandby("\"x(y\", \"walpost\"", "walpost"));
  EXPECT_TRUE(IsSynchronousStandby("2 (\"x)y\", walpost)", "walpost"));
  EXPECT_TRUE(IsSynchronousStandby("\"a\"\"b\"", "a\"b"));
  EXPECT_TRUE(IsSynchronousStandby("2 (a, \"with, comma\")", "with, comma"));
  EXPECT_FALSE(IsSynchronousStandby("", "walpost"));
  EXPECT_FALSE(IsSynchronousStandby("FIRST 2 (a, b)", "walpost"));
  EXPECT_FALSE(IsSynchronousStandby("FIRST 1 (walpost2)", "first"));
  EXPECT_FALSE(IsSynchronousStandby("a", ""));
}

}  // namespace
}  // namespace walpost::postgres
