#include "operations/status/status.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "observe/http_client.h"
#include "postgres/slots.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {
namespace {

using observe::HttpAnswer;

constexpr int kUnhealthy = 1;

absl::StatusOr<HttpAnswer> Get(const StatusOptions& options, const std::string& path) {
  std::string url = options.url;
  if (url.empty()) {
    ASSIGN_OR_RETURN(url, observe::UrlOf(options.listen));
  }
  while (!url.empty() && url.back() == '/') {
    url.pop_back();
  }
  return observe::HttpGet(url + path, options.timeout, options.token);
}

struct Answered {
  std::string text;
  nlohmann::json status;
  bool live = true;
};

absl::StatusOr<Answered> Ask(const StatusOptions& options) {
  ASSIGN_OR_RETURN(HttpAnswer answer, Get(options, "/status"));
  if (answer.code == 401) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "what answers at %s %s: it must be the http.token of the walpost that runs there",
        options.url.empty() ? options.listen : observe::WithoutUser(options.url),
        options.token.empty() ? "asks for a token, and this configuration has none"
                              : "rejects this configuration's token"));
  }
  nlohmann::json status =
      nlohmann::json::parse(answer.body, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (answer.code != 200 || !status.is_object() || !status.contains("state")) {
    return absl::UnavailableError(absl::StrFormat(
        "what answers at %s is not walpost (HTTP %d): correct http.listen, or give --url",
        options.url.empty() ? options.listen : observe::WithoutUser(options.url), answer.code));
  }
  ASSIGN_OR_RETURN(const HttpAnswer live, Get(options, "/livez"));
  return Answered{std::move(answer.body), std::move(status), live.code == 200};
}

absl::StatusOr<std::optional<postgres::SlotInfo>> AskServer(const StatusOptions& options) {
  ASSIGN_OR_RETURN(
      postgres::SqlConnection connection,
      postgres::SqlConnection::Connect(options.source.conninfo, options.source.application_name));
  return postgres::FindSlot(&connection, options.source.slot);
}

Outcome Rejected(const StatusOptions& options, const absl::Status& why) {
  Outcome outcome{kExitNoPermission, "", std::string(why.message())};
  if (options.exit_code) {
    const Judgement judgement{Judgement::Level::kUnknown, "walpost answers, and rejects the token"};
    outcome.exit_code = static_cast<int>(judgement.level);
    outcome.output = options.json ? "" : PluginLine(judgement, nlohmann::json());
  }
  return outcome;
}

// Nothing answers: what the server knows.
Outcome FromServer(const StatusOptions& options, const absl::Status& why) {
  Outcome outcome{kExitUnavailable, "", std::string(why.message())};
  if (options.json) {
    return outcome;
  }
  const auto slot = AskServer(options);
  Judgement judgement{Judgement::Level::kUnknown, "neither walpost nor PostgreSQL answers"};
  std::string text;
  if (slot.ok()) {
    judgement = JudgeSlot(*slot);
    text = SlotAsText(options.source.slot, *slot);
  } else {
    text = absl::StrFormat("  %-14s%s\n  %-14s%s\n", "source", std::string(slot.status().message()),
                           "to do", "is walpost running, and PostgreSQL up? `walpost check`");
  }
  if (absl::IsDeadlineExceeded(why)) {
    judgement = {Judgement::Level::kCritical,
                 "walpost hangs: it takes a connection and does not answer"};
    text += absl::StrFormat("  %-14s%s\n", "or",
                            "if it runs here, restart it: it hangs; nothing is lost");
  }
  outcome.output = absl::StrFormat("%s: walpost does not answer\n%s", options.name, text);
  if (options.exit_code) {
    outcome.exit_code = static_cast<int>(judgement.level);
    outcome.output = PluginLine(judgement, nlohmann::json()) + outcome.output;
  }
  return outcome;
}

}  // namespace

Outcome ShowStatus(const StatusOptions& options) {
  const absl::StatusOr<Answered> answered = Ask(options);
  if (absl::IsPermissionDenied(answered.status())) {
    return Rejected(options, answered.status());
  }
  if (!answered.ok()) {
    return FromServer(options, answered.status());
  }
  Outcome outcome{0, options.json ? answered->text : StatusAsText(answered->status, answered->live),
                  "", options.json};
  if (options.exit_code) {
    const Judgement judgement = JudgeStatus(answered->status, answered->live, options.thresholds);
    outcome.exit_code = static_cast<int>(judgement.level);
    if (!options.json) {
      outcome.output = PluginLine(judgement, answered->status) + outcome.output;
    }
  }
  return outcome;
}

Outcome HealthCheck(const StatusOptions& options, bool ready) {
  // Once walpost is gone, anybody on this machine may listen where it did; and probes are open to all.
  StatusOptions open = options;
  open.token.clear();
  const absl::StatusOr<HttpAnswer> answer = Get(open, ready ? "/readyz" : "/livez");
  if (!answer.ok()) {
    return Outcome{kUnhealthy, "", std::string(answer.status().message())};
  }
  return Outcome{answer->code == 200 ? 0 : kUnhealthy, answer->body, ""};
}

}  // namespace walpost::operations
