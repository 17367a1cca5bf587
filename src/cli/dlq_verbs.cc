#include "cli/dlq_verbs.h"

#include <chrono>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "config/units.h"
#include "operations/deadletters/dlq_decide.h"
#include "operations/deadletters/dlq_list.h"

namespace walpost::cli {
namespace {

using operations::DeadLetterFilter;
using operations::Outcome;

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
