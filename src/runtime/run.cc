#include "runtime/run.h"

#include <glog/logging.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/state.h"
#include "base/status.h"
#include "kafka/properties.h"
#include "observe/http_client.h"
#include "observe/http_server.h"
#include "observe/log.h"
#include "observe/snapshot.h"
#include "postgres/conninfo.h"
#include "postgres/preflight.h"
#include "registry/http.h"
#include "registry/resolver.h"
#include "runtime/helper.h"
#include "runtime/loop.h"
#include "runtime/status_reporter.h"

namespace walpost::runtime {
namespace {

sigset_t Handled() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

Signals::Signals() {
  const sigset_t set = Handled();
  PCHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  PCHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
  fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  PCHECK(fd_ >= 0);
}

Signals::~Signals() { close(fd_); }

int Signals::Take() {
  signalfd_siginfo info{};
  if (read(fd_, &info, sizeof(info)) != sizeof(info)) {
    return 0;
  }
  return static_cast<int>(info.ssi_signo);
}

namespace {

using observe::LogEvent;
using observe::Severity;

constexpr int kExitUnavailable = 69;
constexpr int kExitConfig = 78;

void LogKafka(const kafka::KafkaNotice& notice) {
  Severity severity = Severity::kInfo;
  switch (notice.severity) {
    case kafka::KafkaNotice::Severity::kDebug:
      severity = Severity::kDebug;
      break;
    case kafka::KafkaNotice::Severity::kInfo:
      severity = Severity::kInfo;
      break;
    case kafka::KafkaNotice::Severity::kWarning:
      severity = Severity::kWarning;
      break;
    case kafka::KafkaNotice::Severity::kError:
      severity = Severity::kError;
      break;
  }
  // What librdkafka is asked to show of its own work is no repeat.
  if (severity == Severity::kDebug) {
    observe::Log(severity, notice.event, notice.message);
  } else {
    observe::LogRepeated(severity, notice.event,
                         notice.cause.empty() ? notice.message : notice.cause, notice.message);
  }
}

// Read anew by each who needs it: the files may have changed.
absl::StatusOr<std::shared_ptr<registry::Resolver>> MakeResolver(const RunOptions& options) {
  std::vector<envelope::FramingOptions> framings = envelope::FramingsOf(options.pipeline.outboxes);
  framings.push_back(options.pipeline.messages.encoder.framing);
  return registry::Resolver::Create(options.registry, framings);
}

void WarnOfOpenHttp(const observe::HttpOptions& http) {
  if (http.token.empty() && !observe::IsLoopbackOnly(http.listen)) {
    observe::Log(Severity::kWarning, LogEvent::kHttpOpen, observe::OpenToAll(http.listen));
  }
}

// PostgreSQL is warned of when it is connected to, since TLS is agreed on then.
void WarnOfClearText(const RunOptions& options) {
  if (const std::string warning = kafka::ClearTextWarning(options.kafka); !warning.empty()) {
    observe::Log(Severity::kWarning, LogEvent::kClearText, warning, {{"peer", "kafka"}});
  }
  if (const std::string warning = registry::ClearTextWarning(options.registry); !warning.empty()) {
    observe::Log(Severity::kWarning, LogEvent::kClearText, warning, {{"peer", "schema_registry"}});
  }
}

}  // namespace

absl::Status Validate(const RunOptions& options) {
  std::vector<std::pair<const char*, std::string>> connections = {
      {"source.conninfo", options.source.conninfo}};
  if (!options.monitor.conninfo.empty()) {
    connections.emplace_back("monitor.conninfo", options.monitor.conninfo);
  }
  if (!options.dead_letter_conninfo.empty()) {
    connections.emplace_back("delivery.dead_letter_conninfo", options.dead_letter_conninfo);
  }
  for (const auto& [key, conninfo] : connections) {
    if (const auto settings = postgres::ResolveConninfo(conninfo); !settings.ok()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: %s; write key=value pairs or a postgresql:// URI, as libpq takes them", key,
          std::string(settings.status().message())));
    }
  }
  RETURN_IF_ERROR(MakeResolver(options).status());
  return kafka::EffectiveProperties(options.kafka).status();
}

int Run(const RunOptions& options, const Wrappers& wrappers) {
  if (const absl::Status status = Validate(options); !status.ok()) {
    observe::Log(Severity::kError, LogEvent::kConfigInvalid, std::string(status.message()));
    return kExitConfig;
  }
  Signals signals;
  Helper helper;
  observe::SnapshotBoard board;
  const base::Now now = ReadClocks();
  board.Publish(
      std::make_shared<observe::Snapshot>(StatusReporter(options, now).FirstSnapshot(now)));
  observe::HttpOptions http_options = options.http;
  http_options.version = options.version;
  absl::StatusOr<std::unique_ptr<observe::HttpServer>> http =
      observe::HttpServer::Start(http_options, &board);
  if (!http.ok()) {
    observe::Log(Severity::kError, LogEvent::kHttpFailed, std::string(http.status().message()));
    return kExitUnavailable;
  }
  absl::StatusOr<std::unique_ptr<kafka::KafkaSink>> sink =
      kafka::KafkaSink::Create(options.kafka, helper.RunnerOf(Helper::Queue::kKafka), LogKafka);
  if (!sink.ok()) {
    observe::Log(Severity::kError, LogEvent::kConfigInvalid, std::string(sink.status().message()));
    return kExitConfig;
  }
  observe::Log(Severity::kInfo, LogEvent::kStarted,
               absl::StrFormat("walpost %s, pipeline %s, slot %s, publication %s", options.version,
                               options.name, options.source.slot, options.source.publication),
               {{"gap_guard", options.pipeline.progress_topic.empty() ? "off" : "on"}});
  WarnOfOpenHttp(options.http);
  WarnOfClearText(options);
  const absl::StatusOr<std::shared_ptr<registry::Resolver>> resolver = MakeResolver(options);
  if (!resolver.ok()) {
    observe::Log(Severity::kError, LogEvent::kConfigInvalid,
                 std::string(resolver.status().message()));
    return kExitConfig;
  }
  Dependencies dependencies{postgres::Connect, sink->get(), &(*sink)->facts()};
  dependencies.look = postgres::LookAgain;
  // Of the helper's thread alone, and kept by its jobs.
  const auto dead_letters = std::make_shared<DeadLetterJob>();
  dependencies.dead_letters = [dead_letters](const DeadLetterStore& store,
                                             const pipeline::DeadLetterRequest& request) {
    return dead_letters->Run(store, request);
  };
  dependencies.close_dead_letters = [dead_letters] { dead_letters->Close(); };
  // The job that asks keeps it, also when this is over. Of the helper's thread alone.
  const auto asked = std::make_shared<std::shared_ptr<registry::Resolver>>(*resolver);
  dependencies.resolve_schema = [asked](const envelope::SchemaNeed& need) {
    return (*asked)->Resolve(need);
  };
  dependencies.reconfigure =
      [asked, sink = sink->get(),
       http = http->get()](const RunOptions& changed) -> absl::StatusOr<std::function<void()>> {
    RETURN_IF_ERROR(Validate(changed));
    RETURN_IF_ERROR(kafka::CheckOptions(changed.kafka));
    ASSIGN_OR_RETURN(*asked, MakeResolver(changed));
    return [sink, http, changed] {
      sink->Reconfigure(changed.kafka);
      http->Reconfigure(changed.http);
      WarnOfOpenHttp(changed.http);
      WarnOfClearText(changed);
    };
  };
  if (wrappers.connector) {
    dependencies.connect = wrappers.connector(std::move(dependencies.connect));
  }
  std::unique_ptr<delivery::Sink> wrapped_sink;
  if (wrappers.sink) {
    wrapped_sink = wrappers.sink(dependencies.sink);
    dependencies.sink = wrapped_sink.get();
  }
  Loop loop(options, &signals, &helper, std::move(dependencies), &board);
  const int exit_code = loop.Run();
  // Its producer may still refer to records that live in the loop's pipeline.
  sink->reset();
  observe::Log(Severity::kInfo, LogEvent::kStopped, absl::StrFormat("exit code %d", exit_code));
  return exit_code;
}

}  // namespace walpost::runtime
