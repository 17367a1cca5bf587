// Servers older and newer than walpost knows.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <variant>

#include "postgres/preflight.h"
#include "scripted_backend.h"

namespace walpost::postgres {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ServerVersionTest : public ::testing::Test {
 protected:
  std::optional<StreamEnd> Judge(const char* version, const ConnectOptions& options = {}) {
    ScriptedBackend backend(version);
    auto opened = Connection::Open(ConnectionOptions{backend.Conninfo(), "walpost", true});
    PreflightRun run(&std::get<Connection>(opened), options,
                     std::chrono::steady_clock::now() + std::chrono::seconds(10), &report_);
    return run.ServerVersion();
  }

  PreflightReport report_;
};

// Failure 18.
TEST_F(ServerVersionTest, OlderThan13IsRejected) {
  const std::optional<StreamEnd> end = Judge("12.22");
  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, StreamEnd::Kind::kOperator);
  EXPECT_EQ(end->reason, base::HaltReason::kSchemaMismatch);
  EXPECT_THAT(std::string(end->status.message()), HasSubstr("PostgreSQL 12"));
  EXPECT_FALSE(Judge("13.0"));
  EXPECT_THAT(report_.warnings, IsEmpty());
}

// Failure 18.
TEST_F(ServerVersionTest, NewerThanKnownIsAWarning) {
  Judge("99.0");
  EXPECT_THAT(report_.warnings, Contains(HasSubstr("PostgreSQL 99")));
}

// Failure 56.
TEST_F(ServerVersionTest, MessagesNeed14) {
  ConnectOptions options;
  options.message_prefixes = {"shop"};
  const std::optional<StreamEnd> end = Judge("13.22", options);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->reason, base::HaltReason::kSchemaMismatch);
  EXPECT_THAT(std::string(end->status.message()),
              HasSubstr("logical messages (messages.prefixes) need PostgreSQL 14 or newer"));
}

}  // namespace
}  // namespace walpost::postgres
