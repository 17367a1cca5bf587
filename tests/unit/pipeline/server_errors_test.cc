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
  // A stream that begins at `start`.
  void Connect(Lsn start) {
    const bool text = errors_.text_until().valid() && start <= errors_.text_until();
    forms_ += text ? 't' : 'b';
    errors_.OnConnected(text);
  }

  // A connection that ends so. How often that counts.
  int End(const std::string& error, Lsn reading, Lsn confirmable, bool no_binary_form = false) {
    base::StreamEnd end;
    end.kind = base::StreamEnd::Kind::kServerError;
    end.no_binary_form = no_binary_form;
    return errors_.OnError(end, error + reading.ToString(), reading, confirmable);
  }

  int ConnectAndEnd(const std::string& error, Lsn reading, Lsn confirmable) {
    Connect(kNothing);
    return End(error, reading, confirmable);
  }

  int EndOfNoForm() {
    Connect(kNothing);
    return End("no form", kNoForm, kNothing, true);
  }

  ServerErrors errors_;
  std::string forms_;  // of each connection
};

TEST_F(ServerErrorsTest, SameErrorAtTheSamePositionCounts) {
  EXPECT_EQ(ConnectAndEnd("a", kBehind, kNothing), 1);
  EXPECT_EQ(ConnectAndEnd("a", kBehind, kNothing), 2);
  EXPECT_EQ(ConnectAndEnd("b", kBehind, kNothing), 1);
  EXPECT_EQ(ConnectAndEnd("b", kNoForm, kNothing), 1);
  EXPECT_EQ(forms_, "bbbb");
}

TEST_F(ServerErrorsTest, TypeWithoutABinaryFormIsReadAsTextAndCountsWhenThatFailsToo) {
  EXPECT_EQ(EndOfNoForm(), 0);
  for (int i = 1; i <= ServerErrors::kSameErrorMax; ++i) {
    Connect(kNothing);
    EXPECT_EQ(End("no form", kNoForm, kNothing, true), i);
  }
  EXPECT_EQ(forms_, "bttt");
}

TEST_F(ServerErrorsTest, StreamThatBeginsBehindItIsBinaryAgain) {
  EXPECT_EQ(EndOfNoForm(), 0);
  Connect(kNoForm);
  Connect(Lsn(kNoForm.value() + 1));
  Connect(kNothing);
  EXPECT_EQ(forms_, "btbb");
}

// As at each restart of a server that has nothing else to send.
TEST_F(ServerErrorsTest, TypeWithoutABinaryFormThatComesAgainIsReadAsTextAgain) {
  for (int restarts = 0; restarts < 5; ++restarts) {
    EXPECT_EQ(EndOfNoForm(), 0);
    Connect(kNothing);
    Connect(kBehind);
  }
  EXPECT_EQ(forms_, "btbbtbbtbbtbbtb");
}

// Text cannot bring it, binary cannot get there: Kafka is away.
TEST_F(ServerErrorsTest, ErrorBehindItDoesNotCountWhileItMayNotBeConfirmed) {
  EXPECT_EQ(EndOfNoForm(), 0);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(ConnectAndEnd("too long", kBehind, kNothing), 0);
  }
  Connect(kBehind);
  EXPECT_EQ(End("division by zero", kBehind, kBehind), 1) << "binary is poison, too";
  EXPECT_EQ(forms_, "btttttb");
}

// The server sends both at once, and does not read between them that the first is confirmed.
TEST_F(ServerErrorsTest, ErrorBehindItCountsWhenItMayBeConfirmed) {
  EXPECT_EQ(EndOfNoForm(), 0);
  EXPECT_EQ(ConnectAndEnd("too long", kBehind, kBehind), 1);
  errors_.OnConfirmed(Lsn(kNoForm.value() + 8));
  EXPECT_EQ(ConnectAndEnd("too long", kBehind, kBehind), 2);
  EXPECT_EQ(forms_, "btt");
}

TEST_F(ServerErrorsTest, ErrorBeforeWhatIsConfirmedIsForgotten) {
  EXPECT_EQ(ConnectAndEnd("a", kNoForm, kNothing), 1);
  errors_.OnConfirmed(kNoForm);
  EXPECT_EQ(ConnectAndEnd("a", kNoForm, kNothing), 2) << "it comes again";
  errors_.OnConfirmed(Lsn(kNoForm.value() + 8));
  EXPECT_EQ(ConnectAndEnd("a", kNoForm, kNothing), 1);
}

}  // namespace
}  // namespace walpost::pipeline
