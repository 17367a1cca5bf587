// Servers older and newer than walpost knows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <variant>

#include "postgres/preflight_steps.h"
#include "scripted_backend.h"

namespace walpost::postgres {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ServerVersionTest : public ::testing::Test {
 protected:
  std::optional<StreamEnd> Judge(const char* version) {
    ScriptedBackend backend(version);
    auto opened = Connection::Open(ConnectionOptions{backend.Conninfo(), "walpost", true});
    ConnectOptions options;
    PreflightRun run(&std::get<Connection>(opened), options,
                     std::chrono::steady_clock::now() + std::chrono::seconds(10), &report_);
    return run.ServerVersion();
  }

  PreflightReport report_;
};

// Failure 18.
TEST_F(ServerVersionTest, OlderThan13IsRefused) {
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

}  // namespace
}  // namespace walpost::postgres
