#include "postgres/conninfo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <variant>

#include "absl/strings/str_format.h"
#include "postgres/connection.h"
#include "postgres/sql_connection.h"

namespace walpost::postgres {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Sets an environment variable for one test.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }

  ~Environment() { unsetenv(name_); }

 private:
  const char* const name_;
};

TEST(RedactConninfoTest, PasswordInKeyValueIsHidden) {
  const std::string shown = RedactConninfo("host=db user=u password='se cret' dbname=shop");
  EXPECT_THAT(shown, Not(HasSubstr("se cret")));
  EXPECT_THAT(shown, HasSubstr("password=***"));
  EXPECT_THAT(shown, HasSubstr("host=db"));
  EXPECT_THAT(shown, HasSubstr("dbname=shop"));
}

TEST(RedactConninfoTest, PasswordInUriIsHidden) {
  const std::string shown = RedactConninfo("postgresql://u:s3cret@h1:1,h2:2/shop?sslmode=require");
  EXPECT_THAT(shown, Not(HasSubstr("s3cret")));
  EXPECT_THAT(shown, HasSubstr("host=h1,h2"));
  EXPECT_THAT(shown, HasSubstr("port=1,2"));
  EXPECT_THAT(shown, HasSubstr("sslmode=require"));
}

TEST(RedactConninfoTest, PercentEncodedPasswordAndQueryPasswordAreHidden) {
  EXPECT_THAT(RedactConninfo("postgres://u:a%40b@h/d"), Not(HasSubstr("a@b")));
  EXPECT_THAT(RedactConninfo("postgres://u@h/d?password=zzz&sslpassword=yyy"),
              AllOf(Not(HasSubstr("zzz")), Not(HasSubstr("yyy")), HasSubstr("sslpassword=***")));
}

TEST(RedactConninfoTest, UnparsableConninfoShowsNothing) {
  EXPECT_EQ(RedactConninfo("postgresql://u:s3cret@[h"), "(unreadable conninfo, not shown)");
  EXPECT_EQ(RedactConninfo("password=one two"), "(unreadable conninfo, not shown)");
}

// libpq takes what follows the first '@' for a host, and shows it.
TEST(ResolveConninfoTest, PasswordThatReachesIntoTheHostIsRejectedAndNotShown) {
  const auto rejected = ResolveConninfo("postgresql://u:one@two@db:5432/shop");
  ASSERT_FALSE(rejected.ok());
  EXPECT_THAT(std::string(rejected.status().message()),
              AllOf(HasSubstr("%40"), Not(HasSubstr("two"))));
  EXPECT_TRUE(ResolveConninfo("host=@abstract,/run/a@b,db dbname=shop").ok());
}

// libpq takes it for a part of the value, and so does the server: their messages show it.
TEST(ConninfoTest, PasswordThatStandsInAnotherValueIsRejectedAndNotShown) {
  for (const char* conninfo :
       {"postgresql://u:one@hunter2@h/db", "host=h;password=hunter2 dbname=a",
        "host=h,password=hunter2 dbname=a", "hostaddr=127.0.0.1;password=hunter2",
        "host=/run,x;pwd=hunter2", "host=h dbname=a;password=hunter2", "user=u,password=hunter2;x",
        "host=/run;password=hunter2", "host=h port=5432;password=hunter2",
        "user=u:hunter2@h dbname=a"}) {
    EXPECT_THAT(RedactConninfo(conninfo), AllOf(HasSubstr("***"), Not(HasSubstr("hunter2"))));
    const auto resolved = ResolveConninfo(conninfo);
    ASSERT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument) << conninfo;
    EXPECT_THAT(std::string(resolved.status().message()), Not(HasSubstr("hunter2")));
  }
  EXPECT_TRUE(ResolveConninfo("user=app@server password='a;password=b' dbname=a:b").ok());
}

TEST(MaskQuotedTest, QuotesInsideOfWhatIsQuotedAreNoEndOfIt) {
  EXPECT_EQ(MaskQuoted("no quotes"), "no quotes");
  EXPECT_EQ(MaskQuoted("invalid option \"a\" here"), "invalid option \"***\" here");
  EXPECT_EQ(MaskQuoted("invalid option \"a\"hunter2\"b\" here"), "invalid option \"***\" here");
  EXPECT_EQ(MaskQuoted("unfinished \"hunter2"), "unfinished \"***");
}

TEST(RedactConninfoTest, SettingThatMayHoldASecretIsHiddenInsideOfAValue) {
  EXPECT_EQ(RedactConninfo("host=h options='-c geqo=off -c app.password=hunter2 -c jit=off'"),
            "host=h options='-c geqo=off -c app.password=*** -c jit=off'");
  EXPECT_EQ(RedactConninfo("postgresql://h/db?options=--app.token%3Dhunter2%5C%20x%20-cjit%3Doff"),
            "dbname=db host=h options='--app.token=*** -cjit=off'");
}

TEST(RedactConninfoTest, PlainDatabaseNameIsShown) { EXPECT_EQ(RedactConninfo("shop"), "shop"); }

TEST(RedactConninfoTest, ValueWithSpaceStaysOneValue) {
  EXPECT_EQ(RedactConninfo("host=db options='-c geqo=off'"), "host=db options='-c geqo=off'");
  EXPECT_EQ(RedactConninfo("host=db dbname='a\fb'"), "dbname='a\fb' host=db");
}

TEST(ResolveConninfoTest, StringWinsOverEnvironment) {
  const Environment application("PGAPPNAME", "from_environment");
  const Environment options("PGOPTIONS", "-c geqo=off");
  const auto settings = ResolveConninfo("host=db application_name=mine");
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(Setting(*settings, "application_name"), "mine");
  EXPECT_EQ(Setting(*settings, "options"), "-c geqo=off");
  EXPECT_EQ(Setting(*settings, "connect_timeout"), "");
}

TEST(ResolveConninfoTest, ServiceFileIsRead) {
  const std::string path = ::testing::TempDir() + "/walpost-service-" + std::to_string(getpid());
  std::ofstream(path) << "[outbox]\nhost=h9\noptions=-c work_mem=1MB\n";
  const Environment file("PGSERVICEFILE", path);
  const auto settings = ResolveConninfo("service=outbox");
  unlink(path.c_str());
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(Setting(*settings, "host"), "h9");
  EXPECT_EQ(Setting(*settings, "options"), "-c work_mem=1MB");
}

TEST(ResolveConninfoTest, MalformedStringIsInvalidWithoutItsPieces) {
  const auto settings = ResolveConninfo("password=one hunter2");
  EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(settings.status().message()),
              AllOf(HasSubstr("conninfo is malformed"), Not(HasSubstr("hunter2"))));
}

// It may have come from a file of secrets.
TEST(ResolveConninfoTest, ValueThatLibpqRejectsIsNotShown) {
  for (const char* keyword : {"sslmode", "channel_binding", "target_session_attrs", "gssencmode"}) {
    const auto settings = ResolveConninfo(std::string(keyword) + "=hunter2");
    ASSERT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument) << keyword;
    EXPECT_THAT(std::string(settings.status().message()),
                AllOf(HasSubstr(keyword), Not(HasSubstr("hunter2"))));
  }
}

TEST(ResolveConninfoTest, UnknownServiceIsInvalid) {
  const auto settings = ResolveConninfo("service=nowhere_to_be_found");
  EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SessionOptionsTest, OursComeAfterTheUsers) {
  const std::string options = SessionOptions("-c statement_timeout=5s", /*replication=*/true);
  EXPECT_LT(options.find("statement_timeout=5s"), options.rfind("statement_timeout=0"));
  for (const char* setting :
       {"datestyle=ISO", "intervalstyle=postgres", "extra_float_digits=3", "bytea_output=hex",
        "timezone=UTC", "lock_timeout=0", "idle_in_transaction_session_timeout=0",
        "client_min_messages=warning"}) {
    EXPECT_THAT(options, HasSubstr(setting));
  }
}

// Operators and functions of who may create some in another schema must not run in our sessions.
TEST(SessionOptionsTest, EverySessionLooksInThePgCatalogFirst) {
  for (const bool replication : {false, true}) {
    const std::string options = SessionOptions("-c search_path=public", replication);
    EXPECT_GT(options.find("search_path=pg_catalog,pg_temp"), options.find("search_path=public"));
  }
}

// Rows that are hidden must not be taken for none.
TEST(SessionOptionsTest, HiddenRowsAreAnErrorInEverySession) {
  for (const bool replication : {false, true}) {
    const std::string options = SessionOptions("-c row_security=on", replication);
    EXPECT_GT(options.find("row_security=off"), options.find("row_security=on"));
    EXPECT_NE(options.find("row_security=off"), std::string::npos);
  }
}

TEST(SessionOptionsTest, OrdinaryConnectionKeepsTheUsersTimeoutsButNotTheRoles) {
  const std::string options = SessionOptions("-c statement_timeout=5s", /*replication=*/false);
  EXPECT_LT(options.find("statement_timeout=0"), options.find("statement_timeout=5s"));
}

TEST(ConnectTimeoutTest, AnAttemptAlwaysEnds) {
  constexpr std::chrono::seconds kMinute{60};
  EXPECT_EQ(ConnectTimeout("", kMinute), "10");
  EXPECT_EQ(ConnectTimeout("2", kMinute), "2");
  EXPECT_EQ(ConnectTimeout("0", kMinute), "60");
  EXPECT_EQ(ConnectTimeout("-1", kMinute), "60");
  EXPECT_EQ(ConnectTimeout("86400", kMinute), "60");
  EXPECT_EQ(ConnectTimeout("soon", kMinute), "soon") << "libpq says what is wrong with it";
  constexpr std::chrono::seconds kShort{2};
  EXPECT_EQ(ConnectTimeout("", kShort), "2");
  EXPECT_EQ(ConnectTimeout("0", kShort), "2");
  EXPECT_EQ(ConnectTimeout("60", kShort), "2");
}

TEST(ConninfoTest, ValueThatIsNoNumberIsNotShown) {
  for (const char* option : {"keepalives_idle", "keepalives_interval", "keepalives_count",
                             "tcp_user_timeout", "keepalives", "connect_timeout", "port"}) {
    ConnectionOptions options;
    options.conninfo =
        absl::StrFormat("host=127.0.0.1,127.0.0.1 user=u dbname=d %s=hunter2,hunter2", option);
    const auto opened = Connection::Open(options);
    ASSERT_TRUE(std::holds_alternative<base::StreamEnd>(opened)) << option;
    const std::string shown(std::get<base::StreamEnd>(opened).status.message());
    EXPECT_EQ(shown.find("hunter2"), std::string::npos) << shown;
    EXPECT_NE(shown.find(option), std::string::npos) << shown;
  }
}

// libpq reads these as a port or as the name of a database, which are shown.
TEST(ConninfoTest, PasswordOfAUriThatLibpqReadsOtherwiseIsNotShown) {
  for (const char* conninfo :
       {"postgresql://u:hunter2/x@h/db", "postgres://u:hunter2/@h", "postgres:u:hunter2@h",
        "u:hunter2@h/db", "postgresql://u:hunter2/db", "htps://u:hunter2@h/db"}) {
    EXPECT_EQ(RedactConninfo(conninfo).find("hunter2"), std::string::npos) << conninfo;
    const auto resolved = ResolveConninfo(conninfo);
    ASSERT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument) << conninfo;
    EXPECT_EQ(std::string(resolved.status().message()).find("hunter2"), std::string::npos);
  }
  EXPECT_EQ(RedactConninfo("shop"), "shop");
  EXPECT_NE(RedactConninfo("postgresql:///db?host=@abstract").find("host=@abstract"),
            std::string::npos);
}

using ::testing::AllOf;

std::string Why(const std::string& conninfo) {
  const auto settings = ResolveConninfo(conninfo);
  EXPECT_TRUE(settings.ok()) << settings.status();
  return settings.ok() ? WhyMayBeClearText(*settings) : "";
}

TEST(EncryptionTest, DefaultOfLibpqGoesOnInClearText) {
  EXPECT_THAT(Why("host=db1 dbname=shop"), AllOf(HasSubstr("sslmode is prefer"), HasSubstr("db1")));
  EXPECT_THAT(Why("postgresql://db1/shop?sslmode=allow"), HasSubstr("sslmode is allow"));
  EXPECT_THAT(Why("host=db1 sslmode=disable"), HasSubstr("sslmode is disable"));
}

TEST(EncryptionTest, ModesThatInsistAreEnough) {
  for (const char* mode :
       {"sslmode=require", "sslmode=verify-ca", "sslmode=verify-full", "gssencmode=require"}) {
    EXPECT_EQ(Why(std::string("host=db1 ") + mode), "") << mode;
  }
}

TEST(EncryptionTest, SocketsAndLoopbackStayOnThisMachine) {
  for (const char* conninfo : {"dbname=shop", "host=/run/postgresql", "host=@abstract",
                               "host=localhost", "host=127.0.0.1", "hostaddr=::1"}) {
    EXPECT_EQ(Why(conninfo), "") << conninfo;
  }
}

TEST(EncryptionTest, OneHostOfSeveralIsEnough) {
  EXPECT_THAT(Why("host=localhost,db2"), HasSubstr("db2"));
  EXPECT_THAT(Why("host=/run/postgresql,db2,db3"), HasSubstr("db2"));
}

TEST(EncryptionTest, AddressCountsAndNotTheNameThatGoesWithIt) {
  EXPECT_THAT(Why("host=localhost hostaddr=192.0.2.7"), HasSubstr("192.0.2.7"));
  EXPECT_EQ(Why("host=db1 hostaddr=127.0.0.1"), "");
  EXPECT_THAT(Why("host=localhost,db2 hostaddr=127.0.0.1,"), HasSubstr("db2"));
}

}  // namespace
}  // namespace walpost::postgres
