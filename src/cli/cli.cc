#include "cli/cli.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/text.h"
#include "cli/completion.h"
#include "cli/verbs.h"
#include "config/config.h"
#include "config/document.h"
#include "config/import_debezium.h"
#include "config/reader.h"
#include "observe/log.h"
#include "operations/emit.h"
#include "operations/setup/init.h"
#include "operations/setup/init_sql.h"
#include "operations/setup/slot.h"
#include "operations/setup/slot_move.h"
#include "operations/status/check.h"
#include "operations/status/check_parts.h"
#include "runtime/run.h"

namespace walpost::cli {
namespace {

using operations::kExitConfig;
using operations::kExitData;
using operations::kExitNoInput;
using operations::kExitUsage;

constexpr const char* kVersion = WALPOST_VERSION;

struct Arguments {
  config::LoadOptions load;
  bool json = false;
  bool print_sql = false;
  bool with_messages = false;
  bool revoke_emit = false;
  bool take_slot = false;
  bool with_roles = false;
  bool plain_table = false;
  bool backfill = false;
  std::string schema = "outbox";
  bool schemas = false;
  bool yes = false;
  bool leave_gap = false;
  bool skip_undeliverable = false;
  bool send_unproven = false;
  std::string since;
  std::string temp_dir;
  std::string to;
  std::string import;  // the file of `config import-debezium`
  operations::EmitOptions emit;
  DlqArguments dlq;
  TableArguments table;
  StatusArguments status;
  TailArguments tail;
};

using Chosen = std::function<int(const Arguments&, const config::Config&)>;

bool UseColor() { return isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr; }

int Print(const operations::Outcome& outcome) {
  // May be a value of any bytes.
  const std::string output = outcome.Output();
  std::fwrite(output.data(), 1, output.size(), stdout);
  if (!outcome.error.empty()) {
    std::fprintf(stderr, "walpost: %s\n", outcome.Error().c_str());
  }
  return outcome.exit_code;
}

operations::InitOptions InitOptionsOf(const Arguments& arguments, const config::Config& config) {
  operations::InitOptions options;
  options.name = config.run.name;
  options.source = config.run.source;
  options.print_sql = arguments.print_sql;
  options.with_messages = arguments.with_messages;
  options.revoke_emit = arguments.revoke_emit;
  options.take_slot = arguments.take_slot;
  options.with_roles = arguments.with_roles;
  options.plain_table = arguments.plain_table;
  options.table_schema = arguments.schema;
  options.kafka = config.run.kafka;
  options.progress_topic = config.run.pipeline.progress_topic;
  options.dead_letter_topic = config.run.dead_letter_topic;
  options.dead_letter_conninfo = config.run.dead_letter_conninfo;
  return options;
}

void PrintWarnings(const config::Config& config) {
  for (const std::string& warning : config.warnings) {
    std::fprintf(stderr, "walpost: warning: %s\n", warning.c_str());
  }
}

// For SIGHUP: the same file and --set again.
absl::StatusOr<runtime::Reloaded> Reload(const config::LoadOptions& load,
                                         const config::Config& before) {
  ASSIGN_OR_RETURN(config::Config now, config::Load(load));
  runtime::Reloaded reloaded;
  reloaded.needs_restart = config::KeysThatNeedRestart(before, now);
  reloaded.log_level = now.log_level;
  const config::Config in_force = config::InForce(before, now);
  reloaded.options = in_force.run;
  reloaded.options.http.configuration = config::Show(in_force);
  return reloaded;
}

int RunVerb(const Arguments& arguments, const config::Config& config) {
  for (const std::string& warning : config.warnings) {
    observe::Log(observe::Severity::kWarning, observe::LogEvent::kConfigWarning, warning);
  }
  runtime::RunOptions options = config.run;
  options.version = kVersion;
  options.http.configuration = config::Show(config);
  options.reload = [load = arguments.load, before = config] { return Reload(load, before); };
  return runtime::Run(options);
}

operations::BackfillOptions BackfillOptionsOf(const Arguments& arguments,
                                              const config::Config& config) {
  operations::BackfillOptions options;
  options.pipeline = PipelineSettingsOf(config);
  options.skip_undeliverable = arguments.skip_undeliverable;
  options.send_unproven = arguments.send_unproven;
  options.temp_folder = arguments.temp_dir;
  options.on_progress = ProgressOnTerminal();
  options.on_warning = WarnOnStderr;
  return options;
}

absl::StatusOr<operations::RecreateOptions> RecreateOptionsOf(const Arguments& arguments,
                                                              const config::Config& config) {
  operations::RecreateOptions options;
  options.init = InitOptionsOf(arguments, config);
  options.backfill = BackfillOptionsOf(arguments, config);
  options.leave_gap = arguments.leave_gap;
  if (!arguments.since.empty()) {
    ASSIGN_OR_RETURN(options.since_ms, TimeOf(arguments.since));
  }
  return options;
}

int InitVerb(const Arguments& arguments, const config::Config& config) {
  if (!operations::IsPlainName(arguments.schema)) {
    return Print({kExitUsage, "", "--schema takes a name of a-z, 0-9 and _ that needs no quotes"});
  }
  operations::InitOptions options = InitOptionsOf(arguments, config);
  if (arguments.backfill) {
    options.backfill = BackfillOptionsOf(arguments, config);
  }
  return Print(operations::Init(options));
}

operations::CheckSchemasOptions SchemasOf(const config::Config& config, bool schemas) {
  operations::CheckSchemasOptions options;
  options.registry = config.run.registry;
  options.schemas = schemas;
  for (const envelope::OutboxOptions& outbox : config.run.pipeline.outboxes) {
    options.sources.push_back(operations::SchemaSourceOf(outbox.table, outbox.encoder));
  }
  const pipeline::MessagesOptions& messages = config.run.pipeline.messages;
  operations::SchemaSource source{"messages", messages.encoder, {}, true};
  source.topics = outbox::NamesAmong(messages.topics.allowed);
  source.more_topics =
      messages.topics.allowed.empty() || source.topics.size() < messages.topics.allowed.size();
  if (messages.topics.allowed.empty() && messages.topic.find('{') == std::string::npos) {
    source.topics.push_back(messages.topic);
    source.more_topics = false;
  }
  options.sources.push_back(std::move(source));
  return options;
}

int CheckVerb(const Arguments& arguments, const config::Config& config) {
  PrintWarnings(config);
  operations::CheckOptions options;
  options.name = config.run.name;
  options.source = config.run.source;
  for (const envelope::OutboxOptions& outbox : config.run.pipeline.outboxes) {
    options.tables.push_back(outbox.table);
    const std::vector<std::string> names = outbox::NamesAmong(outbox.table.topics.allowed);
    options.topics_allowed.insert(options.topics_allowed.end(), names.begin(), names.end());
  }
  if (!config.run.source.message_prefixes.empty()) {
    const std::vector<std::string> names =
        outbox::NamesAmong(config.run.pipeline.messages.topics.allowed);
    options.topics_allowed.insert(options.topics_allowed.end(), names.begin(), names.end());
  }
  options.messages_topic = config.run.pipeline.messages.topic;
  options.kafka = config.run.kafka;
  options.progress_topic = config.run.pipeline.progress_topic;
  options.dead_letter_topic = config.run.dead_letter_topic;
  options.dead_letter_conninfo = config.run.dead_letter_conninfo;
  options.schemas = SchemasOf(config, arguments.schemas);
  options.http = config.run.http;
  options.json = arguments.json;
  options.color = UseColor();
  if (arguments.schemas && options.schemas.registry.urls.empty()) {
    return Print({kExitUsage, "", "--schemas needs schema_registry.url in the configuration"});
  }
  return Print(operations::Check(options));
}

int EmitVerb(const Arguments& arguments, const config::Config& config) {
  operations::EmitOptions options = arguments.emit;
  options.source = config.run.source;
  if (config.run.pipeline.outboxes.empty()) {
    options.message = true;
  } else {
    options.table = config.run.pipeline.outboxes.front().table;
  }
  return Print(operations::Emit(options));
}

// One verb: its place in --help, and what it does once the configuration is read.
CLI::App* AddVerb(CLI::App* parent, const std::string& name, const std::string& help,
                  const Chosen& run, Chosen* chosen) {
  CLI::App* verb = parent->add_subcommand(name, help);
  verb->callback([run, chosen] { *chosen = run; });
  return verb;
}

void AddSlotVerbs(CLI::App* app, Arguments* arguments, Chosen* chosen) {
  CLI::App* slot = app->add_subcommand("slot", "List, create, move or drop replication slots");
  slot->require_subcommand(1);
  AddVerb(
      slot, "list", "Every slot of the server: who reads it, how much WAL it keeps",
      [](const Arguments& a, const config::Config& c) {
        return Print(operations::SlotList(c.run.source, a.json));
      },
      chosen)
      ->add_flag("--json", arguments->json, "As JSON");
  AddVerb(
      slot, "create", "Create the configured slot; never over an existing history",
      [](const Arguments& a, const config::Config& c) {
        return Print(operations::SlotCreate(InitOptionsOf(a, c)));
      },
      chosen);
  AddVerb(
      slot, "drop", "Drop the configured slot; undelivered events are lost from the stream",
      [](const Arguments& a, const config::Config& c) {
        return Print(operations::SlotDrop(InitOptionsOf(a, c), a.yes));
      },
      chosen)
      ->add_flag("--yes", arguments->yes, "Do it; without it, only say what would be lost");
  CLI::App* advance = AddVerb(
      slot, "advance", "Decide that streaming goes on at the slot's position, or past --to",
      [](const Arguments& a, const config::Config& c) {
        return Print(operations::SlotAdvance(InitOptionsOf(a, c), a.to, a.yes));
      },
      chosen);
  advance->add_option("--to", arguments->to,
                      "An LSN: skip every transaction that committed at or before it");
  advance->add_flag("--yes", arguments->yes, "Do it; without it, only say what would be lost");
  CLI::App* recreate = AddVerb(
      slot, "recreate", "Drop the slot, make it anew, and send the rows that Kafka lacks since",
      [](const Arguments& a, const config::Config& c) {
        const auto options = RecreateOptionsOf(a, c);
        return Print(options.ok() ? operations::SlotRecreate(*options, a.yes)
                                  : UsageError(options.status()));
      },
      chosen);
  recreate->add_flag("--yes", arguments->yes, "Do it; without it, only say what would be done");
  recreate->add_flag("--leave-gap", arguments->leave_gap, "Send nothing of what Kafka lacks");
  recreate->add_option("--since", arguments->since,
                       "Only rows created since: RFC 3339, or ago, as 2h");
  recreate->add_flag("--skip-undeliverable", arguments->skip_undeliverable, kSkipHelp);
  recreate->add_flag("--send-unproven", arguments->send_unproven, kUnprovenHelp);
  recreate->add_option("--temp-dir", arguments->temp_dir, kTempDirHelp);
}

// Needs no configuration: it makes one.
int ImportVerb(const std::string& path) {
  const absl::StatusOr<std::string> text = config::ReadFile(path);
  if (!text.ok()) {
    return Print(operations::Outcome{
        kExitNoInput, "", absl::StrFormat("%s %s", path, std::string(text.status().message()))});
  }
  const absl::StatusOr<config::ImportedConfig> imported = config::ImportDebezium(*text);
  if (!imported.ok()) {
    return Print(operations::Outcome{
        kExitData, "",
        absl::StrFormat("%s is not taken: %s", path, std::string(imported.status().message()))});
  }
  for (const std::string& note : imported->notes) {
    std::fprintf(stderr, "walpost: %s\n", base::Printable(note).c_str());
  }
  return Print(operations::Outcome{0, imported->yaml, "", /*as_it_is=*/true});
}

void AddConfigVerbs(CLI::App* app, std::string* import, Chosen* chosen) {
  CLI::App* config = app->add_subcommand("config", "Look at the configuration");
  config->require_subcommand(1);
  AddVerb(
      config, "validate", "Read the configuration, connect to nothing",
      [](const Arguments&, const config::Config& c) {
        PrintWarnings(c);
        const absl::Status status = runtime::Validate(c.run);
        if (!status.ok()) {
          return Print(operations::Outcome{kExitConfig, "", std::string(status.message())});
        }
        std::puts("ok");
        return 0;
      },
      chosen);
  AddVerb(
      config, "show", "Print the effective configuration, defaults included, secrets as ***",
      [](const Arguments&, const config::Config& c) {
        std::fputs(config::Show(c).c_str(), stdout);
        return 0;
      },
      chosen);
  config
      ->add_subcommand("import-debezium",
                       "Print walpost.yaml for a Debezium connector, and what it cannot say")
      ->add_option("file", *import,
                   "A connector's JSON, or Debezium Server's application.properties")
      ->required();
}

void AddVerbs(CLI::App* app, Arguments* arguments, Chosen* chosen) {
  AddVerb(app, "run", "Stream events until SIGTERM or SIGINT", RunVerb, chosen);
  CLI::App* init = AddVerb(
      app, "init", "Create schema, publication, slot and progress topic; any number of times",
      InitVerb, chosen);
  init->add_flag("--print-sql", arguments->print_sql, "Only print what would be executed");
  init->add_flag("--with-messages", arguments->with_messages,
                 "Also make outbox.emit_message, and record messages.prefixes");
  init->add_flag(
      "--revoke-emit", arguments->revoke_emit,
      "As superuser, with or without messages: take EXECUTE on pg_logical_emit_message from "
      "PUBLIC, so that only roles with a grant can emit");
  init->add_flag("--with-roles", arguments->with_roles,
                 "Also make the roles outbox_owner, outbox_writer and outbox_relay");
  init->add_flag("--plain-table", arguments->plain_table,
                 "Make outbox.events in one piece, not in partitions");
  init->add_flag("--take-slot", arguments->take_slot,
                 "Take a slot that is there, although it may be older than what publishes the "
                 "outboxes");
  init->add_flag("--backfill", arguments->backfill,
                 "Also send the rows that are there before the slot; goes on where it was");
  init->add_flag("--skip-undeliverable", arguments->skip_undeliverable,
                 "With --backfill: leave out rows that can be no records, or that their topics do "
                 "not take, and name them");
  init->add_flag("--send-unproven", arguments->send_unproven,
                 "With --backfill that goes on: also send rows of which it is not known "
                 "whether Kafka has them");
  init->add_option("--schema", arguments->schema,
                   "Make events, emit and all that belongs to them in this schema")
      ->capture_default_str();
  CLI::App* check =
      AddVerb(app, "check", "Look at everything `run` needs and say how to fix what is wrong",
              CheckVerb, chosen);
  check->add_flag("--json", arguments->json, "As JSON");
  check->add_flag("--schemas", arguments->schemas,
                  "Also ask the Schema Registry about every schema that is known beforehand");
  AddSlotVerbs(app, arguments, chosen);
  const Choose choose = [chosen](const Verb& verb) {
    *chosen = [verb](const Arguments&, const config::Config& c) { return Print(verb(c)); };
  };
  AddDlqVerbs(app, &arguments->dlq, choose);
  AddTableVerbs(app, &arguments->table, choose);
  AddStatusVerbs(app, &arguments->status, choose);
  AddTailVerb(app, &arguments->tail, choose);
  AddConfigVerbs(app, &arguments->import, chosen);
  CLI::App* emit = AddVerb(app, "emit", "Insert one test event and print its id", EmitVerb, chosen);
  emit->add_flag("--message", arguments->emit.message, "As a logical message instead of a row");
  emit->add_option("--aggregate-type", arguments->emit.aggregate_type, "Also the topic, by default")
      ->capture_default_str();
  emit->add_option("--key", arguments->emit.key, "The aggregate's id")->capture_default_str();
  emit->add_option("--type", arguments->emit.type, "The event's type")->capture_default_str();
  emit->add_option("--payload", arguments->emit.payload, "The payload, as text")
      ->capture_default_str();
  emit->add_option("--content-type", arguments->emit.content_type, "The payload's media type")
      ->capture_default_str();
}

// "unknown verb 'inti'; did you mean 'init'?", or nothing when it is not a verb that is wrong.
std::string UnknownVerb(const CLI::App& app) {
  const CLI::App* scope = &app;
  while (!scope->get_subcommands().empty()) {
    scope = scope->get_subcommands().front();
  }
  std::vector<std::string> verbs;
  for (const CLI::App* verb : scope->get_subcommands([](const CLI::App*) { return true; })) {
    verbs.push_back(verb->get_name());
  }
  const std::vector<std::string> rest = app.remaining(true);
  if (verbs.empty() || rest.empty() || rest[0].rfind('-', 0) == 0) {
    return "";
  }
  return absl::StrFormat("unknown verb '%s'%s", rest[0], config::DidYouMean(rest[0], verbs));
}

// A core file would hold payloads and passwords. The limit alone does not bind a kernel that pipes
// them to a program (core_pattern); not dumpable, the process is no other one's of its user to
// trace, either.
void LeaveNoCoreFile() {
  prctl(PR_SET_DUMPABLE, 0);
  rlimit limit{};
  if (getrlimit(RLIMIT_CORE, &limit) == 0) {
    limit.rlim_cur = 0;
    setrlimit(RLIMIT_CORE, &limit);
  }
}

// Connections to brokers and files of verbs beside those of HTTP clients. Not without an end, since
// a program that closes what it inherits may try every number.
void RaiseFileLimit() {
  constexpr rlim_t kFilesMax = 65'536;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kFilesMax) {
    limit.rlim_cur = std::min(limit.rlim_max, kFilesMax);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

}  // namespace

int Main(int argc, char** argv) {
  LeaveNoCoreFile();
  RaiseFileLimit();
  CLI::App app("walpost - sends a transactional outbox from PostgreSQL to Kafka", "walpost");
  app.require_subcommand(1);
  app.fallthrough();
  Arguments arguments;
  Chosen chosen;
  app.add_option("--config", arguments.load.file, "The configuration file")->capture_default_str();
  app.add_option("--set", arguments.load.sets, "path.to.key=VALUE over the file; may be repeated")
      ->allow_extra_args(false);
  bool version = false;
  app.add_subcommand("version", "Print versions")->callback([&version] { version = true; });
  std::string shell;
  AddCompletionVerb(&app, &shell);
  AddVerbs(&app, &arguments, &chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (const std::string unknown = UnknownVerb(app);
        error.get_exit_code() != 0 && !unknown.empty()) {
      std::fprintf(stderr, "walpost: %s\nRun with --help for more information.\n", unknown.c_str());
      return kExitUsage;
    }
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (version) {
    std::fputs(operations::VersionText(kVersion).c_str(), stdout);
    return 0;
  }
  if (!shell.empty()) {
    std::fputs(Completion(app, shell).c_str(), stdout);
    return 0;
  }
  if (!arguments.import.empty()) {
    return ImportVerb(arguments.import);
  }
  const absl::StatusOr<config::Config> config = config::Load(arguments.load);
  if (!config.ok()) {
    std::fprintf(stderr, "walpost: the configuration is not usable:\n%s\n",
                 std::string(config.status().message()).c_str());
    return kExitConfig;
  }
  observe::InitLogging(config->log_level, config->log_format);
  return chosen(arguments, *config);
}

}  // namespace walpost::cli
