#include "pipeline/known_transactions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace walpost::pipeline {
namespace {

using base::CommittedTransaction;
using base::Lsn;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CommittedTransaction At(std::uint64_t commit_lsn, std::uint32_t xid = 700, int second = 1) {
  return {Lsn(commit_lsn), base::Xid{xid}, base::WallTime(std::chrono::seconds(second))};
}

class KnownTransactionsTest : public ::testing::Test {
 protected:
  // Taken whole: 100 and 200. Of 300 only up to ordinal 4.
  KnownTransactionsTest() {
    for (const std::uint64_t lsn : {100, 200}) {
      EXPECT_FALSE(known_.OnBegin(At(lsn)));
      EXPECT_EQ(known_.taken_through().ordinal, KnownTransactions::kNothing);
      known_.TakenFirst(At(lsn), /*has_origin=*/false, {0, Lsn(lsn - 9)});
      known_.OnCommit(Lsn(lsn), Lsn(lsn + 8));
    }
    known_.TakenFirst(At(300), /*has_origin=*/false, {2, Lsn(280)});
    known_.TakenNext({4, Lsn(290)});
  }

  void ExpectOther(const std::optional<Halt>& halt, const std::string& detail) {
    ASSERT_TRUE(halt);
    EXPECT_EQ(halt->reason, base::HaltReason::kTimelineChanged);
    EXPECT_THAT(halt->detail, HasSubstr(detail));
  }

  // Takes a transaction with an origin at `lsn` whole.
  void TakeWithOrigin(std::uint64_t lsn) {
    EXPECT_FALSE(known_.OnBegin(At(lsn)));
    known_.TakenFirst(At(lsn), /*has_origin=*/true, {0, Lsn(lsn - 9)});
    known_.OnCommit(Lsn(lsn), Lsn(lsn + 8));
  }

  KnownTransactions known_;
};

TEST_F(KnownTransactionsTest, SameTransactionsAgainAreKnown) {
  EXPECT_EQ(known_.TakeStart(), Lsn(100));
  known_.Expect(Lsn(100));
  EXPECT_FALSE(known_.verified());
  EXPECT_FALSE(known_.OnPosition(Lsn(100)));
  EXPECT_FALSE(known_.OnBegin(At(100)));
  EXPECT_EQ(known_.taken_through().ordinal, KnownTransactions::kWhole);
  EXPECT_FALSE(known_.OnPosition(Lsn(200)));
  EXPECT_FALSE(known_.OnBegin(At(150))) << "may come, as long as it holds nothing of ours";
  EXPECT_EQ(known_.taken_through().ordinal, KnownTransactions::kNothing);
  EXPECT_FALSE(known_.OnBegin(At(200)));
  EXPECT_FALSE(known_.OnBegin(At(300)));
  EXPECT_EQ(known_.taken_through().ordinal, 4) << "it was cut";
  EXPECT_EQ(known_.taken_through().lsn, Lsn(290));
  EXPECT_TRUE(known_.verified());
  EXPECT_FALSE(known_.OnBegin(At(400)));
  EXPECT_FALSE(known_.OnPosition(Lsn(500)));
}

TEST_F(KnownTransactionsTest, AnotherTransactionInItsPlaceIsAnotherHistory) {
  for (const CommittedTransaction& other :
       {At(100, 701), At(100, 700, 2), At(101), At(200), At(1'000)}) {
    known_.Expect(Lsn(100));
    ExpectOther(known_.OnBegin(other), "transaction 700, committed at 0/64 on 1970-01-01T00:00:01");
  }
}

TEST_F(KnownTransactionsTest, PositionPastATransactionThatDidNotComeIsAnotherHistory) {
  known_.Expect(Lsn(100));
  ExpectOther(known_.OnPosition(Lsn(101)), "it comes to 0/65 without it");
  EXPECT_FALSE(known_.OnBegin(At(100)));
  ExpectOther(known_.OnPosition(Lsn(201)), "committed at 0/C8");
}

TEST_F(KnownTransactionsTest, WhatTheServerDoesNotSendIsNotExpected) {
  known_.Expect(Lsn(201));
  EXPECT_FALSE(known_.OnPosition(Lsn(300)));
  EXPECT_FALSE(known_.OnBegin(At(300)));
  known_.Expect(Lsn(301));
  EXPECT_TRUE(known_.verified());
}

TEST_F(KnownTransactionsTest, LastDeliveredOneIsKept) {
  EXPECT_THAT(known_.LastBefore(Lsn(107)), IsEmpty());
  EXPECT_THAT(known_.LastBefore(Lsn(108)), ElementsAre(At(100)));
  EXPECT_THAT(known_.LastBefore(Lsn(1'000)), ElementsAre(At(200))) << "300 is not whole";
  known_.Settle(Lsn(107));
  known_.Settle(Lsn(207));
  EXPECT_EQ(known_.TakeStart(), Lsn(100));
  known_.Settle(Lsn(1'000));
  EXPECT_EQ(known_.TakeStart(), Lsn(100)) << "asked for, so it has to come";
  known_.Expect(Lsn(100));
  EXPECT_FALSE(known_.OnBegin(At(100)));
  known_.Settle(Lsn(1'000));
  EXPECT_EQ(known_.TakeStart(), Lsn(200));
  EXPECT_EQ(known_.newest(), Lsn(300));
}

// Their times are their origins', and come again.
TEST_F(KnownTransactionsTest, ThoseWithAnOriginAreKeptBehindTheLastOneWithout) {
  known_.OnCommit(Lsn(300), Lsn(308));
  TakeWithOrigin(400);
  TakeWithOrigin(500);
  EXPECT_THAT(known_.LastBefore(Lsn(408)), ElementsAre(At(300), At(400)));
  known_.Settle(Lsn(1'000));
  EXPECT_THAT(known_.LastBefore(Lsn(508)), ElementsAre(At(300), At(400), At(500)));
  EXPECT_EQ(known_.TakeStart(), Lsn(300));
  known_.Expect(Lsn(300));
  ExpectOther(known_.OnBegin(At(400)), "transaction 700, committed at 0/12C");
  EXPECT_FALSE(known_.OnBegin(At(300)));
  EXPECT_FALSE(known_.OnBegin(At(400)));
  EXPECT_FALSE(known_.OnBegin(At(500)));
  EXPECT_TRUE(known_.verified());
  known_.TakenFirst(At(600), /*has_origin=*/false, {0, Lsn(591)});
  known_.OnCommit(Lsn(600), Lsn(608));
  EXPECT_THAT(known_.LastBefore(Lsn(608)), ElementsAre(At(600)));
  known_.Settle(Lsn(608));
  EXPECT_EQ(known_.TakeStart(), Lsn(600));
}

TEST_F(KnownTransactionsTest, OfThoseWithAnOriginOnlySoManyAreKept) {
  known_.OnCommit(Lsn(300), Lsn(308));
  const std::uint64_t last = 300 + 10 * base::Progress::kLastTransactionsMax;
  for (std::uint64_t lsn = 310; lsn <= last; lsn += 10) {
    TakeWithOrigin(lsn);
    known_.Settle(Lsn(lsn + 8));
  }
  EXPECT_EQ(known_.LastBefore(Lsn(last + 8)).size(), base::Progress::kLastTransactionsMax);
  EXPECT_EQ(known_.LastBefore(Lsn(last + 8)).front(), At(310));
  EXPECT_EQ(known_.LastBefore(Lsn(last - 2)).front(), At(310)) << "300 is forgotten";
  EXPECT_EQ(known_.retained_bytes(), 0U) << "they are kept in any case";
  TakeWithOrigin(last + 10);
  EXPECT_GT(known_.retained_bytes(), 0U);
  EXPECT_EQ(known_.TakeStart(), Lsn(310));
}

TEST_F(KnownTransactionsTest, RememberedOnesWithAnOriginMustComeAgainToo) {
  known_.Forget();
  known_.Remember({At(100), At(200)}, Lsn(500));
  known_.Settle(Lsn(500));
  EXPECT_EQ(known_.TakeStart(), Lsn(100));
  known_.Expect(Lsn(100));
  EXPECT_FALSE(known_.OnBegin(At(100)));
  EXPECT_FALSE(known_.verified());
  known_.Settle(Lsn(500));
  EXPECT_EQ(known_.TakeStart(), Lsn(100)) << "the second one has an origin";
}

TEST_F(KnownTransactionsTest, RememberedOneIsKnownWhole) {
  known_.Forget();
  EXPECT_EQ(known_.TakeStart(), Lsn());
  known_.Remember({At(100)}, Lsn(500));
  known_.Expect(Lsn(90));
  EXPECT_THAT(known_.LastBefore(Lsn(500)), ElementsAre(At(100)));
  EXPECT_FALSE(known_.OnBegin(At(100)));
  EXPECT_EQ(known_.taken_through().ordinal, KnownTransactions::kWhole);
}

}  // namespace
}  // namespace walpost::pipeline
