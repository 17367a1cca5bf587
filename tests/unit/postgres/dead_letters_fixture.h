// DeadLettersServerTest - walpost.dead_letters on a real server, and rows for it.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "postgres/dead_letters.h"
#include "support/postgres_server.h"

namespace walpost::postgres {

inline constexpr char kPipeline[] = "orders";

class DeadLettersServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<testing::PostgresServer>();
    auto connection = SqlConnection::Connect(server_->Conninfo(), "test");
    ASSERT_TRUE(connection.ok()) << connection.status();
    ASSERT_TRUE(connection->Execute(Script()).ok());
    ASSERT_TRUE(connection->Execute(Script()).ok()) << "applying it again";
  }

  static std::string Script() {
    std::ifstream file(WALPOST_SOURCE_DIR "/sql/V1__walpost.up.sql");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override {
    server_->Sql("TRUNCATE walpost.dead_letters, walpost.dead_letter_count RESTART IDENTITY");
    table_.emplace(Open(kPipeline));
  }

  static DeadLetterTable Open(const std::string& pipeline) {
    auto table = DeadLetterTable::Open(server_->Conninfo(), "test", pipeline, {});
    EXPECT_TRUE(table.ok()) << table.status();
    return *std::move(table);
  }

  // Behind the place of every row.
  static constexpr char kEnd[] = "z";

  // In the stream of this cluster.
  static std::string At(std::uint64_t lsn, std::uint32_t ordinal = 0) {
    const std::string here =
        server_->Sql("SELECT lpad(to_hex(system_identifier), 16, '0') FROM pg_control_system()");
    return absl::StrFormat("%s-00000001-%016x-%08x", here, lsn, ordinal);
  }

  static base::DeadLetter RowAt(const std::string& position, const std::string& key, bool parked) {
    base::DeadLetter row;
    row.position = position;
    row.event_id = "id-" + position;
    row.event_type = "Made";
    row.source = "outbox.events";
    row.topic = "orders";
    row.key = key;
    row.value = "value of " + position;
    row.headers = {{"id", "id-" + position}, {"none", std::nullopt}, {"", ""}};
    row.reason = "record_too_large";
    row.detail = "too large";
    row.attempts = 1;
    row.parked = parked;
    return row;
  }

  std::vector<bool> InsertOk(const std::vector<base::DeadLetter>& rows) {
    auto inserted = table_->Insert(rows);
    EXPECT_TRUE(inserted.ok()) << inserted.status();
    std::vector<bool> open;
    for (const base::DeadLetterState state : inserted->states) {
      open.push_back(state == base::DeadLetterState::kOpen);
    }
    return open;
  }

  std::vector<std::string> PositionsOf(const std::string& key) {
    std::vector<std::string> positions;
    const auto rows = table_->ReadKey("orders", key, kEnd, 100);
    EXPECT_TRUE(rows.ok()) << rows.status();
    for (const base::DeadLetter& row : *rows) {
      positions.push_back(row.position);
    }
    return positions;
  }

  // Until so many wait for a lock.
  static void AwaitBlocked(const std::string& count) {
    while (server_->Sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") !=
           count) {
      std::this_thread::yield();
    }
  }

  inline static std::unique_ptr<testing::PostgresServer> server_;
  std::optional<DeadLetterTable> table_;
};

}  // namespace walpost::postgres
