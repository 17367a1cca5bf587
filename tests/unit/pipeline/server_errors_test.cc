#include "pipeline/server_errors.h"

#include <gtest/gtest.h>

#include <string>

namespace walpost::pipeline {
namespace {

using base::Lsn;

constexpr Lsn kNoForm(100);  // commits before kBehind
constexpr Lsn kBehind(200);
constexpr Lsn kNothing;

class ServerErrorsTest : public ::testing::Test {
 protected:
  // A new connection ends so. Of those that count, how many.
  int End(const std::string& error, Lsn reading, Lsn safe, bool no_binary_form = false) {
    base::StreamEnd end;
    end.kind = base::StreamEnd::Kind::kServerError;
    end.no_binary_form = no_binary_form;
    forms_ += errors_.TakeTextWanted() ? 't' : 'b';
    return errors_.OnError(end, error + reading.ToString(), reading, safe);
  }

  int EndOfNoForm(Lsn at = kNoForm) { return End("no form", at, kNothing, true); }

  ServerErrors errors_;
  std::string forms_;  // of each connection
};

TEST_F(ServerErrorsTest, SameErrorAtTheSamePositionCounts) {
  EXPECT_EQ(End("a", kBehind, kNothing), 1);
  EXPECT_EQ(End("a", kBehind, kNothing), 2);
  EXPECT_EQ(End("b", kBehind, kNothing), 1);
  EXPECT_EQ(End("b", kNoForm, kNothing), 1);
  EXPECT_EQ(forms_, "bbbb");
}

TEST_F(ServerErrorsTest, TypeWithoutABinaryFormIsReadAsTextAndCountsWhenThatFailsToo) {
  EXPECT_EQ(EndOfNoForm(), 0);
  for (int i = 1; i <= ServerErrors::kSameErrorMax; ++i) {
    EXPECT_EQ(End("no form", kNoForm, kNothing, true), i);
  }
  EXPECT_EQ(forms_, "bttt");
}

// As at each restart of a server that has nothing else to send.
TEST_F(ServerErrorsTest, TypeWithoutABinaryFormThatComesAgainIsReadAsTextAgain) {
  for (int restarts = 0; restarts < 5; ++restarts) {
    EXPECT_EQ(EndOfNoForm(), 0);
    EXPECT_TRUE(errors_.TakeTextWanted());
    errors_.OnConfirmed(Lsn(kNoForm.value() + 8));
  }
  EXPECT_EQ(forms_, "bbbbb");
}

// Text cannot bring it, binary cannot get there: Kafka is away.
TEST_F(ServerErrorsTest, ErrorBehindItDoesNotCountWhileItIsNotDelivered) {
  EXPECT_EQ(EndOfNoForm(), 0);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(End("too long", kBehind, kNothing), 0);
  }
  errors_.OnConfirmed(Lsn(kNoForm.value() + 8));  // by the last of these connections
  EXPECT_EQ(End("division by zero", kBehind, kBehind), 1) << "binary is poison, too";
  EXPECT_EQ(forms_, "btttttb");
}

// The server sends both at once, so nothing can be confirmed between them.
TEST_F(ServerErrorsTest, ErrorBehindItCountsWhenItIsDeliveredThoughNotConfirmed) {
  EXPECT_EQ(EndOfNoForm(), 0);
  EXPECT_EQ(End("too long", kBehind, kBehind), 1);
  EXPECT_EQ(End("too long", kBehind, kBehind), 2);
}

TEST_F(ServerErrorsTest, TextThatFailsAfterTheConfirmIsFollowedByBinary) {
  EXPECT_EQ(EndOfNoForm(), 0);
  EXPECT_TRUE(errors_.TakeTextWanted());
  errors_.OnConfirmed(Lsn(kNoForm.value() + 8));
  base::StreamEnd end;
  end.kind = base::StreamEnd::Kind::kServerError;
  EXPECT_EQ(errors_.OnError(end, "too long", kBehind, kBehind), 0);
  EXPECT_FALSE(errors_.TakeTextWanted());
}

TEST_F(ServerErrorsTest, ErrorBeforeWhatIsConfirmedIsForgotten) {
  EXPECT_EQ(End("a", kNoForm, kNothing), 1);
  errors_.OnConfirmed(kNoForm);
  EXPECT_EQ(End("a", kNoForm, kNothing), 2) << "it comes again";
  errors_.OnConfirmed(Lsn(kNoForm.value() + 8));
  EXPECT_EQ(End("a", kNoForm, kNothing), 1);
}

}  // namespace
}  // namespace walpost::pipeline
