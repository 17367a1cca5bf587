// ServerFixture - a database of its own for every test, on one throwaway server for the program.
// Lifetime: slots belong to the whole server, so each test's are dropped after it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "operations/setup/init.h"
#include "operations/setup/slot_move.h"
#include "support/postgres_server.h"

namespace walpost::operations {

class ServerFixture : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  static walpost::testing::PostgresServer& Server();

  // In this test's database.
  std::string Sql(const std::string& statement) const;
  std::string Conninfo(const std::string& extra = "") const;

  const std::string& database() const { return database_; }

  // Pipeline `shop` on outbox.events; slot and publication are named `shop` as well.
  InitOptions Options() const;

  // For SlotRecreate without sending anything.
  static RecreateOptions LeavingGap(const InitOptions& init);

  // Init that must succeed.
  void InitOk() const;

  // Everything a verb could change: objects, publications, slots, records, with the transactions
  // that wrote them.
  std::string State() const;

  // Until no walsender holds a slot: a closed stream's is free only when its walsender has ended.
  static void AwaitFreeSlots();

  // Has the server read its settings again, and waits until it has.
  static void Reload();

 private:
  std::string database_;
};

}  // namespace walpost::operations
