#include "cli/table_verbs.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/printable.h"
#include "base/status.h"
#include "cli/dlq_verbs.h"
#include "config/encryption.h"
#include "config/units.h"
#include "operations/reconcile/audit.h"
#include "operations/reconcile/replay.h"

namespace walpost::cli {
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

}  // namespace walpost::cli
