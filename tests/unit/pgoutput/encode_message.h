// EncodeMessage - a decoded message back to the bytes it came from, by the builders of the tests.
// Why: what the decoder accepted must mean exactly the bytes it was given, no byte unread or
// guessed.
#pragma once

#include <optional>
#include <string>

#include "pgoutput/message.h"
#include "support/pgoutput_bytes.h"

namespace walpost::pgoutput {

class MessageEncoder {
 public:
  using Bytes = std::optional<std::string>;

  Bytes operator()(const Begin& begin) const {
    return testing::BeginBytes(begin.commit_lsn, begin.xid, begin.commit_time);
  }

  Bytes operator()(const Commit& commit) const {
    return testing::CommitBytes(commit.commit_lsn, commit.end_lsn, commit.commit_time);
  }

  Bytes operator()(const Origin& origin) const {
    return testing::OriginBytes(origin.commit_lsn, origin.name);
  }

  Bytes operator()(const Relation& relation) const { return testing::RelationBytes(relation); }

  Bytes operator()(const Type& type) const {
    return testing::TypeBytes(type.oid, type.schema, type.name);
  }

  Bytes operator()(const Insert& insert) const {
    testing::Tuple row;
    for (const Value& value : insert.values) {
      row.push_back({KindLetter(value.kind), std::string(value.bytes)});
    }
    return testing::InsertBytes(insert.relation, row);
  }

  Bytes operator()(const Truncate& truncate) const {
    return testing::TruncateBytes({truncate.relations.begin(), truncate.relations.end()},
                                  truncate.cascade, truncate.restart_identity);
  }

  Bytes operator()(const LogicalMessage& message) const {
    return testing::LogicalMessageBytes(message.transactional, message.lsn, message.prefix,
                                        message.content);
  }

  Bytes operator()(const StreamAbort& abort) const {
    return testing::StreamAbortBytes(abort.xid, abort.subxid);
  }

  // Their tuples are checked but not kept.
  Bytes operator()(const Update&) const { return std::nullopt; }

  Bytes operator()(const Delete&) const { return std::nullopt; }

 private:
  static char KindLetter(Value::Kind kind) {
    switch (kind) {
      case Value::Kind::kText:
        return 't';
      case Value::Kind::kBinary:
        return 'b';
      case Value::Kind::kNull:
        return 'n';
      case Value::Kind::kUnchangedToast:
        break;
    }
    return 'u';
  }
};

// nullopt for Update and Delete.
inline std::optional<std::string> EncodeMessage(const Message& message) {
  return std::visit(MessageEncoder(), message);
}

}  // namespace walpost::pgoutput
