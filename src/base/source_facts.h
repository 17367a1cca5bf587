// SourceFacts, Progress - what preflight read from PostgreSQL, and what Kafka remembers.
// Why here: postgres fills it in, pipeline checks it, observe shows it.   Thread: a value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/lsn.h"
#include "base/time.h"

namespace walpost::base {

// One line of TIMELINE_HISTORY: WAL of `timeline` ends at `end`.
struct TimelineEnd {
  std::uint32_t timeline = 0;
  Lsn end;
};

// Where a table or prefix became an outbox: what committed before was nobody's. The time is the
// server's, read behind the position. In a server that was set back, what is written anew stands
// before the position as well, but is later than the time.
struct Since {
  Lsn lsn;  // 0/0 = ever
  WallTime at;
  // Whose position it is, where something became an outbox. 0 = an operator decided so.
  std::uint32_t timeline = 0;

  // All that committed before `lsn` in the history that it is of.
  bool Covers(Lsn commit_lsn, WallTime commit_time) const {
    return commit_lsn < lsn && commit_time <= at;
  }

  friend bool operator==(const Since&, const Since&) = default;
};

// A transaction id, and how much of which log says that all lower ones were given. A server that
// has less of it gives some of them again.
struct XidAt {
  FullXid xid;  // 0 = not known
  std::uint32_t timeline = 0;
  Lsn lsn = {};

  friend bool operator==(const XidAt&, const XidAt&) = default;
};

// An outbox, as the publication holds it.
struct PublishedTable {
  std::uint32_t oid = 0;
  std::string schema;
  std::string name;
  // OIDs of the rows of pg_publication_rel and pg_publication_namespace that publish it. A table
  // that is taken out and added again has another one. While one of them stays, the table is
  // published whole. Empty = FOR ALL TABLES, or not known.
  std::vector<std::uint32_t> memberships = {};
  // Of all below it in its partition tree; of all else in the tree where it is a partition itself.
  // Not remembered.
  std::vector<std::uint32_t> partitions = {};
  std::vector<std::uint32_t> relatives = {};
  Since since = {};
  // Where not 0: only transactions from this id on hold its events, up to the timeline's end. Older
  // ones were open when it became an outbox; the server sends some, all or none of their rows.
  // A switch to a later timeline rolls back what is open, and the new primary may give an id again
  // that wrote nothing before. A prepared transaction that commits after it counts as newer.
  XidAt first_xid = {};

  // Whether a transaction of the timeline was open when it became an outbox.
  bool IsOlder(FullXid xid, std::uint32_t timeline) const {
    return timeline <= first_xid.timeline && xid < first_xid.xid;
  }

  // Whether a transaction with something new may hold events of it.
  bool HoldsEvents(FullXid xid, std::uint32_t timeline, Lsn commit_lsn,
                   WallTime commit_time) const {
    const bool xid_counts = first_xid.xid.value != 0 && timeline <= first_xid.timeline;
    return xid_counts ? xid >= first_xid.xid : !since.Covers(commit_lsn, commit_time);
  }
};

// Where tables that are not remembered become outboxes: PublishedTable has it from there on.
struct Adoption {
  Since since;
  XidAt first_xid;
};

// What the stream consists of: whatever decides which rows the server sends.
struct Fingerprint {
  std::uint32_t publication_oid = 0;  // 0 = not known
  // Of its row in pg_publication: each ALTER PUBLICATION ... SET, RENAME or OWNER writes it anew.
  std::uint32_t publication_xmin = 0;                        // 0 = not known
  std::vector<PublishedTable> tables;                        // the outbox tables
  std::vector<std::string> message_prefixes;                 // of logical messages that are events
  std::map<std::string, Since, std::less<>> prefixes_since;  // absent = ever
  // The catalogs were read after this position and this time (by the server's clock): every change
  // of them that committed before is in here. 0/0 = not known.
  Lsn looked_lsn;
  WallTime looked_at;

  // The table as it is in here; null = it is not.
  const PublishedTable* Find(const PublishedTable& table) const {
    const auto found = std::find_if(tables.begin(), tables.end(), [&](const PublishedTable& each) {
      return each.oid == table.oid || (each.schema == table.schema && each.name == table.name);
    });
    return found == tables.end() ? nullptr : &*found;
  }
};

// One of `prefixes` that is not among `others`; null = none.
const std::string* FindOther(const std::vector<std::string>& prefixes,
                             const std::vector<std::string>& others);

// Identifies a committed transaction in all histories. One exception: the time of a transaction
// that came through logical replication is its origin's, so all three may come again.
struct CommittedTransaction {
  Lsn commit_lsn;
  Xid xid;
  WallTime commit_time;

  friend bool operator==(const CommittedTransaction&, const CommittedTransaction&) = default;
};

// How far a pipeline has come, as Kafka remembers it: proto/walpost/v1/progress.proto.
struct Progress : Fingerprint {
  // Of the connection that wrote it (NextEpoch). The record of the highest epoch decides.
  std::uint64_t epoch = 0;
  static constexpr std::uint64_t kEpochMax = 1ULL << 56;  // above each time of PostgreSQL's, in ms
  std::uint64_t system_identifier = 0;
  std::uint32_t timeline = 1;
  Lsn end_lsn;
  // By the server's clock, when it had sent everything up to end_lsn, or later. 0 = not known.
  WallTime passed_at;
  WallTime recorded_at;
  // Of those that hold events and end at or before end_lsn, ascending: the last one without a
  // replication origin, and the later ones, which have one. Where there are more, the newest of
  // them. Empty = there was none since a first start or an operator's decision.
  static constexpr std::size_t kLastTransactionsMax = 65;
  std::vector<CommittedTransaction> last_transactions;
  // Rows that the pipeline had written to walpost.dead_letters, ever; 0 = not known.
  std::uint64_t dead_letters = 0;

  // Where the first of them commits; 0/0 = none.
  Lsn FirstKnown() const {
    return last_transactions.empty() ? Lsn() : last_transactions.front().commit_lsn;
  }
};

// The epoch of a connection that holds the slot: above those of earlier ones, so none of their
// records that lands late counts for more. `known`: the newest in Kafka. `at`: the server's clock,
// read by this connection.
std::uint64_t NextEpoch(std::uint64_t known, WallTime at);

struct SourceFacts : Fingerprint {
  std::uint64_t system_identifier = 0;
  std::uint32_t timeline = 1;
  std::vector<TimelineEnd> timeline_history;  // ancestors of `timeline`, oldest first
  int server_version = 0;                     // as PQserverVersion: 150018
  std::string database;
  std::string host;         // what the connection reached, for messages
  Lsn confirmed_flush_lsn;  // of the slot, when preflight read it
  // Of the slot. The server has it on its disk, and what it confirmed after a restart is no less.
  Lsn restart_lsn;
  Lsn consistent_point;  // where walpost.pipeline says that the slot began; 0/0 = not recorded
  std::optional<Progress> progress;  // remembered, and judged to fit the rest
  Lsn start_lsn;                     // what START_REPLICATION was given
  WallTime begun_at;                 // the server's clock behind that
  bool text_values = false;          // the stream brings no value in its binary form
  Lsn server_wal_lsn;                // IDENTIFY_SYSTEM's position
  // walpost.dead_letters may have rows of this pipeline that are open, or whose event comes again.
  bool may_have_dead_letters = false;
  bool dead_letters_come_again = false;  // the second; of a table elsewhere not known
  // No transaction that was over by the end of preflight has this id or a higher one; where a table
  // is adopted on a primary, none at all. 0 = not known.
  FullXid next_xid;
  Adoption adoption;
  bool in_recovery = false;  // a standby, which may be behind what it replayed before a restart
  // Types made by users whose values are text, in both forms: enums, citext, domains over them.
  std::vector<std::uint32_t> text_types;
  std::int64_t wal_sender_timeout_ms = 60'000;  // 0 = the server never times out
  std::optional<std::uint64_t> wal_keep_bytes;  // max_slot_wal_keep_size; absent = no limit

  // A standby may be promoted, or follow a promoted server, and the stream does not say so. What it
  // had replayed when its catalogs were read is of `timeline`.
  bool KnowsTimelineUpTo(Lsn lsn) const { return !in_recovery || lsn <= looked_lsn; }

  // A standby that has not followed a switch to `other` yet. It may do so any moment.
  bool BehindTimeline(std::uint32_t other) const { return in_recovery && timeline < other; }

  // The timeline that `lsn` belongs to: the oldest ancestor that had not ended at it.
  std::uint32_t TimelineOf(Lsn lsn) const {
    for (const TimelineEnd& ancestor : timeline_history) {
      if (lsn < ancestor.end) {
        return ancestor.timeline;
      }
    }
    return timeline;
  }

  // May all before `end`, on the timeline `of`, be in this server's log? Only timelines and the
  // log's end are compared: a server that was set back on its timeline is seen only while it is
  // behind.
  bool MayHave(std::uint32_t of, Lsn end) const {
    if (!in_recovery && server_wal_lsn.valid() && end > server_wal_lsn) {
      return false;
    }
    return end <= EndOf(of);
  }

  // Where `of` ended in this server's history; 0/0 = it is not in there, the highest = it goes on.
  Lsn EndOf(std::uint32_t of) const;

  // Is `of` in the history of this server, and had it begun at `lsn`?
  bool HasBegun(std::uint32_t of, Lsn lsn) const {
    return EndOf(of).valid() && of <= TimelineOf(lsn);
  }

  // May this server, since it was set back, give an id below `given` again, or has it done so?
  bool MayGiveAgain(const XidAt& given) const {
    return given.xid.value != 0 &&
           (!MayHave(given.timeline, given.lsn) || (!in_recovery && next_xid < given.xid));
  }

  // As far as this server has its log. What stands behind that is of another history.
  Since Here(Since since) const;

  // The same for all that is remembered; an id that may be given again says nothing. True: it was
  // changed. Later this server's log may be as long as the other one, and nothing shows it.
  bool ForgetOtherLog(Fingerprint* remembered) const;

  // What is to be remembered when everything before `position` is in Kafka. The caller adds when,
  // and on whose decision. Its timeline is that of the position, also when an operator goes on
  // before a switch: a newer timeline counts more than a higher position.
  Progress ProgressAt(Lsn position) const {
    Progress there;
    there.system_identifier = system_identifier;
    there.timeline = TimelineOf(position);
    there.end_lsn = position;
    static_cast<Fingerprint&>(there) = *this;
    return there;
  }

  // The same for an operator's decision to go on at `position`. Earlier ids and decisions are
  // forgotten: they may be of another history. What was nobody's stays so, as far as this history
  // has it.
  Progress DecisionAt(Lsn position, WallTime now, const std::optional<Progress>& newest) const;
};

}  // namespace walpost::base
