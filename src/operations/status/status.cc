#include "operations/status/status.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "base/text.h"
#include "observe/http_client.h"
#include "postgres/slots.h"
#include "postgres/sql_connection.h"

namespace walpost::operations {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

// What is not there, or of another type, is shown as nothing: versions differ.
const json& At(const json& status, const char* pointer) {
  static const json kNothing;
  const json::json_pointer path(pointer);
  return status.contains(path) ? status.at(path) : kNothing;
}

std::string Text(const json& status, const char* pointer) {
  const json& value = At(status, pointer);
  return value.is_string() ? base::Printable(value.get_ref<const std::string&>())
         : value.is_null() ? "-"
                           : base::JsonText(value);
}

std::uint64_t Number(const json& status, const char* pointer) {
  const json& value = At(status, pointer);
  return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
}

bool True(const json& status, const char* pointer) {
  const json& value = At(status, pointer);
  return value.is_boolean() && value.get<bool>();
}

// By the clock that wrote both; nullopt when one is not there.
std::optional<milliseconds> AgeOf(const json& status, const char* pointer) {
  absl::Time then;
  absl::Time now;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, Text(status, pointer), &then, &error) ||
      !absl::ParseTime(absl::RFC3339_full, Text(status, "/taken_at"), &now, &error)) {
    return std::nullopt;
  }
  return std::max(milliseconds(0), absl::ToChronoMilliseconds(now - then));
}

std::string AgoText(const json& status, const char* pointer) {
  const auto age = AgeOf(status, pointer);
  return age ? absl::StrFormat("%s, %s ago", Text(status, pointer), DurationText(*age)) : "never";
}

std::string VersionText(std::uint64_t number) {
  return absl::StrFormat("%d.%d", number / 10000, number % 10000);
}

std::string ReasonOf(const json& status) { return Text(status, "/halt/reason"); }

std::string Line(const char* name, const std::string& text) {
  return absl::StrFormat("  %-14s%s\n", name, text);
}

// What to type, or what to read.
std::string NextOf(const json& status, bool live) {
  const std::string state = Text(status, "/state");
  if (!live) {
    return "restart the process, it hangs; nothing is lost";
  }
  if (state == "halted") {
    return absl::StrFormat("docs/runbook.md, section %s", ReasonOf(status));
  }
  if (state == "starting" || state == "reconnecting") {
    return "`walpost check` says what is wrong; docs/runbook.md, section Reconnecting";
  }
  if (state == "standby") {
    return "nothing: another walpost reads the slot, this one takes over when it ends";
  }
  if (state == "backpressured") {
    return "nothing, unless it lasts: docs/runbook.md, section Backpressured for long";
  }
  if (state == "draining") {
    return "nothing: it is stopping, as requested";
  }
  if (Number(status, "/events/parked_keys") > 0) {
    return "`walpost dlq list` shows what is parked; docs/runbook.md, section Dead letters";
  }
  if (Number(status, "/events/dead_lettered") > 0) {
    return "`walpost dlq list` shows what is undecided; docs/runbook.md, section Dead letters";
  }
  return "nothing";
}

std::string LagText(const json& status) {
  const auto waits = AgeOf(status, "/in_flight/oldest_commit_at");
  return absl::StrFormat("%s; %s", BytesText(Number(status, "/source/lag_bytes")),
                         waits ? "the oldest event waits since " + DurationText(*waits)
                               : std::string("no event waits"));
}

// "connected: HOST, database D, PostgreSQL 15.6"; what no connection has reported yet is left out.
std::string SourceText(const json& status) {
  std::string text = True(status, "/source/connected") ? "connected" : "not connected";
  const std::string host = Text(status, "/source/host");
  const std::uint64_t version = Number(status, "/source/server_version");
  if (version > 0) {
    text += absl::StrFormat(": %s, database %s, PostgreSQL %s", host,
                            Text(status, "/source/database"), VersionText(version));
  }
  return absl::StrFormat("%s%s slot %s, publication %s", text, version > 0 ? "," : ":",
                         Text(status, "/source/slot"), Text(status, "/source/publication"));
}

std::string KafkaText(const json& status) {
  std::string text = True(status, "/sink/connected") ? "connected" : "not connected, or not yet";
  std::string away;
  for (const json& broker : At(status, "/sink/brokers")) {
    if (!True(broker, "/up")) {
      away += (away.empty() ? "" : ", ") + Text(broker, "/address");
    }
  }
  return away.empty() ? text : absl::StrFormat("%s; no connection to %s", text, away);
}

// How much may be written until the slot is lost; empty = not known yet.
std::string RoomText(const json& status) {
  const json& limited = At(status, "/wal_room/limited");
  if (!limited.is_boolean()) {
    return "";
  }
  if (!limited.get<bool>()) {
    return "without a limit (max_slot_wal_keep_size is -1): in the end the disk is full";
  }
  if (At(status, "/wal_room/safe_bytes").is_null()) {
    return "";
  }
  std::string text = absl::StrFormat("%s of WAL until the slot may be lost",
                                     BytesText(Number(status, "/wal_room/safe_bytes")));
  if (!At(status, "/wal_room/seconds_left").is_null()) {
    constexpr std::uint64_t kHundredYears = 3'153'600'000;
    text += absl::StrFormat("; at %s a second in %s",
                            BytesText(Number(status, "/wal_room/written_bytes_per_second")),
                            DurationText(std::chrono::seconds(std::min(
                                Number(status, "/wal_room/seconds_left"), kHundredYears))));
  }
  return text;
}

// What monitor.conninfo reports; empty = there is none.
std::string MonitorText(const json& status) {
  if (!At(status, "/monitor").is_object()) {
    return "";
  }
  if (!True(status, "/monitor/up")) {
    return "no answer: " + Text(status, "/monitor/error");
  }
  if (!At(status, "/monitor/slot").is_object()) {
    return True(status, "/monitor/in_recovery") ? "a standby, which does not see the slot"
                                                : "there is no such slot";
  }
  return absl::StrFormat("%s, keeps %s of WAL", Text(status, "/monitor/slot/wal_status"),
                         BytesText(Number(status, "/monitor/slot/retained_bytes")));
}

// A worse one replaces what was found before.
void Find(Judgement::Level level, std::string why, Judgement* judgement) {
  if (level > judgement->level) {
    *judgement = Judgement{level, std::move(why)};
  }
}

template <typename T>
Judgement::Level LevelOf(T value, T warning, T critical) {
  return value >= critical  ? Judgement::Level::kCritical
         : value >= warning ? Judgement::Level::kWarning
                            : Judgement::Level::kOk;
}

}  // namespace

std::string BytesText(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) {
    return absl::StrFormat("%d B", bytes);
  }
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string DurationText(milliseconds duration) {
  const std::int64_t seconds = duration.count() / 1000;
  if (seconds < 60) {
    return absl::StrFormat("%.1f s", static_cast<double>(duration.count()) / 1000);
  }
  if (seconds < 3600) {
    return absl::StrFormat("%d min %d s", seconds / 60, seconds % 60);
  }
  if (seconds < 86'400) {
    return absl::StrFormat("%d h %d min", seconds / 3600, seconds / 60 % 60);
  }
  return absl::StrFormat("%d d %d h", seconds / 86'400, seconds / 3600 % 24);
}

Judgement JudgeStatus(const json& status, bool live, const Thresholds& thresholds) {
  const std::string state = Text(status, "/state");
  Judgement judgement{Judgement::Level::kOk, state};
  const std::uint64_t parked = Number(status, "/events/parked_keys");
  if (parked > 0) {
    Find(Judgement::Level::kWarning, absl::StrFormat("%d parked keys", parked), &judgement);
  }
  const std::uint64_t lag = Number(status, "/source/lag_bytes");
  Find(LevelOf(lag, thresholds.lag_warning, thresholds.lag_critical),
       absl::StrFormat("%s, %s behind", state, BytesText(lag)), &judgement);
  if (const auto waits = AgeOf(status, "/in_flight/oldest_commit_at")) {
    Find(LevelOf(*waits, thresholds.wait_warning, thresholds.wait_critical),
         absl::StrFormat("%s, Kafka has not taken an event since %s", state, DurationText(*waits)),
         &judgement);
  }
  const auto since = AgeOf(status, "/state_since");
  if (since && (state == "starting" || state == "reconnecting" || state == "draining")) {
    Find(LevelOf(*since, thresholds.wait_warning, thresholds.wait_critical),
         absl::StrFormat("%s since %s", state, DurationText(*since)), &judgement);
  }
  if (state == "halted") {
    judgement = {Judgement::Level::kCritical, "halted: " + ReasonOf(status)};
  }
  if (!live) {
    judgement = {Judgement::Level::kCritical, "the process hangs"};
  }
  return judgement;
}

std::string StatusAsText(const json& status, bool live) {
  const std::string state = Text(status, "/state");
  std::string text = absl::StrFormat(
      "%s: %s%s, since %s\n", Text(status, "/name"), state,
      state == "halted" ? absl::StrFormat(" (%s)", ReasonOf(status)) : std::string(),
      AgoText(status, "/state_since"));
  if (!live) {
    text += Line("hangs", "these figures are of " + Text(status, "/taken_at") +
                              "; the loop has not turned since");
  }
  if (state == "halted") {
    text += Line("because", Text(status, "/halt/detail"));
  }
  text += Line("source", SourceText(status));
  text += Line("kafka", KafkaText(status));
  text += Line(
      "positions",
      absl::StrFormat("server %s, received %s, in Kafka %s, confirmed %s",
                      Text(status, "/source/server_wal_lsn"), Text(status, "/source/received_lsn"),
                      Text(status, "/source/safe_lsn"), Text(status, "/source/confirmed_lsn")));
  text += Line("lag", LagText(status));
  if (const std::string room = RoomText(status); !room.empty()) {
    text += Line("room", room);
  }
  if (const std::string monitor = MonitorText(status); !monitor.empty()) {
    text += Line("slot", monitor);
  }
  text += Line("in flight",
               absl::StrFormat("%d events, %s of at most %s", Number(status, "/in_flight/events"),
                               BytesText(Number(status, "/in_flight/bytes")),
                               BytesText(Number(status, "/in_flight/bytes_max"))));
  text +=
      Line("events",
           absl::StrFormat("%d received, %d delivered since %s", Number(status, "/events/received"),
                           Number(status, "/events/delivered"), Text(status, "/started_at")));
  text += Line("last event", AgoText(status, "/events/last_delivered_at"));
  text += Line(
      "undeliverable",
      absl::StrFormat("%d dead-lettered, %d parked (%d keys now), %d skipped",
                      Number(status, "/events/dead_lettered"), Number(status, "/events/parked"),
                      Number(status, "/events/parked_keys"), Number(status, "/events/skipped")));
  if (!At(status, "/last_error").is_null()) {
    text += Line("last error", At(status, "/last_error_at").is_null()
                                   ? Text(status, "/last_error")
                                   : absl::StrFormat("%s: %s", AgoText(status, "/last_error_at"),
                                                     Text(status, "/last_error")));
  }
  if (Text(status, "/gap_guard") == "off") {
    text += Line("gap guard", "off: a slot that somebody else moved is not noticed");
  }
  return text + Line("to do", NextOf(status, live));
}

Judgement JudgeSlot(const std::optional<postgres::SlotInfo>& slot) {
  if (!slot) {
    return {Judgement::Level::kCritical, "walpost does not answer, and its slot does not exist"};
  }
  if (slot->lost()) {
    return {Judgement::Level::kCritical, "walpost does not answer, and its slot is lost"};
  }
  return slot->active ? Judgement{Judgement::Level::kUnknown,
                                  "walpost does not answer here, but its slot is "
                                  "being read"}
                      : Judgement{Judgement::Level::kCritical,
                                  "walpost does not run: nobody reads its slot"};
}

std::string SlotAsText(const std::string& name, const std::optional<postgres::SlotInfo>& slot) {
  if (!slot) {
    return Line("slot", absl::StrFormat("%s does not exist", name)) +
           Line("to do", "`walpost check`; docs/runbook.md, section slot_missing");
  }
  std::string text = Line(
      "slot", absl::StrFormat("%s, %s, confirmed %s", name,
                              slot->active ? absl::StrFormat("read by PID %d", slot->active_pid)
                                           : std::string("read by nobody"),
                              slot->confirmed_flush_lsn.ToString()));
  text += Line(
      "keeps",
      absl::StrFormat("%s of WAL (%s), %s",
                      slot->retained_bytes ? BytesText(static_cast<std::uint64_t>(
                                                 std::max<std::int64_t>(*slot->retained_bytes, 0)))
                                           : "-",
                      slot->wal_status,
                      slot->safe_wal_size
                          ? absl::StrFormat("lost after %s more",
                                            BytesText(static_cast<std::uint64_t>(
                                                std::max<std::int64_t>(*slot->safe_wal_size, 0))))
                          : std::string("without a limit: in the end the disk is full")));
  if (slot->lost()) {
    return text + Line("to do", "docs/runbook.md, section slot_invalidated");
  }
  return text + Line("to do", slot->active
                                  ? "ask where it runs: `walpost status --url http://HOST:9464`"
                                  : "start it: `systemctl start walpost`, or `walpost run`; its "
                                    "log says why it ended");
}

std::string PluginLine(const Judgement& judgement, const json& status) {
  constexpr const char* kNames[] = {"OK", "WARNING", "CRITICAL", "UNKNOWN"};
  std::string line =
      absl::StrFormat("WALPOST %s: %s", kNames[static_cast<int>(judgement.level)], judgement.why);
  if (status.is_object()) {
    const auto waits = AgeOf(status, "/in_flight/oldest_commit_at").value_or(milliseconds(0));
    line += absl::StrFormat(
        " | lag=%dB in_flight=%d wait=%.1fs parked_keys=%d", Number(status, "/source/lag_bytes"),
        Number(status, "/in_flight/events"), static_cast<double>(waits.count()) / 1000,
        Number(status, "/events/parked_keys"));
  }
  return line + "\n";
}

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
  // Once walpost is gone, anybody on this machine may listen where it did; and probes are open to
  // all.
  StatusOptions open = options;
  open.token.clear();
  const absl::StatusOr<HttpAnswer> answer = Get(open, ready ? "/readyz" : "/livez");
  if (!answer.ok()) {
    return Outcome{kUnhealthy, "", std::string(answer.status().message())};
  }
  return Outcome{answer->code == 200 ? 0 : kUnhealthy, answer->body, ""};
}

}  // namespace walpost::operations
