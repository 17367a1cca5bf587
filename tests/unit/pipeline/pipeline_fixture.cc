#include "pipeline_fixture.h"

#include <algorithm>
#include <utility>

namespace walpost::pipeline {

using base::StreamEnd;
using walpost::testing::FakeSink;

PipelineFixture::PipelineFixture()
    : now_{base::MonotonicTime(std::chrono::hours(1)),
           base::WallTime(std::chrono::seconds(1'700'000'100))} {
  const base::BackoffOptions backoff{kBackOff, kBackOff, kBackOff};
  options_.outboxes = {EventsOutbox()};
  options_.name = "shop";
  options_.source_backoff = backoff;
  options_.standby_backoff = backoff;
  options_.sink_backoff = backoff;
  options_.gather_for = std::chrono::microseconds(0);          // tests of gathering set it
  options_.unknown_topic_wait = std::chrono::milliseconds(0);  // tests of it set it
}

Pipeline& PipelineFixture::pipeline() {
  if (pipeline_ == nullptr) {
    pipeline_ = std::make_unique<Pipeline>(options_, &sink_, now_);
  }
  return *pipeline_;
}

void PipelineFixture::Restart() {
  pipeline().Stop(now_);
  for (int i = 0; i < 100 && !pipeline().finished(); ++i) {
    Advance(kBackOff);
  }
  ASSERT_TRUE(pipeline().finished());
  pipeline_.reset();
  sink_.StopRejecting();
  confirmed_ = base::Lsn();
}

void PipelineFixture::Connect(base::Lsn start, bool announce) {
  std::optional<base::Lsn> wanted;
  for (int i = 0; i < 100 && !wanted; ++i) {
    wanted = pipeline().TakeConnect(now_);
    if (!wanted) {
      Advance(kBackOff);
    }
  }
  ASSERT_TRUE(wanted) << "no connection asked for within 10 s";
  EXPECT_EQ(*wanted, start);
  facts_.may_have_dead_letters = !dead_letters_.rows.empty();
  facts_.restart_lsn = facts_.restart_lsn.valid() ? facts_.restart_lsn : base::Lsn(UINT64_MAX);
  pipeline().OnConnected(facts_, now_);
  Tick();
  if (announce) {
    SendPayload(walpost::testing::RelationBytes(EventsRelation()));
  }
}

void PipelineFixture::SendFrame(const std::string& frame) {
  ASSERT_TRUE(pipeline().want_frame());
  pipeline().OnFrame(frame, now_);
  Tick();
}

void PipelineFixture::SendPayload(const std::string& payload) {
  // The header's positions must not matter.
  SendFrame(walpost::testing::XLogDataFrame(payload, base::Lsn(1), base::Lsn(999'999)));
}

void PipelineFixture::Event(const std::string& id) { SendPayload(EventBytes(id, id.substr(0, 1))); }

void PipelineFixture::Transaction(std::uint64_t commit_lsn, const std::vector<std::string>& ids) {
  SendPayload(Begin(commit_lsn));
  for (const std::string& id : ids) {
    Event(id);
  }
  SendPayload(Commit(commit_lsn));
}

void PipelineFixture::Keepalive(std::uint64_t wal_end, bool reply_requested) {
  SendFrame(walpost::testing::KeepaliveFrame(base::Lsn(wal_end), reply_requested));
}

void PipelineFixture::End(StreamEnd::Kind kind, const std::string& message) {
  StreamEnd end;
  end.kind = kind;
  end.status = absl::UnavailableError(message);
  pipeline().OnStreamEnd(end, now_);
  Tick();
}

void PipelineFixture::EndForOperator(base::HaltReason reason, const std::string& message) {
  StreamEnd end;
  end.kind = StreamEnd::Kind::kOperator;
  end.reason = reason;
  end.status = absl::FailedPreconditionError(message);
  pipeline().OnStreamEnd(end, now_);
  Tick();
}

void PipelineFixture::Fail(const std::string& sqlstate, const std::string& context) {
  StreamEnd end;
  end.kind = StreamEnd::Kind::kServerError;
  end.status = absl::UnknownError("division by zero");
  end.sqlstate = sqlstate;
  end.context = context;
  pipeline().OnStreamEnd(end, now_);
  Tick();
}

void PipelineFixture::DeliverAll() {
  for (int i = 0; i < 1'000 && !pipeline().tracker().empty(); ++i) {
    if (!sink_.closed()) {
      sink_.DeliverAll();
    }
    Tick();
  }
  EXPECT_TRUE(pipeline().tracker().empty());
}

void PipelineFixture::Deliver(delivery::Sequence sequence) {
  sink_.Deliver(sequence);
  Tick();
}

void PipelineFixture::ServeDeadLetters() {
  while (const std::optional<DeadLetterRequest> wanted = pipeline().TakeDeadLetterRequest(now_)) {
    pipeline().OnDeadLetterReply(dead_letters_.CarryOut(*wanted), now_);
  }
}

std::vector<std::string> PipelineFixture::Rows() const {
  std::vector<std::string> texts;
  for (const base::DeadLetter& row : dead_letters_.rows) {
    texts.push_back((row.closed ? "closed:" : row.parked ? "parked:" : "dead:") + row.event_id);
  }
  return texts;
}

void PipelineFixture::Advance(milliseconds time) {
  now_.mono += time;
  now_.wall += time;
  pipeline().Tick(now_);
  if (serve_dead_letters_) {
    ServeDeadLetters();
  }
  const StreamCommand command = pipeline().TakeStreamCommand();
  if (command == StreamCommand::kNone) {
    return;
  }
  last_command_ = command;
  if (command == StreamCommand::kFinish) {
    confirmed_ = std::max(confirmed_, pipeline().FinalStatus(now_).flush);
  }
}

base::Lsn PipelineFixture::Confirmed() {
  Advance(StatusClock::kConfirmWithin);
  if (const auto status = TakeStatus()) {
    EXPECT_GE(status->flush, confirmed_) << "went back";
    EXPECT_EQ(status->apply, status->flush);
    EXPECT_GE(status->write, status->flush);
    confirmed_ = std::max(confirmed_, status->flush);
    EXPECT_EQ(pipeline().confirmed_lsn(), status->flush);
  }
  return confirmed_;
}

void PipelineFixture::Settle() {
  for (int i = 0; i < 5; ++i) {
    Advance(kBackOff);
  }
}

std::vector<std::string> PipelineFixture::Visible(char key) {
  std::vector<std::string> ids;
  for (const FakeSink::Submission& each :
       sink_.Log("orders", static_cast<unsigned char>(key) % FakeSink::kPartitions)) {
    ids.push_back(each.value->substr(std::string_view("payload of ").size()));
  }
  return ids;
}

void PipelineFixture::ExpectAccounted() {
  const Counters& counters = pipeline().counters();
  EXPECT_EQ(counters.events_received, counters.events_delivered + counters.events_dead_lettered +
                                          counters.events_parked + counters.events_skipped +
                                          pipeline().tracker().in_flight_events() +
                                          counters.events_discarded);
}

void PipelineFixture::ExpectHalted(base::HaltReason reason, const std::string& detail) {
  Settle();
  EXPECT_TRUE(pipeline().halted());
  EXPECT_EQ(pipeline().state(), base::State::kHalted);
  ASSERT_TRUE(pipeline().halt());
  EXPECT_EQ(pipeline().halt()->reason, reason) << pipeline().halt()->detail;
  EXPECT_THAT(pipeline().halt()->detail, ::testing::HasSubstr(detail));
  EXPECT_FALSE(pipeline().connected()) << "the slot must be free";
  EXPECT_FALSE(pipeline().TakeConnect(now_));
  EXPECT_FALSE(TakeStatus());
  EXPECT_TRUE(sink_.closed());
  ExpectAccounted();
}

}  // namespace walpost::pipeline
