// One well-formed payload of every shape a message can have, for tests that damage them.
#pragma once

#include <string>
#include <vector>

#include "support/pgoutput_bytes.h"

namespace walpost::pgoutput {

// In the values of all samples, to see that no error message repeats it.
inline constexpr char kSecret[] = "s3cret";

inline Relation SampleRelation() {
  Relation relation;
  relation.id = RelationId{16400};
  relation.schema = "outbox";
  relation.name = "events";
  relation.replica_identity = 'd';
  relation.columns = {{"id", 2950, -1, true}, {"note", 1043, 24, false}, {"raw", 17, -1, false}};
  return relation;
}

inline std::vector<std::string> SampleMessages() {
  using namespace walpost::testing;  // NOLINT: names nothing else here
  const base::WallTime time = base::FromPostgresMicros(762'523'200'123'456);
  const RelationId id{16400};
  const Tuple row = {TextColumn(kSecret), NullColumn(), BinaryColumn(std::string("\0\xff", 2)),
                     TextColumn("")};
  const Tuple toasted = {TextColumn(kSecret), UnchangedToastColumn(), NullColumn()};
  const Tuple key = {TextColumn(kSecret), NullColumn(), NullColumn()};
  Relation no_columns = SampleRelation();
  no_columns.columns.clear();
  return {BeginBytes(base::Lsn(0x100), base::Xid{7}, time),
          CommitBytes(base::Lsn(0x100), base::Lsn(0x130), time),
          OriginBytes(base::Lsn(0x90), "elsewhere"),
          RelationBytes(SampleRelation()),
          RelationBytes(no_columns),
          TypeBytes(16390, "public", "mood"),
          InsertBytes(id, row),
          InsertBytes(id, {}),
          UpdateBytes(id, toasted),
          UpdateBytes(id, row, 'K', key),
          UpdateBytes(id, toasted, 'O', row),
          DeleteBytes(id, 'K', key),
          DeleteBytes(id, 'O', row),
          TruncateBytes({id, RelationId{16401}}, /*cascade=*/true),
          TruncateBytes({}),
          LogicalMessageBytes(/*transactional=*/true, base::Lsn(0x90), "orders", kSecret),
          LogicalMessageBytes(/*transactional=*/false, base::Lsn(0x90), "", ""),
          StreamAbortBytes(base::Xid{700}, base::Xid{701})};
}

}  // namespace walpost::pgoutput
