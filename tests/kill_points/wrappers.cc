#include "kill_points/wrappers.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "pipeline/progress_keeper.h"

namespace walpost::testing {
namespace {

using delivery::Failure;
using delivery::Sequence;

class KillingListener final : public delivery::SinkListener {
 public:
  KillingListener(delivery::SinkListener* listener, KillPoint* point)
      : listener_(listener), point_(point) {}

  void OnDelivered(Sequence sequence, delivery::PartitionOffset where) override {
    listener_->OnDelivered(sequence, where);
    point_->Pass(sequence >= pipeline::ProgressKeeper::kFirstSequence ? Place::kAfterProgress
                                                                      : Place::kAfterReport);
  }

  void OnFailed(Sequence sequence, const Failure& failure) override {
    listener_->OnFailed(sequence, failure);
  }

  void OnSessionFailed(const Failure& failure) override { listener_->OnSessionFailed(failure); }

  void OnProducerOutgrown() override { listener_->OnProducerOutgrown(); }

  delivery::Sequence ReceivedBelow() const override { return listener_->ReceivedBelow(); }

  void OnTopicAnswered(std::string_view topic, bool known) override {
    listener_->OnTopicAnswered(topic, known);
  }

  void OnClosed() override { listener_->OnClosed(); }

 private:
  delivery::SinkListener* const listener_;
  KillPoint* const point_;
};

class KillingSink final : public delivery::Sink {
 public:
  KillingSink(delivery::Sink* sink, KillPoint* point) : sink_(sink), point_(point) {}

  void Open(Mode mode) override { sink_->Open(mode); }

  void Close() override { sink_->Close(); }

  bool closed() const override { return sink_->closed(); }

  delivery::SubmitResult FindTopic(const envelope::Record& record) override {
    return sink_->FindTopic(record);
  }

  delivery::SubmitResult Submit(const envelope::Record& record, Sequence sequence) override {
    delivery::SubmitResult result = sink_->Submit(record, sequence);
    if (result.outcome == delivery::SubmitResult::Outcome::kAccepted) {
      point_->Pass(Place::kAfterSubmit);
    }
    return result;
  }

  void Poll(base::Now now, delivery::SinkListener* listener) override {
    KillingListener killing(listener, point_);
    sink_->Poll(now, &killing);
  }

  int wake_fd() const override { return sink_->wake_fd(); }

  std::optional<base::MonotonicTime> NextDeadline() const override { return sink_->NextDeadline(); }

 private:
  delivery::Sink* const sink_;
  KillPoint* const point_;
};

class KillingStream final : public postgres::ReplicationStream {
 public:
  KillingStream(std::unique_ptr<postgres::ReplicationStream> stream, KillPoint* point)
      : stream_(std::move(stream)), point_(point) {}

  int socket() const override { return stream_->socket(); }

  bool Receive() override { return stream_->Receive(); }

  Next Take(std::string_view* frame) override { return stream_->Take(frame); }

  const postgres::StreamEnd& end() const override { return stream_->end(); }

  absl::Status Send(std::string_view payload) override {
    absl::Status sent = stream_->Send(payload);
    if (sent.ok()) {
      point_->Pass(Place::kAfterStatus);
    }
    return sent;
  }

  bool wants_write() const override { return stream_->wants_write(); }

  absl::Status Flush() override { return stream_->Flush(); }

  absl::Status SendCopyDone() override { return stream_->SendCopyDone(); }

  std::optional<std::string> TakeNotice() override { return stream_->TakeNotice(); }

 private:
  const std::unique_ptr<postgres::ReplicationStream> stream_;
  KillPoint* const point_;
};

}  // namespace

runtime::Wrappers WrappersWith(KillPoint* point) {
  runtime::Wrappers wrappers;
  wrappers.sink = [point](delivery::Sink* sink) {
    return std::make_unique<KillingSink>(sink, point);
  };
  wrappers.connector = [point](runtime::Connector connect) -> runtime::Connector {
    return [point, connect = std::move(connect)](const postgres::ConnectOptions& options,
                                                 base::Lsn start, const postgres::Guard& guard) {
      point->Pass(Place::kBeforeConnect);
      auto result = connect(options, start, guard);
      if (auto* connected = std::get_if<postgres::Connected>(&result)) {
        point->Pass(Place::kAfterConnect);
        connected->stream = std::make_unique<KillingStream>(std::move(connected->stream), point);
      }
      return result;
    };
  };
  return wrappers;
}

}  // namespace walpost::testing
