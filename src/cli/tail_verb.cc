#include "cli/tail_verb.h"

#include <cstdio>

#include "cli/dlq_verbs.h"
#include "operations/status/tail.h"
#include "runtime/signals.h"

namespace walpost::cli {
namespace {

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
  options.print = [](const std::string& line) {
    return std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
           std::fflush(stdout) == 0;
  };
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
