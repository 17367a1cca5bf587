#include "operations/outcome.h"

#include <gtest/gtest.h>

namespace walpost::operations {
namespace {

TEST(OutcomeTest, ExitCodesAreThoseOfSysexits) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  // May work later.
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), 69);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), 69);
  // Not known yet.
  EXPECT_EQ(ExitCodeOf(absl::AbortedError("")), 75);
  // Rights.
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("")), 77);
  EXPECT_EQ(ExitCodeOf(absl::UnauthenticatedError("")), 77);
  // Our bugs.
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), 70);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("")), 70);
  // For an operator to set right.
  EXPECT_EQ(ExitCodeOf(absl::FailedPreconditionError("")), 78);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), 78);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), 78);
  EXPECT_EQ(ExitCodeOf(absl::AlreadyExistsError("")), 78);
}

TEST(OutcomeTest, FailureIsItsMessageOnStderrAlone) {
  const Outcome outcome = Failed(absl::UnavailableError("what: cause"));
  EXPECT_EQ(outcome.exit_code, 69);
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(outcome.error, "what: cause");
}

TEST(OutcomeTest, RowsWhoseTopicsTakeNothingAreMissing) {
  EXPECT_EQ(Done(0).exit_code, 0);
  EXPECT_EQ(Done(0).error, "");
  EXPECT_EQ(Done(20).exit_code, 65);
  EXPECT_NE(Done(20).error.find("20"), std::string::npos);
}

TEST(OutcomeTest, TextIsShownWithoutWhatATerminalObeysAndDataAsItIs) {
  Outcome outcome{0, "a\x1b\nb\n", "c\x9b"};
  EXPECT_EQ(outcome.Output(), "a\\x1b\nb\n");
  EXPECT_EQ(outcome.Error(), "c\\x9b");
  outcome.as_it_is = true;
  EXPECT_EQ(outcome.Output(), "a\x1b\nb\n");
}

}  // namespace
}  // namespace walpost::operations
