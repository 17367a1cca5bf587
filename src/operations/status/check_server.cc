#include "operations/status/check_parts.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "kafka/client.h"
#include "postgres/connection.h"

namespace walpost::operations {

std::string VersionText(const std::string& version) {
  return absl::StrFormat("walpost %s\nlibpq %s\nlibrdkafka %s\n", version, postgres::LibpqVersion(),
                         kafka::LibrdkafkaVersion());
}

namespace {

constexpr int kMajor = 10'000;
constexpr int kFixed[] = {130'021, 140'018, 150'013, 160'009, 170'005};

}  // namespace

int FirstThatLearnsOfAddedTables(int server_version) {
  const auto* const fixed = std::find_if(std::begin(kFixed), std::end(kFixed), [&](int first) {
    return first / kMajor == server_version / kMajor;
  });
  return fixed == std::end(kFixed) ? 0 : *fixed;
}

namespace {

using postgres::Cell;
using postgres::Row;
using postgres::SqlConnection;
using std::chrono::microseconds;
using std::chrono::system_clock;
using Clock = std::function<system_clock::time_point()>;

// The share of max_slot_wal_keep_size below which docs/monitoring warns as well.
constexpr double kRoomWanted = 0.3;
// What the delays that walpost reports may be wrong by.
constexpr microseconds kSkewMax{1'000'000};
constexpr std::int64_t kSenderTimeoutMinMs = 1'000;

std::int64_t Number(const Cell& cell) {
  std::int64_t value = 0;
  (void)absl::SimpleAtoi(cell.value_or(""), &value);
  return value;
}

class ServerCheck {
 public:
  ServerCheck(const std::string& slot, SqlConnection* connection, const Clock& now)
      : slot_(slot), connection_(connection), now_(now) {}

  void Run() {
    Release();
    Capacity();
    Room();
    Retention();
    SenderTimeout();
    Encoding();
    CompareClocks();
  }

  std::vector<CheckLine> Take() { return found_.Take(); }

 private:
  void Release() {
    const auto text = [](int version) {
      return absl::StrFormat("%d.%d", version / 10'000, version % 10'000);
    };
    const int version = connection_->server_version();
    const int fixed = FirstThatLearnsOfAddedTables(version);
    if (version >= fixed) {
      found_.Ok("minor release", text(version));
      return;
    }
    found_.Warn("minor release",
                absl::StrFormat("%s: a table that is added to the publication while a transaction "
                                "that has written to it is open may lose its later events until "
                                "walpost connects again; update to %s or newer "
                                "(docs/postgresql-versions.md)",
                                text(version), text(fixed)));
  }

  // A standby, a backup or a second walpost may have taken them all.
  void Capacity() {
    const std::optional<Row> row = One(
        "replication slots",
        "SELECT (SELECT count(*) FROM pg_replication_slots), "
        "current_setting('max_replication_slots'), EXISTS (SELECT FROM pg_replication_slots WHERE "
        "slot_name = $1), (SELECT count(*) FROM pg_stat_replication), "
        "current_setting('max_wal_senders')",
        {slot_});
    if (!row) {
      return;
    }
    const std::string slots =
        absl::StrFormat("%s of %s are in use", row->at(0).value_or(""), row->at(1).value_or(""));
    if (Number(row->at(0)) < Number(row->at(1))) {
      found_.Ok("replication slots", slots);
    } else if (row->at(2) == "t") {
      found_.Warn(
          "replication slots",
          slots +
              ": `slot recreate` and `tail` need one more; drop what nobody reads (`walpost "
              "slot list`), or raise max_replication_slots");
    } else {
      found_.Fail("replication slots", slots +
                                           ", and ours is not among them: drop what nobody reads "
                                           "(`walpost slot list`), or raise max_replication_slots");
    }
    const std::string senders =
        absl::StrFormat("%s of %s are in use", row->at(3).value_or(""), row->at(4).value_or(""));
    Number(row->at(3)) < Number(row->at(4))
        ? found_.Ok("walsenders", senders)
        : found_.Warn("walsenders",
                      senders +
                          ": a second walpost, a standby or a reconnect may find none; "
                          "raise max_wal_senders");
  }

  void Room() {
    const auto rows = connection_->Query(
        "SELECT wal_status, safe_wal_size, pg_size_pretty(safe_wal_size), (SELECT "
        "setting::bigint * 1048576 FROM pg_settings WHERE name = 'max_slot_wal_keep_size') FROM "
        "pg_replication_slots WHERE slot_name = $1",
        {slot_});
    if (!rows.ok()) {
      found_.Warn("slot room", std::string(rows.status().message()));
      return;
    }
    if (rows->empty() || rows->front().at(0).value_or("lost") == "lost") {
      return;  // the lines about the slot say it
    }
    const Row& row = rows->front();
    if (!row.at(1)) {
      found_.Ok("slot room", "without a limit");
      return;
    }
    const std::string left = row.at(2).value_or("") + " of WAL until the slot is lost";
    if (row.at(0) == "unreserved" || Number(row.at(1)) <= 0) {
      found_.Warn(
          "slot room",
          "used up: the next checkpoint may take the slot away. Start walpost, or raise "
          "max_slot_wal_keep_size and reload, now (docs/runbook.md#wal-grows-on-the-primary)");
    } else if (static_cast<double>(Number(row.at(1))) <
               kRoomWanted * static_cast<double>(Number(row.at(3)))) {
      found_.Warn("slot room",
                  left +
                      ": start walpost, or raise max_slot_wal_keep_size (docs/runbook.md"
                      "#wal-grows-on-the-primary)");
    } else {
      found_.Ok("slot room", left);
    }
  }

  // Settings that can take the slot away while walpost is down.
  void Retention() {
    const auto rows = connection_->Query(
        "SELECT name, setting FROM pg_settings WHERE name IN ('max_slot_wal_keep_size', "
        "'idle_replication_slot_timeout')");
    if (!rows.ok()) {
      found_.Warn("slot retention", std::string(rows.status().message()));
      return;
    }
    for (const Row& row : *rows) {
      const std::string setting = row.at(1).value_or("");
      if (row.at(0) == "max_slot_wal_keep_size" && setting == "-1") {
        found_.Warn(
            "max_slot_wal_keep_size",
            "unlimited: an outage of walpost or Kafka keeps WAL until the disk is full; set a "
            "limit your disk can hold, and alert on what the slot keeps (docs/metrics.md)");
      } else if (row.at(0) == "max_slot_wal_keep_size") {
        found_.Ok("max_slot_wal_keep_size", setting + " MB; beyond it the slot is lost");
      } else if (setting != "0") {
        found_.Warn("idle_replication_slot_timeout",
                    setting +
                        " s: the slot is lost when walpost is down, or waits for Kafka "
                        "without a connection, for longer; set it to 0");
      }
    }
  }

  void SenderTimeout() {
    const std::optional<Row> row =
        One("wal_sender_timeout",
            "SELECT setting, current_setting(name) FROM pg_settings WHERE name = "
            "'wal_sender_timeout'",
            {});
    if (!row) {
      return;
    }
    const std::int64_t timeout_ms = Number(row->at(0));
    const std::string shown = row->at(1).value_or("");
    timeout_ms == 0 || timeout_ms >= kSenderTimeoutMinMs
        ? found_.Ok("wal_sender_timeout", timeout_ms == 0 ? "off" : shown)
        : found_.Warn("wal_sender_timeout",
                      shown +
                          ": the server may drop walpost's connection before an answer can "
                          "reach it; set it to 60s, for this role or for all");
  }

  // SQL_ASCII converts nothing, so nothing fails there.
  void Encoding() {
    const std::optional<Row> row = One("encoding", "SELECT current_setting('server_encoding')", {});
    if (!row || row->at(0) == "SQL_ASCII") {
      return;
    }
    const std::string encoding = row->at(0).value_or("");
    encoding == "UTF8"
        ? found_.Ok("encoding", encoding)
        : found_.Warn(
              "encoding",
              encoding +
                  ": a character that UTF-8 lacks, in a row or a logical message, stops "
                  "the line (poison_wal); move to a database in UTF8, and REVOKE EXECUTE "
                  "on pg_logical_emit_message FROM PUBLIC (docs/database.md#emit-an-event)");
  }

  // The delays of /status and of the metrics are our time less the server's.
  void CompareClocks() {
    const auto before = now_();
    const std::optional<Row> row =
        One("clock", "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", {});
    if (!row) {
      return;
    }
    const auto after = now_();
    const system_clock::time_point there(microseconds(Number(row->at(0))));
    // The answer was given at some moment between the two.
    const auto ahead = std::chrono::duration_cast<microseconds>(there - after);
    const auto behind = std::chrono::duration_cast<microseconds>(before - there);
    if (ahead < kSkewMax && behind < kSkewMax) {
      found_.Ok("clock", "agrees with the server's");
      return;
    }
    const microseconds skew = std::max(ahead, behind);
    found_.Warn("clock",
                absl::StrFormat(
                    "the server's is %.1f s %s: reported delays are wrong by as much; see to "
                    "the time service (NTP) of both",
                    static_cast<double>(skew.count()) / 1e6, ahead > behind ? "ahead" : "behind"));
  }

  std::optional<Row> One(const std::string& name, std::string_view sql,
                         const std::vector<Cell>& parameters) {
    auto rows = connection_->Query(sql, parameters);
    if (!rows.ok()) {
      found_.Warn(name, std::string(rows.status().message()));
      return std::nullopt;
    }
    return std::move(rows->front());
  }

  const std::string& slot_;
  SqlConnection* const connection_;
  const Clock& now_;
  CheckLines found_;
};

}  // namespace

std::vector<CheckLine> CheckServer(const std::string& slot, SqlConnection* connection,
                                   const Clock& now) {
  ServerCheck check(slot, connection, now);
  check.Run();
  return check.Take();
}

}  // namespace walpost::operations
