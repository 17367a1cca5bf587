// A table that is announced may have been edited: nothing goes on until the catalogs were read
// again.
#include <string>

#include "pipeline_fixture.h"
#include "support/pgoutput_bytes.h"

namespace walpost::pipeline {
namespace {

using base::HaltReason;
using base::Lsn;
using base::StreamEnd;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using walpost::testing::FakeSink;
using walpost::testing::InsertBytes;
using walpost::testing::RelationBytes;
using walpost::testing::TextColumn;

class LookTest : public PipelineFixture {
 protected:
  LookTest() {
    facts_.publication_oid = 500;
    facts_.publication_xmin = 700;
    facts_.tables[0].memberships = {501};
    facts_.tables[0].partitions = {17'001};
    facts_.looked_lsn = Lsn(150);
    facts_.looked_at = now_.wall;
  }

  void Announce() { SendPayload(RelationBytes(EventsRelation())); }

  // Up to the sign.
  std::uint64_t AnnouncedIn(std::uint64_t commit_lsn) {
    SendPayload(Begin(commit_lsn));
    Announce();
    EXPECT_FALSE(pipeline().want_frame());
    const std::optional<std::uint64_t> look = pipeline().TakeLook(now_);
    EXPECT_TRUE(look);
    return look.value_or(0);
  }

  void Looked(std::uint64_t look, std::uint64_t at) {
    facts_.looked_lsn = Lsn(at);
    pipeline().OnLooked(look, facts_, now_);
    Tick();
  }

  void Failed(std::uint64_t look, StreamEnd::Kind kind, HaltReason reason = {}) {
    StreamEnd end;
    end.kind = kind;
    end.reason = reason;
    end.status = absl::UnavailableError("too many connections");
    pipeline().OnLooked(look, end, now_);
    Tick();
  }
};

TEST_F(LookTest, ServerOfAnotherTimelineIsNotTheOneThatIsStreamedFrom) {
  for (const std::uint32_t other : {facts_.timeline + 1, facts_.timeline - 1}) {
    Restart();
    Connect(Lsn(), /*announce=*/false);
    const std::uint64_t look = AnnouncedIn(200);
    base::SourceFacts seen = facts_;
    seen.timeline = other;
    seen.looked_lsn = Lsn(210);
    pipeline().OnLooked(look, seen, now_);
    EXPECT_THAT(pipeline().last_error(), HasSubstr("is not the server that is streamed from"));
  }
}

TEST_F(LookTest, NothingIsTakenOrConfirmedUntilTheCatalogsWereRead) {
  Connect(Lsn(), /*announce=*/false);
  Transaction(120, {});
  const std::uint64_t look = AnnouncedIn(200);
  EXPECT_LT(Confirmed(), Lsn(200));
  EXPECT_FALSE(pipeline().TakeLook(now_)) << "one at a time";
  Looked(look, 210);
  ASSERT_TRUE(pipeline().want_frame());
  Event("a1");
  SendPayload(Commit(200));
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_GT(Confirmed(), Lsn(200));
}

TEST_F(LookTest, PartitionThatIsAnnouncedBehindItsRootNeedsNoLookOfItsOwn) {
  Connect(Lsn(), /*announce=*/false);
  pgoutput::Relation partition = EventsRelation();
  partition.id.oid = 17'001;
  partition.name = "events_1";
  Looked(AnnouncedIn(200), 210);
  SendPayload(RelationBytes(partition));
  Event("a1");
  SendPayload(Commit(200));
  Advance(Looks::kLookEvery);
  EXPECT_FALSE(pipeline().TakeLook(now_));
  EXPECT_TRUE(pipeline().want_frame());
}

TEST_F(LookTest, PartitionThatIsAnnouncedUnderItsOwnNameMayHaveBeenDetached) {
  Connect();
  pgoutput::Relation partition = EventsRelation();
  partition.id.oid = 17'001;
  partition.name = "events_1";
  SendPayload(Begin(200));
  SendPayload(RelationBytes(partition));
  EXPECT_FALSE(pipeline().want_frame());
  facts_.tables[0].partitions.clear();
  const std::optional<std::uint64_t> look = pipeline().TakeLook(now_);
  ASSERT_TRUE(look);
  Looked(*look, 210);
  SendPayload(InsertBytes(partition.id, {TextColumn("x")}));
  SendPayload(Commit(200));
  EXPECT_EQ(pipeline().state(), base::State::kStreaming);
  EXPECT_EQ(pipeline().counters().changes_ignored, 1U);
}

TEST_F(LookTest, WhatCommittedBeforeTheLastLookNeedsNone) {
  Connect(Lsn(), /*announce=*/false);
  SendPayload(Begin(140));
  Announce();
  EXPECT_TRUE(pipeline().want_frame());
  EXPECT_FALSE(pipeline().TakeLook(now_));
  SendPayload(Commit(140));
  Looked(AnnouncedIn(150), 300);
  Announce();  // the rest of what the look has seen
  EXPECT_TRUE(pipeline().want_frame());
}

TEST_F(LookTest, TableThatWasTakenOutAndAddedAgainHaltsAndNamesTheSpan) {
  Connect(Lsn(), /*announce=*/false);
  const std::uint64_t look = AnnouncedIn(200);
  facts_.tables[0].memberships = {502};
  Looked(look, 210);
  ExpectHalted(HaltReason::kPublicationMissing,
               "outbox.events was taken out of the publication and added again, so rows committed "
               "after 0/96 (2023-11-14T22:15:00Z) may be missing");
  EXPECT_LT(confirmed_, Lsn(200));
}

TEST_F(LookTest, TableThatIsPublishedInOneMoreWayGoesOn) {
  Connect(Lsn(), /*announce=*/false);
  const std::uint64_t look = AnnouncedIn(200);
  facts_.tables[0].memberships = {501, 502};
  Looked(look, 210);
  EXPECT_TRUE(pipeline().want_frame());
}

TEST_F(LookTest, PublicationThatWasAlteredHalts) {
  Connect(Lsn(), /*announce=*/false);
  const std::uint64_t look = AnnouncedIn(200);
  ++facts_.publication_xmin;
  Looked(look, 210);
  ExpectHalted(HaltReason::kPublicationMissing, "the publication was altered");
}

TEST_F(LookTest, WhatPreflightRejectsHalts) {
  Connect(Lsn(), /*announce=*/false);
  Failed(AnnouncedIn(200), StreamEnd::Kind::kOperator, HaltReason::kPublicationMissing);
  ExpectHalted(HaltReason::kPublicationMissing, "too many connections");
}

TEST_F(LookTest, LookThatFailsEndsTheStreamAndTheNextConnectionLooks) {
  Connect(Lsn(), /*announce=*/false);
  Failed(AnnouncedIn(200), StreamEnd::Kind::kLost);
  EXPECT_EQ(last_command_, StreamCommand::kClose);
  facts_.looked_lsn = Lsn(210);
  Connect(Lsn(), /*announce=*/false);
  SendPayload(Begin(200));
  Announce();
  EXPECT_TRUE(pipeline().want_frame());
  EXPECT_EQ(pipeline().counters().reconnects, 1U);
}

TEST_F(LookTest, RejectedLoginOfALookIsNoHalt) {
  Connect(Lsn(), /*announce=*/false);
  Failed(AnnouncedIn(200), StreamEnd::Kind::kOperator, HaltReason::kAuthFailed);
  EXPECT_EQ(pipeline().state(), base::State::kReconnecting);
}

TEST_F(LookTest, ServerThatIsBehindTheStreamIsNotBelieved) {
  Connect(Lsn(), /*announce=*/false);
  Looked(AnnouncedIn(200), 200);
  EXPECT_EQ(pipeline().state(), base::State::kReconnecting);
  EXPECT_THAT(pipeline().last_error(), HasSubstr("behind it"));
}

TEST_F(LookTest, AnswerForAnEarlierConnectionIsNotTaken) {
  Connect(Lsn(), /*announce=*/false);
  const std::uint64_t look = AnnouncedIn(200);
  End(StreamEnd::Kind::kLost);
  Connect(Lsn(), /*announce=*/false);
  Looked(look, 500);
  SendPayload(Begin(200));
  Announce();
  EXPECT_FALSE(pipeline().want_frame()) << "this connection's catalogs were read at 150";
}

TEST_F(LookTest, LooksAreApart) {
  Connect(Lsn(), /*announce=*/false);
  Looked(AnnouncedIn(200), 210);
  SendPayload(Commit(200));
  SendPayload(Begin(300));
  Announce();
  EXPECT_FALSE(pipeline().TakeLook(now_));
  EXPECT_LE(pipeline().NextDeadline(), now_.mono + Looks::kLookEvery);
  Advance(Looks::kLookEvery);
  EXPECT_TRUE(pipeline().TakeLook(now_));
  Confirmed();  // takes the statuses that are due
  EXPECT_GT(pipeline().NextDeadline(), now_.mono) << "or the loop would spin";
}

TEST_F(LookTest, StopDoesNotWaitForALook) {
  Connect(Lsn(), /*announce=*/false);
  const std::uint64_t look = AnnouncedIn(200);
  pipeline().Stop(now_);
  Settle();
  EXPECT_TRUE(pipeline().finished());
  Looked(look, 210);
}

TEST_F(LookTest, WhatIsNewInTheCatalogsIsKnownFromThenOn) {
  Connect(Lsn(), /*announce=*/false);
  pgoutput::Relation relation = EventsRelation();
  relation.columns[3].type_oid = 16'900;  // an enum, made since
  SendPayload(Begin(200));
  SendPayload(RelationBytes(relation));
  facts_.text_types = {16'900};
  Looked(pipeline().TakeLook(now_).value_or(0), 210);
  Event("a1");
  SendPayload(Commit(200));
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

TEST_F(LookTest, RowsOfAPartitionUnderItsOwnNameHalt) {
  Connect(Lsn(), /*announce=*/false);
  pgoutput::Relation leaf = EventsRelation();
  leaf.id.oid = 17'001;
  leaf.name = "events_1";
  SendPayload(Begin(100));
  Announce();
  SendPayload(RelationBytes(leaf));  // after its root it is sent, too
  Event("a1");
  SendPayload(walpost::testing::InsertBytes(leaf.id, {}));
  DeliverAll();
  ExpectHalted(HaltReason::kPublicationMissing, "publish_via_partition_root was false then");
}

TEST_F(LookTest, TableThatMayBeANewPartitionIsLookedAt) {
  Connect(Lsn(), /*announce=*/false);
  pgoutput::Relation other = EventsRelation();
  other.id.oid = 17'100;
  other.name = "other";
  pgoutput::Relation leaf = other;
  leaf.id.oid = 17'101;
  other.columns.erase(other.columns.begin());  // no id
  SendPayload(Begin(200));
  SendPayload(RelationBytes(other));
  EXPECT_TRUE(pipeline().want_frame());
  SendPayload(RelationBytes(leaf));
  EXPECT_FALSE(pipeline().want_frame());
}

// A server whose commits wait for this stream cannot say so in it.
class StallTest : public LookTest {
 protected:
  // Until the look that a stall brings is due.
  std::uint64_t Stalled() {
    Connect();
    Transaction(140, {"a1"});
    EXPECT_FALSE(pipeline().TakeLook(now_));
    Advance(Looks::kLookAfterStall);
    return pipeline().TakeLook(now_).value_or(0);
  }
};

TEST_F(StallTest, WhatIsNotDeliveredBringsALookNowAndThen) {
  const std::uint64_t look = Stalled();
  ASSERT_NE(look, 0U);
  Looked(look, 160);
  EXPECT_FALSE(pipeline().TakeLook(now_));
  Confirmed();  // takes the statuses that are due
  EXPECT_GT(pipeline().NextDeadline(), now_.mono);
  Advance(Looks::kLookWhileStalledEvery);
  EXPECT_TRUE(pipeline().TakeLook(now_));
}

TEST_F(StallTest, WhatIsNotDeliveredBehindWhatWasBringsALook) {
  Connect();
  Transaction(140, {"a1"});
  DeliverAll();
  Transaction(148, {"a2"});
  Advance(Looks::kLookAfterStall / 2);
  Advance(Looks::kLookAfterStall / 2);
  EXPECT_TRUE(pipeline().TakeLook(now_));
}

TEST_F(StallTest, WhatIsDeliveredBringsNone) {
  Connect();
  Transaction(140, {"a1"});
  Advance(Looks::kLookAfterStall / 2);
  DeliverAll();
  Transaction(148, {"a2"});
  Advance(Looks::kLookAfterStall / 2);
  EXPECT_FALSE(pipeline().TakeLook(now_));
  DeliverAll();
  Advance(2 * Looks::kLookAfterStall);
  EXPECT_FALSE(pipeline().TakeLook(now_));
}

TEST_F(StallTest, WhatComesWhileTheCatalogsAreReadIsNoOtherHistory) {
  const std::uint64_t look = Stalled();
  Transaction(200, {"a2"});
  facts_.server_wal_lsn = Lsn(160);
  Looked(look, 160);
  EXPECT_FALSE(pipeline().halt());
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
}

TEST_F(StallTest, ServerThatWasSetBackHalts) {
  const std::uint64_t look = Stalled();
  facts_.server_wal_lsn = Lsn(139);
  Looked(look, 139);
  ExpectHalted(HaltReason::kTimelineChanged, "now its log ends at 0/8B");
}

TEST_F(StallTest, NothingIsLookedAtWhileAHaltIsCarriedOut) {
  Stalled();
  SendFrame("x");
  Advance(2 * Looks::kLookWhileStalledEvery);
  EXPECT_FALSE(pipeline().TakeLook(now_));
}

TEST_F(StallTest, ServerWhoseCommitsWaitForUsHalts) {
  Failed(Stalled(), StreamEnd::Kind::kOperator, HaltReason::kInitIncomplete);
  Advance(options_.shutdown_timeout);
  ExpectHalted(HaltReason::kInitIncomplete, "too many connections");
}

TEST_F(StallTest, LookThatFailsCostsNoConnection) {
  Failed(Stalled(), StreamEnd::Kind::kLost);
  EXPECT_EQ(pipeline().state(), base::State::kStreaming);
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

// A standby's stream does not say that it was promoted.
class StandbyLookTest : public LookTest {
 protected:
  StandbyLookTest() { facts_.in_recovery = true; }

  void Promoted(std::uint64_t look, std::uint64_t end) {
    facts_.in_recovery = false;
    facts_.timeline_history.push_back({facts_.timeline++, Lsn(end)});
    Looked(look, end + 1'000);
  }

  // With its event.
  std::uint64_t TakenUpToTheBegin(std::uint64_t commit_lsn) {
    SendPayload(Begin(commit_lsn));
    EXPECT_FALSE(pipeline().want_frame());
    return pipeline().TakeLook(now_).value_or(0);
  }
};

TEST_F(StandbyLookTest, TransactionThatItHadReplayedWhenLookedAtIsTaken) {
  Connect();
  Transaction(140, {"a1"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
}

// Failure 94.
TEST_F(StandbyLookTest, LaterTransactionWaitsUntilItWasLookedAtAgain) {
  Connect();
  Looked(TakenUpToTheBegin(150), 151);
  Event("a1");
  SendPayload(Commit(150));
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1"));
  EXPECT_EQ(pipeline().counters().reconnects, 0U);
}

// Failure 94.
TEST_F(StandbyLookTest, PromotedItIsConnectedToAnewAndTheEventCarriesTheNewTimeline) {
  Connect();
  Transaction(140, {"a1"});
  DeliverAll();
  Promoted(TakenUpToTheBegin(300), 200);
  EXPECT_EQ(last_command_, StreamCommand::kFinish);
  EXPECT_EQ(pipeline().state(), base::State::kStreaming) << "nobody's fault";
  EXPECT_THAT(pipeline().last_error(), HasSubstr("went from timeline 3 to 4"));
  EXPECT_EQ(pipeline()
                .counters()
                .reconnects_by_reason[static_cast<std::size_t>(ReconnectReason::kPromoted)],
            1U);
  Connect(/*start=*/Lsn(140));
  Transaction(140, {"a1"});
  Transaction(300, {"a2"});
  DeliverAll();
  EXPECT_THAT(Visible('a'), ElementsAre("a1", "a2"));
  const auto position = [this](std::size_t record) {
    for (const auto& [name, value] :
         sink_.Log("orders", 'a' % FakeSink::kPartitions)[record].headers) {
      if (name == "walpost-position") {
        return value;
      }
    }
    return std::string();
  };
  EXPECT_THAT(position(0), HasSubstr("-00000003-"));
  EXPECT_THAT(position(1), HasSubstr("-00000004-"));
}

TEST_F(StandbyLookTest, ServerThatAskedForAPositionIsAnsweredSoonAlsoWhenItGoesOn) {
  options_.progress_topic = "";
  Connect();
  Keepalive(400, /*reply_requested=*/true);
  while (TakeStatus()) {
  }
  Keepalive(401);
  Advance(Looks::kLookEvery);
  EXPECT_TRUE(pipeline().TakeLook(now_));
}

// Failure 94.
TEST_F(StandbyLookTest, PositionCountsAsFarAsItWasLookedAt) {
  options_.progress_topic = "";
  Connect();
  Keepalive(400);
  EXPECT_EQ(Confirmed(), Lsn(150));
  EXPECT_TRUE(pipeline().want_frame()) << "nothing waits behind it";
  Advance(Looks::kLookAtPositionEvery);
  Looked(pipeline().TakeLook(now_).value_or(0), 300);
  Advance(milliseconds(1'000));
  EXPECT_EQ(Confirmed(), Lsn(300));
  EXPECT_FALSE(pipeline().TakeLook(now_)) << "looks are apart";
  EXPECT_GT(pipeline().NextDeadline(), now_.mono) << "or the loop would spin";
  Advance(Looks::kLookAtPositionEvery);
  Looked(pipeline().TakeLook(now_).value_or(0), 500);
  Advance(milliseconds(1'000));
  EXPECT_EQ(Confirmed(), Lsn(400)) << "what was reported, without another word of the server";
  Advance(10 * Looks::kLookAtPositionEvery);
  EXPECT_FALSE(pipeline().TakeLook(now_)) << "nothing waits for it";
}

TEST_F(StandbyLookTest, PositionThatIsAskedForIsLookedAtSoon) {
  Connect();
  Advance(Looks::kLookEvery);
  Keepalive(400, /*reply_requested=*/true);
  EXPECT_TRUE(pipeline().TakeLook(now_));
}

TEST_F(StandbyLookTest, LookThatWasBegunBeforeATransactionSaysNothingOfIt) {
  Connect();
  Keepalive(160, /*reply_requested=*/true);
  Advance(Looks::kLookEvery);
  const std::uint64_t early = pipeline().TakeLook(now_).value_or(0);
  SendPayload(Begin(200));
  Looked(early, 180);
  EXPECT_FALSE(pipeline().want_frame());
  Advance(Looks::kLookEvery);
  Looked(pipeline().TakeLook(now_).value_or(0), 250);
  EXPECT_TRUE(pipeline().want_frame());
  EXPECT_EQ(pipeline().counters().reconnects, 0U);
}

TEST_F(StandbyLookTest, OtherStandbyOfTheClusterIsNotBelieved) {
  Connect();
  Looked(TakenUpToTheBegin(200), 200);
  EXPECT_EQ(pipeline().state(), base::State::kReconnecting);
}

TEST_F(StandbyLookTest, PrimaryOfTheSameTimelineIsAnotherServer) {
  Connect();
  const std::uint64_t look = TakenUpToTheBegin(200);
  facts_.in_recovery = false;
  Looked(look, 300);
  EXPECT_EQ(pipeline().state(), base::State::kReconnecting);
}

TEST_F(LookTest, WithoutAKnownPositionThereIsNoLook) {
  facts_.looked_lsn = Lsn();
  Connect(Lsn(), /*announce=*/false);
  SendPayload(Begin(200));
  Announce();
  EXPECT_TRUE(pipeline().want_frame());
}

}  // namespace
}  // namespace walpost::pipeline
