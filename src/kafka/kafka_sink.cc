#include "kafka/kafka_sink.h"

#include <glog/logging.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kafka/client.h"
#include "kafka/producer_session.h"
#include "kafka/properties.h"

namespace walpost::kafka {

using base::LogEvent;

namespace {

constexpr std::chrono::seconds kMakeAgainAfter{5};

class Impl : public KafkaSink {
 public:
  Impl(KafkaOptions options, base::BlockingRunner* runner,
       std::function<void(const KafkaNotice&)> on_notice)
      : options_(std::move(options)),
        runner_(runner),
        on_notice_(std::move(on_notice)),
        wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    PCHECK(wake_fd_ >= 0);
  }

  // Records in flight belong to the caller: they must not be freed before the producer let go of
  // them.
  ~Impl() override {
    session_.reset();
    if (!WaitForDestroyed(std::chrono::seconds(5))) {
      on_notice_({KafkaNotice::Severity::kWarning, LogEvent::kKafkaDestroySlow,
                  "a producer did not end within 5 s"});
    }
    close(wake_fd_);
  }

  void Open(Mode mode) override {
    CHECK(!open_);
    open_ = true;
    close_asked_ = false;
    mode_ = mode;
    MakeSession();
  }

  void Close() override {
    CHECK(open_);
    if (session_ != nullptr) {
      session_->Close(now_);
    } else {
      close_asked_ = true;
      Wake();
    }
  }

  bool closed() const override { return !open_; }

  void ForgetRejections() override { memory_.rejections.Forget(); }

  delivery::SubmitResult FindTopic(const envelope::Record& record) override {
    CHECK(open_);
    return session_ == nullptr
               ? delivery::SubmitResult{delivery::SubmitResult::Outcome::kNotNow, {}}
               : session_->FindTopic(record.topic);
  }

  delivery::SubmitResult Submit(const envelope::Record& record,
                                delivery::Sequence sequence) override {
    CHECK(open_);
    return session_ == nullptr
               ? delivery::SubmitResult{delivery::SubmitResult::Outcome::kNotNow, {}}
               : session_->Submit(record, sequence);
  }

  void Poll(base::Now now, delivery::SinkListener* listener) override {
    now_ = now;
    std::uint64_t count = 0;
    (void)!read(wake_fd_, &count,
                sizeof(count));  // empty is fine: this is a wake-up, not a message
    if (session_ == nullptr && !TakeUpAgain(listener)) {
      return;
    }
    session_->Poll(now, listener);
    if (session_->drained()) {
      session_.reset();
      open_ = false;
      listener->OnClosed();
    }
  }

  int wake_fd() const override { return wake_fd_; }

  std::optional<base::MonotonicTime> NextDeadline() const override {
    return session_ != nullptr ? session_->NextDeadline() : try_again_at_;
  }

  const KafkaFacts& facts() const override { return facts_; }

  void Reconfigure(KafkaOptions options) override {
    options_ = std::move(options);
    if (session_ == nullptr) {
      try_again_at_ = now_.mono;
      Wake();
    } else if (!session_->closing()) {
      session_->Outgrow("the configuration was read anew");
    }
  }

 private:
  // CheckOptions has tried the same, but a certificate that was there then can be away now. The
  // sink stays open without a producer, and takes nothing until one can be made.
  void MakeSession() {
    try_again_at_.reset();
    auto created =
        ProducerSession::Create(options_, mode_, wake_fd_, runner_, &memory_, &facts_, &on_notice_);
    if (!created.ok()) {
      facts_.connected = false;
      facts_.OnError(std::string(created.status().message()), now_.wall);
      try_again_at_ = now_.mono + kMakeAgainAfter;
      on_notice_({KafkaNotice::Severity::kError, LogEvent::kKafkaProducerImpossible,
                  absl::StrFormat("%s: nothing is sent and nothing is lost; fix what it names, it "
                                  "is tried again every %d s",
                                  facts_.last_error, kMakeAgainAfter.count())});
      return;
    }
    session_ = *std::move(created);
  }

  // While there is no producer: whether there is one now.
  bool TakeUpAgain(delivery::SinkListener* listener) {
    if (open_ && close_asked_) {
      open_ = false;
      try_again_at_.reset();
      listener->OnClosed();
    } else if (open_ && try_again_at_ && now_.mono >= *try_again_at_) {
      MakeSession();
    }
    return session_ != nullptr;
  }

  void Wake() const {
    constexpr std::uint64_t kOne = 1;
    (void)!write(wake_fd_, &kOne, sizeof(kOne));
  }

  KafkaOptions options_;
  base::BlockingRunner* const runner_;
  const std::function<void(const KafkaNotice&)> on_notice_;
  const int wake_fd_;
  Mode mode_ = Mode::kPipelined;
  TopicMemory memory_{options_.unknown_topic_wait};
  KafkaFacts facts_;
  base::Now now_;
  bool open_ = false;
  bool close_asked_ = false;                  // while there is no producer
  std::unique_ptr<ProducerSession> session_;  // null: closed, or it could not be made
  std::optional<base::MonotonicTime> try_again_at_;
};

}  // namespace

absl::Status CheckOptions(const KafkaOptions& options) {
  for (const delivery::Sink::Mode mode :
       {delivery::Sink::Mode::kPipelined, delivery::Sink::Mode::kOneAtATime}) {
    ASSIGN_OR_RETURN(Conf conf, BuildConf(options, mode));
    // Some combinations are rejected only by rd_kafka_new, which connects to nothing by itself
    // within this moment.
    std::array<char, 512> error{};
    rd_kafka_t* producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf.get(), error.data(), error.size());
    if (producer == nullptr) {
      return absl::InvalidArgumentError("sink.kafka.properties: " + Shown(error.data(), options));
    }
    (void)conf.release();
    const Producer thrown_away = OwnProducer(producer);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KafkaSink>> KafkaSink::Create(
    KafkaOptions options, base::BlockingRunner* runner,
    std::function<void(const KafkaNotice&)> on_notice) {
  RETURN_IF_ERROR(CheckOptions(options));
  return std::unique_ptr<KafkaSink>(new Impl(std::move(options), runner, std::move(on_notice)));
}

}  // namespace walpost::kafka
