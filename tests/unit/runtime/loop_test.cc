// The loop between a fake server and a fake Kafka, on a thread of its own and on the real clock:
// what the pipeline decides is tested elsewhere, here it is carried out, and the loop waits in
// between.
#include "runtime/loop.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/fake_sink.h"
#include "support/fake_stream.h"
#include "unit/pipeline/outbox_wire.h"

namespace walpost::runtime {
namespace {

using base::Lsn;
using pipeline::Begin;
using pipeline::Commit;
using pipeline::EventBytes;
using postgres::StreamEnd;
using std::chrono::milliseconds;
using walpost::testing::FakeSink;
using walpost::testing::FakeStream;
using walpost::testing::FakeWire;
using Clock = std::chrono::steady_clock;

// Delivers what it took in the next turn, unless it holds, and counts the turns.
class TurnCounter final : public delivery::Sink {
 public:
  int turns() const { return turns_; }

  void Hold(bool hold) { hold_ = hold; }

  void Open(Mode mode) override { fake_.Open(mode); }

  void Close() override {
    fake_.Close();
    work_ = true;
  }

  bool closed() const override { return fake_.closed(); }

  delivery::SubmitResult FindTopic(const envelope::Record& record) override {
    return fake_.FindTopic(record);
  }

  delivery::SubmitResult Submit(const envelope::Record& record,
                                delivery::Sequence sequence) override {
    work_ = true;
    return fake_.Submit(record, sequence);
  }

  void Poll(base::Now now, delivery::SinkListener* listener) override {
    ++turns_;
    work_ = false;
    if (!hold_ && !fake_.closed()) {
      fake_.DeliverAll();
    }
    fake_.Poll(now, listener);
  }

  int wake_fd() const override { return -1; }

  std::optional<base::MonotonicTime> NextDeadline() const override {
    return work_ ? std::make_optional(base::MonotonicTime()) : std::nullopt;
  }

 private:
  FakeSink fake_;      // of the loop's thread
  bool work_ = false;  // for the next turn; the same
  std::atomic<int> turns_ = 0;
  std::atomic<bool> hold_ = false;
};

// One at a time, each where the one before was, as an allocator may have it.
class StreamInOnePlace final : public FakeStream {
 public:
  using FakeStream::FakeStream;

  static void* operator new(std::size_t size) {
    static void* const place = ::operator new(size);
    return place;
  }

  static void operator delete(void* /*place*/) {}
};

// A server that does not answer until it is let go.
class SlowServer {
 public:
  // Is it stopping?
  bool Ping() {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool first = ++asked_ == 1;
    let_go_changed_.wait(lock, [this] { return let_go_; });
    return first && stops_at_first_;
  }

  void StopAtFirst() {
    const std::lock_guard<std::mutex> lock(mutex_);
    stops_at_first_ = true;
  }

  void LetGo() {
    const std::lock_guard<std::mutex> lock(mutex_);
    let_go_ = true;
    let_go_changed_.notify_all();
  }

  int asked() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return asked_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable let_go_changed_;
  bool let_go_ = false;
  bool stops_at_first_ = false;
  int asked_ = 0;
};

class SlowPinger final : public postgres::Pinger {
 public:
  explicit SlowPinger(std::shared_ptr<SlowServer> server) : server_(std::move(server)) {}

  base::PingAnswer Ping(base::PingQuestion /*question*/) override {
    return server_->Ping() ? base::PingAnswer::kStopping : base::PingAnswer::kServes;
  }

 private:
  const std::shared_ptr<SlowServer> server_;
};

class LoopTest : public ::testing::Test {
 protected:
  LoopTest() {
    while (signals_.Take() != 0) {  // of the test before
    }
    options_.name = "shop";
    options_.source.conninfo = "dbname=shop";
    facts_.looked_lsn = Lsn(500);
    options_.pipeline.outboxes = {pipeline::EventsOutbox()};
    options_.pipeline.source_backoff = {milliseconds(1), milliseconds(1), milliseconds(1)};
    options_.pipeline.shutdown_timeout = milliseconds(0);
  }

  ~LoopTest() override { Stop(); }

  void Start() {
    Dependencies dependencies;
    dependencies.sink = &sink_;
    dependencies.kafka = &kafka_;
    dependencies.connect = [this](const postgres::ConnectOptions& options, Lsn start,
                                  const postgres::Guard&) { return Connect(options, start); };
    dependencies.reconfigure = [this](const RunOptions&) -> absl::StatusOr<std::function<void()>> {
      return [this] { reloaded_ = true; };
    };
    dependencies.look =
        [this](
            const postgres::ConnectOptions& options) -> std::variant<base::SourceFacts, StreamEnd> {
      const std::lock_guard<std::mutex> lock(mutex_);
      looked_at_ = options.conninfo + " " + (options.server ? options.server->port : "any");
      base::SourceFacts facts = facts_;
      facts.looked_lsn = Lsn(2'000);
      return facts;
    };
    dependencies.dead_letters = [this](const DeadLetterStore&,
                                       const pipeline::DeadLetterRequest& request) {
      const std::lock_guard<std::mutex> lock(mutex_);
      dead_letter_jobs_ += 'j';
      pipeline::DeadLetterReply reply;
      reply.id = request.id;
      reply.open_rows = 1;
      reply.at_end = true;
      return reply;
    };
    dependencies.close_dead_letters = [this] {
      const std::lock_guard<std::mutex> lock(mutex_);
      dead_letter_jobs_ += '|';
    };
    thread_ = std::thread([this, dependencies = std::move(dependencies)] {
      exit_code_ = Loop(options_, &signals_, &helper_, dependencies, &board_).Run();
    });
  }

  // Once it is connected.
  void StartAndConnect() {
    Start();
    // A connection that was made is not yet one that the loop has taken.
    Await("a stream", [this] { return Shown().state == base::State::kStreaming; });
    wire(0)->Push(Frame(walpost::testing::RelationBytes(pipeline::EventsRelation())));
  }

  // SIGTERM, and what Run returned.
  int Stop() {
    server_->LetGo();
    if (thread_.joinable()) {
      kill(getpid(), SIGTERM);
      thread_.join();
    }
    return exit_code_;
  }

  static void Await(const std::string& what, const std::function<bool()>& happened) {
    const auto deadline = Clock::now() + std::chrono::seconds(30);
    while (!happened()) {
      ASSERT_LT(Clock::now(), deadline) << what;
      poll(nullptr, 0, 1);
    }
  }

  static std::string Frame(const std::string& payload) {
    return walpost::testing::XLogDataFrame(payload, Lsn(1), Lsn(1));
  }

  void PushTransaction(std::uint64_t commit_lsn, std::size_t number = 0) {
    wire(number)->Push(Frame(Begin(commit_lsn)));
    wire(number)->Push(Frame(EventBytes("a1")));
    wire(number)->Push(Frame(Commit(commit_lsn)));
  }

  // The newest connection ends, and another one is made.
  void EndStream(StreamEnd::Kind kind, const std::string& sqlstate) {
    const std::size_t before = connections();
    StreamEnd end;
    end.kind = kind;
    end.status = absl::UnavailableError("ended");
    end.sqlstate = sqlstate;
    end.no_binary_form = sqlstate == "42883";
    wire(before - 1)->End(end);
    Await("another connection",
          [this, before] { return connections() == before + 1 && Shown().source_connected; });
  }

  // A Relation that is younger than what was looked at when it was connected.
  void PushTransactionThatAsksForALook() {
    wire(0)->Push(Frame(Begin(1'000)));
    wire(0)->Push(Frame(walpost::testing::RelationBytes(pipeline::EventsRelation())));
    wire(0)->Push(Frame(EventBytes("a1")));
    wire(0)->Push(Frame(Commit(1'000)));
  }

  observe::Snapshot Shown() const {
    const auto newest = board_.Newest();
    return newest == nullptr ? observe::Snapshot() : *newest;
  }

  std::size_t connections() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return wires_.size();
  }

  std::shared_ptr<FakeWire> wire(std::size_t number) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return wires_.at(number);
  }

  std::vector<Lsn> starts() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return starts_;
  }

  std::string looked_at() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return looked_at_;
  }

  std::string connected_to() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return connected_to_;
  }

  // Of each attempt to connect: 't' = all values as text, 'b' = in their binary form.
  std::string values() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return values_;
  }

  // One 'j' each, and '|' where their connection ended.
  std::string dead_letter_jobs() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return dead_letter_jobs_;
  }

  // How many turns the loop makes in `time`, in which nothing happens.
  int TurnsIn(milliseconds time) {
    const int before = sink_.turns();
    poll(nullptr, 0, static_cast<int>(time.count()));
    return sink_.turns() - before;
  }

  RunOptions options_;
  bool first_answers_copy_done_ = true;
  std::atomic<bool> reloaded_ = false;
  int rejected_ = 0;  // attempts to connect that fail
  std::atomic<std::uint64_t> slot_confirmed_ = 0;
  base::SourceFacts facts_ = pipeline::EventsFacts();
  TurnCounter sink_;
  std::shared_ptr<SlowServer> server_ = std::make_shared<SlowServer>();
  observe::SnapshotBoard board_;

 private:
  std::variant<postgres::Connected, StreamEnd> Connect(const postgres::ConnectOptions& options,
                                                       Lsn start) {
    const std::lock_guard<std::mutex> lock(mutex_);
    connected_to_ = options.conninfo;
    base::SourceFacts facts = facts_;
    facts.start_lsn = std::max(start, Lsn(slot_confirmed_));
    facts.text_values = options.text_until.valid() && facts.start_lsn <= options.text_until;
    values_ += facts.text_values ? 't' : 'b';
    starts_.push_back(start);
    if (rejected_ > 0) {
      --rejected_;
      StreamEnd end;
      end.status = absl::UnavailableError("connection refused");
      return end;
    }
    wires_.push_back(std::make_shared<FakeWire>());
    if (!first_answers_copy_done_ && wires_.size() == 1) {
      wires_.back()->IgnoreCopyDone();
    }
    postgres::Connected connected{std::make_unique<StreamInOnePlace>(wires_.back()), facts,
                                  std::make_unique<SlowPinger>(server_)};
    connected.server.port = "5433";
    return connected;
  }

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<FakeWire>> wires_;
  std::vector<Lsn> starts_;
  std::string connected_to_;
  std::string values_;
  std::string looked_at_;  // the conninfo and the port
  std::string dead_letter_jobs_;
  Signals signals_;  // before any thread
  Helper helper_;
  const kafka::KafkaFacts kafka_;
  int exit_code_ = -1;
  std::thread thread_;
};

TEST_F(LoopTest, EventIsDeliveredAndConfirmedAndAStopEndsTheStreamProperly) {
  StartAndConnect();
  PushTransaction(1'000);
  Await("the confirmation", [this] { return Shown().confirmed_lsn == Lsn(1'008); });
  EXPECT_EQ(Shown().counters.events_delivered, 1u);
  EXPECT_FALSE(wire(0)->sent().empty());
  EXPECT_EQ(Stop(), 0);
  EXPECT_TRUE(wire(0)->copy_done());
  EXPECT_TRUE(wire(0)->closed());
}

TEST_F(LoopTest, FailedConnectIsTriedAgainAndALostStreamGoesOnFromTheLastDeliveredTransaction) {
  rejected_ = 2;
  StartAndConnect();
  PushTransaction(1'000);
  Await("the delivery", [this] { return Shown().safe_lsn == Lsn(1'008); });
  StreamEnd end;
  end.kind = StreamEnd::Kind::kLost;
  end.status = absl::UnavailableError("connection reset by peer");
  wire(0)->End(end);
  Await("another connection", [this] { return connections() == 2; });
  EXPECT_EQ(starts(), (std::vector<Lsn>{Lsn(), Lsn(), Lsn(), Lsn(1'000)}));
  EXPECT_EQ(Stop(), 0);
}

// A type without a binary form lies in the transaction at 1,000.
TEST_F(LoopTest, ValuesComeAsTextUntilTheTransactionThatNeedsItIsConfirmed) {
  StartAndConnect();
  wire(0)->Push(Frame(Begin(1'000)));
  EndStream(StreamEnd::Kind::kServerError, "42883");
  EndStream(StreamEnd::Kind::kLost, "57P01");
  EndStream(StreamEnd::Kind::kServerError, "22P05");  // of something behind it
  wire(3)->Push(Frame(walpost::testing::RelationBytes(pipeline::EventsRelation())));
  PushTransaction(1'000, 3);
  Await("the delivery", [this] { return Shown().confirmed_lsn == Lsn(1'008); });
  EndStream(StreamEnd::Kind::kLost, "57P01");  // before it has read that
  slot_confirmed_ = 1'008;
  EndStream(StreamEnd::Kind::kLost, "57P01");
  EXPECT_EQ(values(), "bttttb");
  EXPECT_NE(Shown().state, base::State::kHalted);
}

// A status that waits for the socket goes out when it can.
TEST_F(LoopTest, StatusThatCouldNotBeSentIsSentLater) {
  StartAndConnect();
  wire(0)->HoldWrites(true);
  PushTransaction(1'000);
  Await("the confirmation", [this] { return Shown().confirmed_lsn == Lsn(1'008); });
  EXPECT_TRUE(wire(0)->sent().empty());
  wire(0)->HoldWrites(false);
  Await("the status", [this] { return !wire(0)->sent().empty(); });
  EXPECT_EQ(wire(0)->sent().size(), 1u) << "only the next status took it along";
}

// The best of several, since the machine may be busy; an idle loop shows itself once a second.
TEST_F(LoopTest, WhatHappensIsShownSoonThoughTheLoopIsIdle) {
  StartAndConnect();
  auto best = Clock::duration::max();
  for (std::uint64_t i = 1; i <= 5 && best > Loop::kPublishEvery * 3; ++i) {
    const auto before = board_.Newest();
    Await("the next snapshot", [&] { return board_.Newest() != before; });
    const auto pushed = Clock::now();
    PushTransaction(1'000 * i);
    Await("the event to be shown", [&] { return Shown().counters.events_received == i; });
    best = std::min(best, Clock::now() - pushed);
  }
  EXPECT_LT(best, Loop::kPublishWhenIdleEvery / 2);
}

TEST_F(LoopTest, WithNothingToDoItWaits) {
  StartAndConnect();
  Await("the first snapshot", [this] { return Shown().source_connected; });
  EXPECT_LT(TurnsIn(milliseconds(500)), 100);
}

TEST_F(LoopTest, NoticeThatThePublicationIsSkippedHalts) {
  StartAndConnect();
  wire(0)->PushNotice("55000: skipped loading publication \"walpost\"");
  Await("the halt", [this] { return Shown().state == base::State::kHalted; });
}

TEST_F(LoopTest, NoticeBeforeTheEndOfTheStreamHalts) {
  StartAndConnect();
  wire(0)->PushNotice("55000: skipped loading publication \"walpost\"");
  wire(0)->End(base::StreamEnd());
  Await("the halt", [this] { return Shown().state == base::State::kHalted; });
}

TEST_F(LoopTest, RoomThatTheSlotHasLeftIsShown) {
  StartAndConnect();
  Await("the room to be shown", [this] { return Shown().wal_room.limit_bytes.has_value(); });
}

TEST_F(LoopTest, LookIsSentToTheServerThatStreams) {
  StartAndConnect();
  PushTransactionThatAsksForALook();
  Await("the delivery", [this] { return Shown().safe_lsn == Lsn(1'008); });
  EXPECT_EQ(looked_at(), "dbname=shop 5433");
}

TEST_F(LoopTest, LookAfterSighupIsSentToTheDatabaseThatIsStreamedFrom) {
  options_.reload = [] {
    Reloaded reloaded;
    reloaded.options.source.conninfo = "dbname=other";
    return reloaded;
  };
  StartAndConnect();
  ASSERT_EQ(kill(getpid(), SIGHUP), 0);
  Await("the new configuration", [this] { return reloaded_.load(); });
  PushTransactionThatAsksForALook();
  Await("the delivery", [this] { return Shown().safe_lsn == Lsn(1'008); });
  EXPECT_EQ(looked_at(), "dbname=shop 5433");
  wire(0)->End(StreamEnd());
  Await("another connection", [this] { return connections() == 2; });
  EXPECT_EQ(connected_to(), "dbname=other");
}

// The next ping becomes due while the first is under way.
// A server that is to shut down "smart" waits for the connection to end.
TEST_F(LoopTest, ConnectionForDeadLettersEndsNowAndThenWhileSomeAreOpen) {
  facts_.may_have_dead_letters = true;
  StartAndConnect();
  Await("its end", [this] { return dead_letter_jobs().find("|j") != std::string::npos; });
  EXPECT_EQ(dead_letter_jobs().substr(0, 4), "jjjj") << "not a new one for each job";
}

TEST_F(LoopTest, PingThatIsNotAnsweredDoesNotKeepItFromWaiting) {
  options_.pipeline.in_flight_bytes_max = 1;
  sink_.Hold(true);
  StartAndConnect();
  PushTransaction(1'000);
  Await("a ping", [this] { return server_->asked() == 1; });
  EXPECT_LT(TurnsIn(pipeline::ServerPings::kEvery + milliseconds(500)), 300);
  EXPECT_EQ(server_->asked(), 1);
  server_->LetGo();
  Await("the next ping", [this] { return server_->asked() == 2; });
}

TEST_F(LoopTest, AnswerToAPingOfTheConnectionBeforeSaysNothingOfTheNext) {
  facts_.server_wal_lsn = Lsn(9'000);  // it has more, so it is pinged while it is read
  server_->StopAtFirst();
  StartAndConnect();
  Await("a ping", [this] { return server_->asked() == 1; });
  wire(0)->End(StreamEnd());
  Await("the next connection", [this] { return connections() == 2; });
  wire(1)->Push(Frame(walpost::testing::RelationBytes(pipeline::EventsRelation())));
  Await("its first frame", [this] { return wire(1)->unread() == 0; });
  server_->LetGo();
  Await("a ping of its own", [this] { return server_->asked() == 2; });
  EXPECT_FALSE(wire(1)->closed());
  EXPECT_EQ(connections(), 2u);
}

// The next connection is due at once, but has to wait: the slot is still taken.
TEST_F(LoopTest, StreamThatDoesNotEndDoesNotKeepItFromWaiting) {
  options_.pipeline.reconnect_interval = milliseconds(50);
  first_answers_copy_done_ = false;
  StartAndConnect();
  Await("the end of the planned reconnect's stream", [this] { return wire(0)->copy_done(); });
  EXPECT_LT(TurnsIn(milliseconds(500)), 500);
  EXPECT_EQ(connections(), 1u);
  StreamEnd end;
  end.kind = StreamEnd::Kind::kFinished;
  wire(0)->End(end);
  Await("the next connection", [this] { return connections() == 2; });
  EXPECT_TRUE(wire(0)->closed());
}

// Failure 80.
TEST_F(LoopTest, SecondSignalLeavesAtOnce) {
  first_answers_copy_done_ = false;
  StartAndConnect();
  kill(getpid(), SIGTERM);
  Await("the drain", [this] { return wire(0)->copy_done(); });
  EXPECT_EQ(Stop(), 75);
}

}  // namespace
}  // namespace walpost::runtime
