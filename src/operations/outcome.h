// Outcome - what a verb prints and how it ends. Verbs print nothing themselves.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "envelope/encoder.h"
#include "kafka/kafka_sink.h"
#include "postgres/connect.h"
#include "registry/http.h"

namespace walpost::operations {

// As in sysexits.
inline constexpr int kExitUsage = 64;
inline constexpr int kExitData = 65;
inline constexpr int kExitNoInput = 66;
inline constexpr int kExitUnavailable = 69;
inline constexpr int kExitSoftware = 70;
inline constexpr int kExitRetryLater = 75;
inline constexpr int kExitNoPermission = 77;
inline constexpr int kExitConfig = 78;

struct Outcome {
  int exit_code = 0;
  std::string output;  // for stdout: data
  std::string error;   // for stderr: one line, what, where, what to do
  // For machines, such as JSON or an event's value: not to be changed. All else may quote what
  // others chose, so it is shown without what a terminal obeys.
  bool as_it_is = false;

  std::string Output() const;
  std::string Error() const;
};

// 69 for what may work later, 75 (kAborted) for what is not known yet, 77 for permission, 70 for
// our own bugs, 78 for all that an operator must set right.
int ExitCodeOf(const absl::Status& status);

Outcome Failed(const absl::Status& status);

// Done, but for rows whose topics take nothing at all, or without a schema: 65. 0 rows: as it is.
Outcome Done(std::uint64_t curable_out);

// On a terminal: what a long verb is at, and how far.
using OnProgress =
    std::function<void(const std::string& what, std::uint64_t done, std::uint64_t of)>;

// A line for stderr at once, about one of many rows.
using OnWarning = std::function<void(const std::string& line)>;

// PipelineSettings - what verbs know of the pipeline that they are about: its servers, topics and
// outboxes.
// Thread: values, filled in by cli from the configuration.
struct PipelineSettings {
  std::string name;
  kafka::KafkaOptions kafka;
  postgres::ConnectOptions source;
  std::string dead_letter_conninfo;  // where walpost.dead_letters is; empty = the source's
  std::vector<envelope::OutboxOptions> outboxes;
  envelope::EncoderOptions messages;  // of logical messages that are events
  registry::RegistryOptions registry;
  std::chrono::milliseconds kafka_timeout{15'000};
  std::uint64_t dead_letters_max = 10'000;  // delivery.dead_letters_max
};

// CheckLine - one finding of `walpost check`; CheckLines - all of them, in the order they were
// found.
struct CheckLine {
  enum class Level { kOk, kWarning, kFailed };

  Level level = Level::kOk;
  std::string name;
  std::string text;  // what was found; for a problem also how to fix it
};

class CheckLines {
 public:
  void Ok(std::string name, std::string text) {
    lines_.push_back({CheckLine::Level::kOk, std::move(name), std::move(text)});
  }

  void Warn(std::string name, std::string text) {
    lines_.push_back({CheckLine::Level::kWarning, std::move(name), std::move(text)});
  }

  void Fail(std::string name, std::string text) {
    lines_.push_back({CheckLine::Level::kFailed, std::move(name), std::move(text)});
  }

  void Append(std::vector<CheckLine> lines) {
    std::move(lines.begin(), lines.end(), std::back_inserter(lines_));
  }

  const std::vector<CheckLine>& all() const { return lines_; }

  std::vector<CheckLine> Take() { return std::move(lines_); }

 private:
  std::vector<CheckLine> lines_;
};

}  // namespace walpost::operations
