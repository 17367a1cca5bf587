// EventRouter - what Debezium's Event Router does beyond the mapping of columns: the topic by
// regex, placed columns, the value as JSON, tombstones.
// Thread: one owner.   Lifetime: what it adds to an event lives until its next row.
// Limits: nothing is allocated per row once warm, but for values that are not text, and JSON.
// Errors: Bind: kFailedPrecondition (halt schema_mismatch). The others: kInvalidArgument (an
//   undeliverable event); never row values other than the event's id.
// Source: docs/migrate-from-debezium.md; tests/debezium.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "outbox/connect_value.h"
#include "outbox/event.h"
#include "outbox/options.h"
#include "outbox/topic_rules.h"
#include "pgoutput/message.h"

namespace walpost::outbox {

// A column of the Relation in force, seen through its domain.
struct BoundColumn {
  std::string name;
  std::uint32_t oid = 0;
  std::int32_t modifier = -1;
  bool is_domain = false;
  std::string type;  // for messages
};

class EventRouter {
 public:
  // `where` names the table in messages.
  EventRouter(const DebeziumOptions& options, std::string where);

  // `payload` is the index of the payload's column.
  absl::Status Bind(const std::vector<BoundColumn>& columns, int payload);

  // By the value of the routing column.
  absl::Status Route(std::string_view value, Event* event);

  // Partition and time of the record, its headers, and the payload as it goes out.
  absl::Status Place(std::span<const pgoutput::Value> values, Event* event,
                     std::vector<Header>* headers);

 private:
  struct Placed {
    const Placement* placement = nullptr;
    int index = -1;
    ConnectColumn column;
    std::string scratch;
  };

  absl::Status BindPlacement(const std::vector<BoundColumn>& columns, const Placement& placement);
  absl::Status BindTimestamp(const std::vector<BoundColumn>& columns);
  absl::Status PlaceTime(std::span<const pgoutput::Value> values, Event* event) const;
  absl::Status PlacePartition(std::span<const pgoutput::Value> values, Event* event) const;
  absl::Status PlaceHeaders(std::span<const pgoutput::Value> values, const Event& event,
                            std::vector<Header>* headers);
  absl::Status PlacePayload(std::span<const pgoutput::Value> values, Event* event);
  absl::Status AppendPayload(const pgoutput::Value& value);
  absl::Status Undeliverable(std::string_view column, const Event& event,
                             const absl::Status& why) const;

  const DebeziumOptions options_;
  const std::string where_;
  absl::StatusOr<TopicRouter> topics_;
  bool as_json_ = false;

  std::vector<Placed> headers_;
  std::vector<Placed> envelope_;
  int partition_ = -1;
  std::string partition_name_;
  std::uint32_t partition_oid_ = 0;
  int timestamp_ = -1;
  int payload_ = -1;
  std::string payload_name_;
  std::optional<ConnectColumn> payload_column_;
  std::string json_;
};

// TopicReach - which topics the events of an outbox may go to.
// Why: a record does not name its table. The configuration says whether two outboxes may send to
//   the same topic.
// Limits: may say yes where no row ever names the topic; says no only where none can.

// The pattern of what `topic`, or the regex in its place, can give; empty for one that is not
// understood.
std::string ImpliedTopics(const TableOptions& options);

class TopicReach {
 public:
  explicit TopicReach(const TableOptions& options);

  bool Holds(std::string_view topic) const;
  bool Meets(const TopicReach& other) const;

 private:
  using Patterns = std::vector<std::string>;

  std::vector<Patterns> limits_;  // a topic matches one pattern of each
};

}  // namespace walpost::outbox
