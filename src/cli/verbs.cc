#include "cli/verbs.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/text.h"
#include "config/reader.h"
#include "config/schema_registry.h"
#include "operations/deadletters/dlq.h"
#include "operations/deadletters/dlq_list.h"
#include "operations/reconcile/audit.h"
#include "operations/reconcile/replay.h"
#include "operations/status/status.h"
#include "operations/status/tail.h"
#include "runtime/run.h"

namespace walpost::cli {

operations::Outcome UsageError(const absl::Status& status) {
  return operations::Outcome{operations::kExitUsage, "", std::string(status.message())};
}

namespace {

using operations::Outcome;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRedrawAfter{100};

absl::StatusOr<operations::RowFilter> FilterOf(const TableArguments& arguments) {
  operations::RowFilter filter;
  if (!arguments.from.empty()) {
    ASSIGN_OR_RETURN(filter.from_ms, TimeOf(arguments.from));
  }
  if (!arguments.to.empty()) {
    ASSIGN_OR_RETURN(filter.to_ms, TimeOf(arguments.to));
  }
  filter.ids = arguments.ids;
  filter.key = arguments.key;
  filter.type = arguments.type;
  filter.table = arguments.table;
  return filter;
}

absl::StatusOr<Outcome> Replay(const TableArguments& arguments, const config::Config& config) {
  operations::ReplayOptions options;
  options.pipeline = PipelineSettingsOf(config);
  ASSIGN_OR_RETURN(options.filter, FilterOf(arguments));
  ASSIGN_OR_RETURN(options.wait, config::ParseDuration(arguments.wait));
  RETURN_IF_ERROR(config::CheckConninfo(config, "--standby", arguments.standby));
  options.to_topic = arguments.to_topic;
  options.in_place = arguments.in_place;
  options.dry_run = arguments.dry_run;
  options.skip_undeliverable = arguments.skip_undeliverable;
  options.send_unproven = arguments.send_unproven;
  options.all = arguments.all;
  options.missing = arguments.missing;
  options.temp_folder = arguments.temp_dir;
  options.rate = arguments.rate;
  options.standby = arguments.standby;
  options.on_progress = ProgressOnTerminal();
  options.on_warning = WarnOnStderr;
  return operations::Replay(options);
}

absl::StatusOr<Outcome> Audit(const TableArguments& arguments, const config::Config& config) {
  operations::AuditOptions options;
  options.pipeline = PipelineSettingsOf(config);
  ASSIGN_OR_RETURN(options.filter, FilterOf(arguments));
  ASSIGN_OR_RETURN(options.wait, config::ParseDuration(arguments.wait));
  RETURN_IF_ERROR(config::CheckConninfo(config, "--standby", arguments.standby));
  options.standby = arguments.standby;
  options.temp_folder = arguments.temp_dir;
  options.report = arguments.report;
  options.json = arguments.json;
  options.skips = config.run.pipeline.on_undeliverable == pipeline::OnUndeliverable::kSkip;
  options.has_messages = !config.run.source.message_prefixes.empty();
  options.on_progress = ProgressOnTerminal();
  return operations::Audit(options);
}

void AddRange(CLI::App* verb, TableArguments* arguments) {
  verb->add_option("--from", arguments->from,
                   "Only rows created since: RFC 3339, or ago, as 2h; included");
  verb->add_option("--to", arguments->to, "Only rows created before: the same; not included");
  verb->add_option("--table", arguments->table, "Only rows of this table, SCHEMA.TABLE");
  verb->add_option("--standby", arguments->standby,
                   "Read the rows there: a conninfo, as source.conninfo");
  verb->add_option("--temp-dir", arguments->temp_dir, kTempDirHelp);
  verb->add_option(
          "--wait", arguments->wait,
          "How long to wait for the slot to confirm what the rows were read up to, and for "
          "a standby to have them")
      ->capture_default_str();
}

}  // namespace

void AddTableVerbs(CLI::App* app, TableArguments* arguments, const Choose& choose) {
  const auto add = [&](const char* name, const char* help, auto* run) {
    CLI::App* verb = AddVerb(app, name, help, arguments, run, choose);
    AddRange(verb, arguments);
    return verb;
  };
  CLI::App* replay =
      add("replay", "Send rows once more, marked, to a topic of your choice", Replay);
  replay->add_option("--id", arguments->ids, "Only the event with this id; may be repeated")
      ->allow_extra_args(false);
  replay->add_option("--key", arguments->key, "Only events with this key");
  replay->add_option("--type", arguments->type, "Only events of this type");
  replay->add_flag("--all", arguments->all, "All rows, without a filter");
  replay->add_flag("--missing", arguments->missing,
                   "Only what Kafka does not hold, by id, and no dead letter is about");
  replay->add_option("--to-topic", arguments->to_topic, "Where to");
  replay->add_flag("--in-place", arguments->in_place,
                   "To the events' own topics, where old values will follow newer ones");
  replay->add_flag("--dry-run", arguments->dry_run, "Only count");
  replay->add_flag("--skip-undeliverable", arguments->skip_undeliverable, kSkipHelp);
  replay->add_flag("--send-unproven", arguments->send_unproven, kUnprovenHelp);
  replay->add_option("--rate", arguments->rate, "No more than so many events a second");
  CLI::App* audit = add("audit", "Compare tables with topics, event by event", Audit);
  audit->add_option("--report", arguments->report,
                    "A file for a line of JSON about each event that is not in its topic");
  audit->add_flag("--json", arguments->json, "As JSON");
}

void WarnOnStderr(const std::string& line) {
  std::fprintf(stderr, "walpost: warning: %s\n", base::Printable(line).c_str());
}

operations::OnProgress ProgressOnTerminal() {
  if (isatty(STDERR_FILENO) == 0) {
    return nullptr;
  }
  constexpr std::uint64_t kCells = 20;
  return [drawn = steady_clock::time_point()](const std::string& what, std::uint64_t done,
                                              std::uint64_t of) mutable {
    const auto now = steady_clock::now();
    if (done != of && now - drawn < kRedrawAfter) {
      return;
    }
    drawn = now;
    const std::uint64_t full = of == 0 ? 0 : done * kCells / of;
    const std::string bar = std::string(full, '#') + std::string(kCells - full, '.');
    std::fprintf(stderr, "\r[%s] %s: %llu of %llu%s", bar.c_str(), what.c_str(),
                 static_cast<unsigned long long>(done), static_cast<unsigned long long>(of),
                 done == of ? "\n" : "");
  };
}

namespace {

using operations::StatusOptions;

constexpr int kRedrawMs = 1000;

absl::StatusOr<StatusOptions> OptionsOf(const StatusArguments& arguments,
                                        const config::Config& config) {
  StatusOptions options;
  options.listen = config.run.http.listen;
  options.url = arguments.url;
  options.token = config.run.http.token;
  options.name = config.run.name;
  options.source = config.run.source;
  options.json = arguments.json;
  options.exit_code = arguments.exit_code;
  ASSIGN_OR_RETURN(options.timeout, config::ParseDuration(arguments.timeout));
  operations::Thresholds& thresholds = options.thresholds;
  ASSIGN_OR_RETURN(thresholds.wait_warning, config::ParseDuration(arguments.wait_warning));
  ASSIGN_OR_RETURN(thresholds.wait_critical, config::ParseDuration(arguments.wait_critical));
  ASSIGN_OR_RETURN(thresholds.lag_warning, config::ParseSize(arguments.lag_warning));
  ASSIGN_OR_RETURN(thresholds.lag_critical, config::ParseSize(arguments.lag_critical));
  return options;
}

// Ctrl-C ends the process, as any other: there is nothing to be put right.
[[noreturn]] void Watch(const StatusOptions& options) {
  constexpr char kHomeAndClear[] = "\x1b[H\x1b[J";
  for (;;) {
    const Outcome outcome = operations::ShowStatus(options);
    std::printf("%s%s%s%s", kHomeAndClear, outcome.Output().c_str(), outcome.Error().c_str(),
                outcome.error.empty() ? "" : "\n");
    std::fflush(stdout);
    poll(nullptr, 0, kRedrawMs);
  }
}

absl::StatusOr<Outcome> Status(const StatusArguments& arguments, const config::Config& config) {
  ASSIGN_OR_RETURN(const StatusOptions options, OptionsOf(arguments, config));
  if (!arguments.watch) {
    return operations::ShowStatus(options);
  }
  if (options.json || options.exit_code) {
    return absl::InvalidArgumentError("--watch goes with neither --json nor --exit-code");
  }
  if (isatty(STDOUT_FILENO) == 0) {
    return absl::InvalidArgumentError("--watch draws on a terminal, and stdout is none");
  }
  Watch(options);
}

absl::StatusOr<Outcome> HealthCheck(const StatusArguments& arguments,
                                    const config::Config& config) {
  ASSIGN_OR_RETURN(const StatusOptions options, OptionsOf(arguments, config));
  return operations::HealthCheck(options, arguments.ready);
}

}  // namespace

void AddStatusVerbs(CLI::App* app, StatusArguments* arguments, const Choose& choose) {
  const auto add = [&](const char* name, const char* help, auto* run) {
    CLI::App* verb = AddVerb(app, name, help, arguments, run, choose);
    verb->add_option("--url", arguments->url, "Ask there, instead of at http.listen");
    verb->add_option("--timeout", arguments->timeout, "How long to wait for the answer")
        ->capture_default_str();
    return verb;
  };
  CLI::App* status =
      add("status", "What the running walpost does, and what there is to do", Status);
  status->add_flag("--watch", arguments->watch, "Again each second, until Ctrl-C");
  status->add_flag("--json", arguments->json, "As JSON: /status as it is");
  status->add_flag("--exit-code", arguments->exit_code,
                   "End as a monitoring plugin: 0 ok, 1 warning, 2 critical, 3 unknown");
  const auto threshold = [&](const char* name, std::string* value, const char* help) {
    status->add_option(name, *value, help)->capture_default_str();
  };
  threshold("--wait-warning", &arguments->wait_warning,
            "Warning when an event, or a state in which nothing streams, is as old");
  threshold("--wait-critical", &arguments->wait_critical, "Critical");
  threshold("--lag-warning", &arguments->lag_warning, "Warning when so much WAL is unconfirmed");
  threshold("--lag-critical", &arguments->lag_critical, "Critical");
  add("healthcheck", "End with 0 when the running walpost is alive, else with 1", HealthCheck)
      ->add_flag("--ready", arguments->ready, "When it is ready: neither starting nor halted");
}

namespace {

// What is not printed is not read from the server either, and a server that shuts down waits for
// whoever does not read, up to its wal_sender_timeout.
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

namespace {

using operations::DeadLetterFilter;

absl::StatusOr<DeadLetterFilter> FilterOf(const DlqArguments& arguments) {
  DeadLetterFilter filter{arguments.id,    arguments.position, arguments.key, arguments.type,
                          arguments.topic, arguments.reason,   std::nullopt,  std::nullopt};
  RETURN_IF_ERROR(operations::CheckFilter(filter));
  if (!arguments.since.empty()) {
    ASSIGN_OR_RETURN(filter.since_ms, TimeOf(arguments.since));
  }
  if (!arguments.until.empty()) {
    ASSIGN_OR_RETURN(filter.until_ms, TimeOf(arguments.until));
  }
  return filter;
}

absl::StatusOr<Outcome> List(const DlqArguments& arguments, const config::Config& config) {
  ASSIGN_OR_RETURN(DeadLetterFilter filter, FilterOf(arguments));
  return operations::DlqList(PipelineSettingsOf(config),
                             {std::move(filter), arguments.all, arguments.limit, arguments.json});
}

absl::StatusOr<Outcome> Show(const DlqArguments& arguments, const config::Config& config) {
  return operations::DlqShow(PipelineSettingsOf(config),
                             {arguments.event, arguments.payload, arguments.json});
}

absl::StatusOr<operations::DlqDecideOptions> DecideOptionsOf(const DlqArguments& arguments) {
  operations::DlqDecideOptions options;
  ASSIGN_OR_RETURN(options.filter, FilterOf(arguments));
  ASSIGN_OR_RETURN(options.wait, config::ParseDuration(arguments.wait));
  options.all_undecided = arguments.all_undecided;
  options.dry_run = arguments.dry_run;
  options.yes = arguments.yes;
  options.to_topic = arguments.to_topic;
  return options;
}

absl::StatusOr<Outcome> Retry(const DlqArguments& arguments, const config::Config& config) {
  ASSIGN_OR_RETURN(const operations::DlqDecideOptions options, DecideOptionsOf(arguments));
  return operations::DlqRetry(PipelineSettingsOf(config), options);
}

absl::StatusOr<Outcome> Discard(const DlqArguments& arguments, const config::Config& config) {
  ASSIGN_OR_RETURN(const operations::DlqDecideOptions options, DecideOptionsOf(arguments));
  return operations::DlqDiscard(PipelineSettingsOf(config), options);
}

void AddFilters(CLI::App* verb, DlqArguments* arguments) {
  verb->add_option("--id", arguments->id, "Only the event with this id");
  verb->add_option("--position", arguments->position, "Only the event at this walpost-position");
  verb->add_option("--key", arguments->key, "Only events with this key");
  verb->add_option("--type", arguments->type, "Only events of this type");
  verb->add_option("--topic", arguments->topic, "Only events meant for this topic");
  verb->add_option("--reason", arguments->reason, "Only those with this reason");
  verb->add_option("--since", arguments->since,
                   "Only those written since: RFC 3339, or ago, as 2h");
  verb->add_option("--until", arguments->until,
                   "Only those written until: RFC 3339, or ago, as 2h");
}

void AddDeciding(CLI::App* verb, DlqArguments* arguments) {
  AddFilters(verb, arguments);
  verb->add_flag("--all-undecided", arguments->all_undecided, "All of them, without a filter");
  verb->add_flag("--dry-run", arguments->dry_run, "Only print what would be done");
  verb->add_option("--wait", arguments->wait, "How long to wait for `run` to carry it out")
      ->capture_default_str();
}

}  // namespace

operations::PipelineSettings PipelineSettingsOf(const config::Config& config) {
  operations::PipelineSettings options;
  options.name = config.run.name;
  options.kafka = config.run.kafka;
  options.source = config.run.source;
  options.dead_letter_conninfo = config.run.dead_letter_conninfo;
  options.outboxes = config.run.pipeline.outboxes;
  options.messages = config.run.pipeline.messages.encoder;
  options.registry = config.run.registry;
  options.dead_letters_max = config.run.pipeline.dead_letters_max;
  return options;
}

absl::StatusOr<std::int64_t> TimeOf(const std::string& text) {
  const absl::StatusOr<std::chrono::milliseconds> ago = config::ParseDuration(text);
  if (!ago.ok()) {
    return operations::ParseTime(text);
  }
  const auto then = std::chrono::system_clock::now() - *ago;
  return std::chrono::duration_cast<std::chrono::milliseconds>(then.time_since_epoch()).count();
}

void AddDlqVerbs(CLI::App* app, DlqArguments* arguments, const Choose& choose) {
  CLI::App* dlq = app->add_subcommand("dlq", "Look at dead letters, send them again, discard them");
  dlq->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, auto* run) {
    return AddVerb(dlq, name, help, arguments, run, choose);
  };
  CLI::App* list = add("list", "Dead letters and parked events that are open", List);
  AddFilters(list, arguments);
  list->add_flag("--all", arguments->all, "Also those that were closed, and how");
  list->add_option("--limit", arguments->limit, "No more than so many lines");
  list->add_flag("--json", arguments->json, "As JSON");
  CLI::App* show = add("show", "Everything that is known of one dead letter", Show);
  show->add_option("event", arguments->event, "The event's id, or its walpost-position")
      ->required();
  show->add_flag("--payload", arguments->payload, "Print its value and nothing else");
  show->add_flag("--json", arguments->json, "As JSON");
  CLI::App* retry = add("retry", "Have `run` send events again", Retry);
  AddDeciding(retry, arguments);
  retry->add_option("--to-topic", arguments->to_topic,
                    "To this topic instead; not for parked keys");
  CLI::App* discard = add("discard", "Decide that events are never sent", Discard);
  AddDeciding(discard, arguments);
  discard->add_flag("--yes", arguments->yes, "Do it; without it, only say what would be done");
}

}  // namespace walpost::cli
