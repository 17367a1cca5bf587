// Dispatcher - brings what the tracker holds to the sink, in order, through as many producer
// sessions as it takes.
// Why: the first failed report ends a session, because librdkafka would let later records
//   overtake. What was not delivered is then submitted again from memory, first one record of a
//   partition at a time, so that each report is about its record alone; then the pipelined producer
//   takes over.
// An event whose topic cannot be sent to now waits beside the line, with the later ones of that
// topic.
// Thread: loop thread.
// Lifetime: the pointers must outlive it; call ShutDown and wait for idle() before the
//   tracker discards anything.
// Source: docs/design.md, fact 13.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/time.h"
#include "delivery/sink.h"
#include "delivery/tracker.h"
#include "pipeline/counters.h"
#include "pipeline/halt.h"
#include "pipeline/held_topics.h"
#include "pipeline/progress_keeper.h"
#include "pipeline/undeliverables.h"

namespace walpost::pipeline {

// A record that cannot be delivered, and that only an operator can decide about. Everything before
// it can be.
struct HaltAt {
  delivery::Sequence sequence = 0;
  Halt halt;
};

class Dispatcher : private delivery::SinkListener {
 public:
  // Gathering ends at this many events in any case.
  static constexpr delivery::Sequence kGatherEvents = 4096;
  // Schemas of so many events that wait for their topic's first are looked up with its own.
  static constexpr std::size_t kSchemasAhead = 64;
  // Without a report about an event for so long, the producer that sends one at a time is given up:
  // a partition without a leader must not hold the others. Progress and
  // releases of dead letters do not count: a release may go on for hours, and is one record at a
  // time with any producer.
  static constexpr std::chrono::milliseconds kReportWaitMin{5'000};
  static constexpr std::chrono::milliseconds kReportWaitMax{60'000};

  struct Options {
    base::BackoffOptions backoff;
    std::uint64_t seed = 1;
    // HeldTopics'.
    std::chrono::milliseconds unknown_topic_wait{10'000};
    // While the stream keeps coming, events are held back this long and then submitted together:
    // fewer and larger requests. 0 = never.
    std::chrono::microseconds gather_for{0};
    // The same while reports are awaited, whether the stream keeps coming or not: librdkafka has
    // one request of a partition outstanding in any case, and its thread spins while more waits.
    std::chrono::microseconds gather_max{0};
  };

  // `progress` may be null, and `schemas` where nothing is framed.
  Dispatcher(const Options& options, delivery::Tracker* tracker, delivery::Sink* sink,
             Counters* counters, Undeliverables* undeliverables, DeadLetters* dead_letters,
             ProgressKeeper* progress = nullptr, envelope::SchemaTable* schemas = nullptr);

  // Opens the sink; again after ShutDown.
  void Start(base::Now now);

  // New events are tracked, and more may follow at once: submits them, or gathers.
  void Gather(base::Now now);

  // No more is there just now: what was gathered goes out, unless reports are awaited.
  void OnQuiet(base::Now now);

  // Submits what can be submitted now.
  void Pump();

  // Schemas were learnt, or rejected: what waits for them is offered again.
  void OnSchemas();

  // Submits the records of walpost's own that wait, if any.
  void SubmitOwn(base::Now now);

  // Serves reports and timers.
  void Poll(base::Now now);

  // Begins a new session: some events are no longer dead letters, or the sink has a record that
  // must be taken back.
  void OfferAgain();

  // Ends the session for good. idle() follows.
  void ShutDown();

  // Ends the session until Resume: what is not delivered by then waits.
  void Suspend();
  void Resume();

  bool idle() const { return phase_ == Phase::kIdle; }

  // Everything tracked is with a pipelined producer, or held back by choice: the next row may be
  // read.
  bool caught_up() const {
    return phase_ == Phase::kPipelined && (held_since_ || cursor_ == tracker_->next_sequence());
  }

  const std::optional<HaltAt>& halt_at() const { return halt_at_; }

  std::optional<base::MonotonicTime> NextDeadline() const;

  // Between two inputs.
  void CheckInvariants() const;

 private:
  enum class Phase {
    kIdle,  // sink closed, nothing will happen until Start
    kPipelined,
    kOneAtATime,  // until everything tracked is settled, or nobody answers; nothing new is read
    kClosing,     // waiting for OnClosed
    kWaiting,     // sink closed, back-off before the next session
  };

  delivery::Sequence ReceivedBelow() const override { return tracker_->next_sequence(); }

  void OnDelivered(delivery::Sequence sequence, delivery::PartitionOffset where) override;
  void OnFailed(delivery::Sequence sequence, const delivery::Failure& failure) override;
  void OnSessionFailed(const delivery::Failure& failure) override;
  void OnProducerOutgrown() override;
  void OnTopicAnswered(std::string_view topic, bool known) override;
  void OnClosed() override;

  // Of an event that was offered.
  enum class Fate {
    kGone,       // it is with the sink, or settled
    kHeld,       // it waits with its topic
    kPostponed,  // it waits for what came before it, of any topic
    kStopped,    // the sink takes nothing now, or an operator must decide
  };

  delivery::SubmitResult Submit(const envelope::Record& record, delivery::Sequence sequence);

  void SubmitLine(delivery::Sequence end);
  bool SubmitHeld(delivery::Sequence end);
  Fate Offer(delivery::Sequence sequence);

  // Events that are with the sink.
  bool awaits_reports() const {
    const std::size_t not_offered = tracker_->next_sequence() - cursor_;
    return tracker_->in_flight_events() > topics_.events() + not_offered;
  }

  // Everything tracked is settled, or waits for a topic that is known to have a trouble. What waits
  // for a look-up is tried by this producer: the next one would have to look up again.
  bool only_held() const {
    return cursor_ == tracker_->next_sequence() &&
           tracker_->in_flight_events() == topics_.events() && !topics_.busy();
  }

  bool open() const { return phase_ == Phase::kPipelined || phase_ == Phase::kOneAtATime; }

  delivery::Sink::Mode mode() const {
    return phase_ == Phase::kPipelined ? delivery::Sink::Mode::kPipelined
                                       : delivery::Sink::Mode::kOneAtATime;
  }

  base::MonotonicTime HeldUntil() const;
  bool Decide(delivery::Sequence sequence, const delivery::Failure& failure,
              std::uint32_t attempts);
  void OnOwnFailed(delivery::Sequence sequence, const delivery::Failure& failure);
  void OnReleaseRejected(const delivery::Failure& failure, bool alone, base::Now now);
  bool IsOffered(delivery::Sequence sequence) const;
  std::optional<Fate> Follow(delivery::Sequence sequence);
  void Open(delivery::Sink::Mode mode);
  void EndFailedSession(bool back_off);
  void EndSession(delivery::Sink::Mode next, bool back_off = false);

  const Options options_;
  base::Backoff backoff_;
  delivery::Tracker* const tracker_;
  delivery::Sink* const sink_;
  Counters* const counters_;
  Undeliverables* const undeliverables_;
  DeadLetters* const dead_letters_;
  ProgressKeeper* const progress_;
  envelope::SchemaTable* const schemas_;

  StageTimes stages_;
  Phase phase_ = Phase::kIdle;
  base::Now now_;  // of the Poll being served
  // Everything tracked below it was accepted by this session, is settled, or is held.
  delivery::Sequence cursor_ = 0;
  delivery::LastingRejections rejections_{options_.unknown_topic_wait};
  // Of dead letters that are sent again, which pass what waits with its topic.
  delivery::LastingRejections release_rejections_{options_.unknown_topic_wait};
  HeldTopics topics_{options_.unknown_topic_wait, &rejections_};
  std::set<std::string, std::less<>> topics_without_schema_;  // they wait for the registry
  std::uint64_t delivered_ = 0;                               // events
  std::optional<base::MonotonicTime> held_since_;             // gathering
  bool quiet_ = false;                                        // nothing new since OnQuiet
  delivery::Sequence resubmit_below_ = 0;                     // what earlier sessions had accepted
  delivery::Sink::Mode next_mode_ = delivery::Sink::Mode::kPipelined;
  bool shutting_down_ = false;
  bool suspended_ = false;
  bool back_off_ = false;
  base::MonotonicTime reopen_at_;
  // Of the producer that sends one at a time. The wait grows until such a producer has done its
  // work: a slow broker's answer may be the one about the culprit.
  base::Backoff report_waits_;
  std::chrono::milliseconds report_wait_{0};
  base::MonotonicTime report_by_;
  std::optional<HaltAt> halt_at_;
};

}  // namespace walpost::pipeline
