// TableMapper - turns the inserts of one outbox table into events, by the column mapping.
// Why: columns are found by name in the Relation in force, so that a column added, moved or
//   re-typed between two rows of one transaction is read right.
// Thread: one owner.   Lifetime: events live until the next Map call.
// Limits: nothing is allocated per row once warm, but for headers other than {} and for a time in
//   text form.
// Errors: Bind: kFailedPrecondition (halt schema_mismatch) when a mandatory column is missing or of
//   a type that is not understood; the message names table, column, what was found and what to do.
//   Map: kInvalidArgument (an undeliverable event) for a NULL in a mandatory column, an illegal
//   topic or a header that is not text; kDataLoss when the row does not fit the Relation. Messages
//   hold no row values other than the event's id and the topic.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "outbox/event.h"
#include "outbox/options.h"
#include "pgoutput/message.h"

namespace walpost::outbox {

class TableMapper {
 public:
  explicit TableMapper(TableOptions options);
  ~TableMapper();
  TableMapper(TableMapper&&) noexcept;
  TableMapper& operator=(TableMapper&&) noexcept;

  // To be called with every type of this table, before Bind: a domain arrives under an OID of its
  // own, but its values in the form of the type below it.
  void Learn(const pgoutput::Type& type);

  // Types made by users whose values are text: SourceFacts::text_types, in order. Others are not
  // read.
  void SetTextTypes(std::vector<std::uint32_t> oids);

  // To be called with every Relation message of this table, before its next row.
  absl::Status Bind(const pgoutput::Relation& relation);

  // Forgets the binding and the types; for a new connection, and when the table's types come again.
  void Unbind();

  // The built-in type that values of this one look like, the type itself where it was made by users
  // and is text, or 0 for what is not read.
  std::uint32_t ReadableType(std::uint32_t oid) const;

  // CHECK-fails when unbound.
  absl::Status Map(std::span<const pgoutput::Value> values, Event* event);

  const TableOptions& options() const;

  const TopicRules& topic_rules() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walpost::outbox
