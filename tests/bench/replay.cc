// Replays recorded pgoutput messages through the real pipeline, with a sink that acknowledges at
//   once: replay FILE OID [--without-progress | --format NAME]
// FILE: each message after its length in 4 bytes, big endian; OID: of the outbox table in it. For
// callgrind, see scripts/lib/instructions.py: what counts is within Replay. Time is made up, so
// that every run does the same: turns as far apart as the loop's under load, with about as many
// frames. All delays are in one bucket, as they nearly are within a batch. What is shown is Show's:
// at each turn what the loop does then, a snapshot as often, and a scrape and a status each second.
#include <glog/logging.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "observe/http_server.h"
#include "observe/snapshot.h"
#include "outbox/options.h"
#include "pipeline/pipeline.h"
#include "runtime/loop.h"
#include "runtime/monitor.h"
#include "runtime/status_reporter.h"
#include "support/pgoutput_bytes.h"

namespace walpost {
namespace {

constexpr std::size_t kFramesPerTurn = 100;
constexpr std::chrono::microseconds kTurn{300};
constexpr std::chrono::seconds kScrapeEvery{1};

class AtOnceSink final : public delivery::Sink {
 public:
  void Open(Mode) override { open_ = true; }

  void Close() override { open_ = false; }

  bool closed() const override { return !open_; }

  delivery::SubmitResult FindTopic(const envelope::Record&) override { return {}; }

  delivery::SubmitResult Submit(const envelope::Record&, delivery::Sequence sequence) override {
    taken_.push_back(sequence);
    return {};
  }

  void Poll(base::Now, delivery::SinkListener* listener) override {
    for (const delivery::Sequence sequence : taken_) {
      listener->OnDelivered(sequence, {});
    }
    taken_.clear();
  }

  int wake_fd() const override { return -1; }

  std::optional<base::MonotonicTime> NextDeadline() const override { return std::nullopt; }

 private:
  bool open_ = false;
  std::vector<delivery::Sequence> taken_;
};

std::vector<std::string> ReadFrames(const char* file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
  std::vector<std::string> frames;
  for (std::size_t at = 0; at + 4 <= bytes.size();) {
    std::size_t size = 0;
    for (int i = 0; i < 4; ++i) {
      size = size << 8U | static_cast<unsigned char>(bytes[at++]);
    }
    frames.push_back(testing::XLogDataFrame(std::string_view(bytes).substr(at, size)));
    at += size;
  }
  return frames;
}

// By the names of scripts/lib/formats.py.
envelope::EncoderOptions FormatOf(std::string_view name) {
  using envelope::CloudEventMode;
  using envelope::ValueFormat;
  envelope::EncoderOptions options;
  if (name == "raw") {
    options.format = ValueFormat::kRaw;
  } else if (name != "envelope") {
    options.format = ValueFormat::kCloudEvents;
    options.cloud_events.mode = name == "cloudevents-protobuf" ? CloudEventMode::kStructuredProtobuf
                                : name == "cloudevents-json"   ? CloudEventMode::kStructuredJson
                                                               : CloudEventMode::kBinary;
  }
  return options;
}

void Turn(pipeline::Pipeline* pipeline, base::Now* now) {
  now->mono += kTurn;
  now->wall += kTurn;
  pipeline->Tick(*now);
  pipeline->TakeStatus(*now);
}

runtime::RunOptions NamedRun() {
  runtime::RunOptions options;
  options.name = "bench";
  return options;
}

}  // namespace

struct Showing {
  explicit Showing(base::Now now) : status_reporter(NamedRun(), now), next_snapshot(now.mono) {}

  runtime::StatusReporter status_reporter;
  runtime::ServerView server_view;
  observe::SnapshotBoard board;
  const kafka::KafkaFacts kafka;
  base::MonotonicTime next_snapshot;
  base::MonotonicTime next_scrape;
};

// Metrics, status and log, as Loop::Run and Loop::Publish have it, and who reads them.
__attribute__((noinline)) void Show(pipeline::Pipeline* pipeline, Showing* showing, base::Now now) {
  showing->status_reporter.Observe(*pipeline, showing->kafka, now);
  showing->status_reporter.ReportDecisions(pipeline, now);
  if (now.mono < showing->next_snapshot) {
    return;
  }
  showing->next_snapshot = now.mono + runtime::Loop::kPublishEvery;
  auto snapshot = std::make_shared<observe::Snapshot>(
      showing->status_reporter.TakeSnapshot(*pipeline, showing->kafka, now));
  showing->server_view.Complete(pipeline->facts(), std::nullopt, now, snapshot.get());
  showing->board.Publish(std::move(snapshot));
  if (now.mono >= showing->next_scrape) {
    showing->next_scrape = now.mono + kScrapeEvery;
    CHECK(!observe::RenderMetrics(*showing->board.Newest(), "bench").empty());
    CHECK(!observe::RenderStatusJson(*showing->board.Newest(), "bench").empty());
  }
}

// Not static and never inlined, so that it is found by name.
__attribute__((noinline)) void Replay(pipeline::Pipeline* pipeline, Showing* showing,
                                      const std::vector<std::string>& frames, base::Now now) {
  std::size_t in_turn = 0;
  for (const std::string& frame : frames) {
    pipeline->OnFrame(frame, now);
    if (++in_turn == kFramesPerTurn) {
      Turn(pipeline, &now);
      Show(pipeline, showing, now);
      in_turn = 0;
    }
  }
  for (int i = 0; i < 2 || !pipeline->tracker().empty(); ++i) {
    Turn(pipeline, &now);
  }
}

}  // namespace walpost

int main(int argc, char** argv) {
  using namespace walpost;  // NOLINT: a program of one function
  std::uint32_t oid = 0;
  if (argc < 3 || !absl::SimpleAtoi(argv[2], &oid)) {
    std::fputs("usage: replay FILE OID [--without-progress | --format NAME]\n", stderr);
    return 64;
  }
  const base::Now now{base::MonotonicTime(std::chrono::hours(1)),
                      base::WallTime(std::chrono::seconds(2'000'000'000))};
  pipeline::PipelineOptions options;
  options.name = "bench";
  const std::string_view how = argc > 3 ? argv[3] : "";
  options.progress_topic = how == "--without-progress" ? "" : "walpost.progress.bench";
  options.outboxes.resize(1);
  options.outboxes[0].encoder = FormatOf(how == "--format" && argc > 4 ? argv[4] : "envelope");
  options.outboxes[0].table = *outbox::PresetOptions("walpost");
  options.outboxes[0].table.topic = "{aggregate_type}";
  base::SourceFacts facts;
  facts.system_identifier = 1;
  facts.timeline = 1;
  facts.database = "bench";
  facts.tables = {{oid, "outbox", "events"}};
  AtOnceSink sink;
  pipeline::Pipeline pipeline(options, &sink, now);
  pipeline.TakeConnect(now);
  pipeline.OnConnected(facts, now);
  const std::vector<std::string> frames = ReadFrames(argv[1]);
  Showing showing(now);
  Replay(&pipeline, &showing, frames, now);
  const bool whole = pipeline.tracker().empty() && !pipeline.halt();
  std::printf("%llu\n", static_cast<unsigned long long>(pipeline.counters().events_delivered));
  return whole ? 0 : 1;
}
