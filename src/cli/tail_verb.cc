#include "cli/tail_verb.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "absl/strings/str_format.h"
#include "cli/dlq_verbs.h"
#include "operations/status/tail.h"
#include "runtime/signals.h"

namespace walpost::cli {
namespace {

// What is not printed is not read from the server either, and a server that shuts down waits for whoever
// does not read, up to its wal_sender_timeout.
constexpr int kUnreadAtMost_s = 30;

// In pieces that a pipe takes whole, so that no write blocks.
absl::Status Print(std::string_view text, int stop_fd) {
  while (!text.empty()) {
    std::array<pollfd, 2> fds = {pollfd{STDOUT_FILENO, POLLOUT, 0}, pollfd{stop_fd, POLLIN, 0}};
    const int ready = poll(fds.data(), fds.size(), kUnreadAtMost_s * 1000);
    if (ready < 0 && errno == EINTR) {
      continue;
    }
    if (ready == 0) {
      return absl::DeadlineExceededError(
          absl::StrFormat("nobody has read the output for %d s, and a server that shuts down would "
                          "wait for it: run it again, and write to a file what you read slowly",
                          kUnreadAtMost_s));
    }
    const ssize_t written =
        fds[1].revents == 0
            ? write(STDOUT_FILENO, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF))
            : -1;
    if (written <= 0) {
      return absl::CancelledError();
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<operations::Outcome> Tail(const TailArguments& arguments,
                                         const config::Config& config) {
  runtime::Signals signals;
  operations::TailOptions options;
  options.pipeline = PipelineSettingsOf(config);
  options.messages_topic = config.run.pipeline.messages.topic;
  options.messages_topics = config.run.pipeline.messages.topics;
  options.from_now = arguments.from_now;
  options.table = arguments.table;
  options.key = arguments.key;
  options.limit = arguments.limit;
  options.payload = arguments.payload;
  options.json = arguments.json;
  options.stop_fd = signals.fd();
  options.print = [&signals](const std::string& line) { return Print(line, signals.fd()); };
  return operations::Tail(options);
}

}  // namespace

void AddTailVerb(CLI::App* app, TailArguments* arguments, const Choose& choose) {
  CLI::App* tail = AddVerb(
      app, "tail", "Show events as they are committed, by a slot of its own and without Kafka",
      arguments, Tail, choose);
  tail->add_flag("--from-now", arguments->from_now,
                 "Without those that the configured slot has not confirmed; needs no such slot");
  tail->add_option("--table", arguments->table,
                   "Only of this table, SCHEMA.TABLE, or message:PREFIX");
  tail->add_option("--key", arguments->key, "Only events with this key");
  tail->add_flag("--payload", arguments->payload, "With their payloads");
  tail->add_option("--limit", arguments->limit, "End after so many");
  tail->add_flag("--json", arguments->json, "A line of JSON for each");
}

}  // namespace walpost::cli
