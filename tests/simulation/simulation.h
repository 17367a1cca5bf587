// Simulation - one history: the real pipeline between a model server and a model Kafka, on a clock
// that jumps, with faults drawn from a seed, judged at every turn.
// Why: what goes wrong together goes wrong once in a million hours; here that is a minute. How: a
//   turn does what runtime::Loop does in one, in the same order; what the world does meanwhile is
//   drawn before it. After the planned turns nothing goes wrong any more, and everything must
//   arrive.
// Thread: one owner.
// Errors: throws Violation; a failed CHECK of the core ends the process.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/state.h"
#include "base/time.h"
#include "dead_letter_table.h"
#include "judge.h"
#include "model_kafka.h"
#include "model_postgres.h"
#include "pipeline/pipeline.h"
#include "plan.h"
#include "random.h"

namespace walpost::simulation {

// What one connection is, on both sides.
struct Connection {
  std::unique_ptr<Walsender> walsender;
  base::MonotonicTime last_status;
  std::optional<base::MonotonicTime> unreported_since;  // the safe LSN moved
  base::Lsn last_flush;
  base::Lsn complete;  // positions handed over with everything before them
  base::Lsn known;     // before it is what was read before, which has to come again
  std::uint64_t discarded_before = 0;
  base::MonotonicTime stopping_since;
  bool reply_due = false;                // a keepalive asked for it
  bool commit_pending = false;           // the last frame was inside a transaction
  bool probe_due = false;                // a status asked for a keepalive
  bool cut = false;                      // nothing arrives at the server any more
  base::MonotonicTime catches_up_until;  // it reads its log again, silently
  std::vector<base::Lsn> delayed;        // statuses on the way to the server
  std::optional<base::StreamEnd> end;    // not noticed yet

  // The network has lost it, and neither side knows.
  struct Lost {
    base::WallTime at;
    base::MonotonicTime given_up_at;  // by the server
    std::uint64_t frames_left = 0;    // on walpost's side
    bool pings_pass = true;
  };

  std::optional<Lost> lost;
};

// What other clients did that no operator has dealt with yet.
struct Foreign {
  bool slot = false;
  bool cluster = false;
  bool elsewhere = false;  // the cluster, only for a while
  bool timeline = false;
  bool set_back = false;
  bool table = false;
  bool publication = false;
  bool edited = false;  // the publication was changed, for a while
  bool progress = false;

  bool any() const {
    return slot || cluster || timeline || set_back || table || publication || edited || progress;
  }
};

class Simulation {
 public:
  explicit Simulation(const Plan& plan);

  void Run();

  std::uint64_t turn() const { return turn_; }

  std::uint64_t events() const { return server_.events().size(); }

  // What happened, a line each; for one history that is looked at.
  void PrintTrace() { trace_ = true; }

 private:
  // How the server and its connection are, beside the walsender's own state.
  enum class ServerState { kUp, kStopping, kDown };

  // --- The world (world.cc) ---
  void World();
  bool Happens(Fault fault, unsigned per_thousand);
  void ServerFaults();
  void WalpostFaults();
  void StopServer();
  void ServerDown();
  void LoseConnection(base::StreamEnd::Kind kind, const std::string& why);
  void ServerError();
  void ArriveStatuses();
  void DropConnection(bool slot_stays_taken);
  void FinishConnecting();
  std::optional<base::StreamEnd> RejectConnect();
  void Heal();

  // --- Other clients (foreign.cc) ---
  void Look();
  void AnswerLook();
  std::optional<base::StreamEnd> NotPublished() const;
  void CheckEdit() const;
  bool CutConnection(const std::string& why);
  void ForeignHands();
  void SetBack();
  void LosingFailover();
  void OtherActsLater();
  void LoseSilently();
  base::PingAnswer AnswerPing(base::PingQuestion question);
  void TakeOver();
  std::optional<base::StreamEnd> Guard(const std::optional<base::Progress>& known,
                                       base::SourceFacts* facts);
  void CheckAccepted(const base::SourceFacts& facts);
  void CheckRemembered();
  bool IsForeign(base::HaltReason reason) const;
  std::optional<base::Lsn> ForgottenDecision() const;
  void DeleteProgress();
  void SeeToForeignHands();

  // --- The table of dead letters (operator.cc) ---
  void DeadLetters();
  void AnswerDeadLetters();
  void AbandonStatements();
  std::uint64_t RowsKnown() const;
  void Schemas();
  void AnswerSchemas();
  void Operator();
  void OperatorReleases();
  void Decide(const base::DeadLetter& row, base::DeadLetter::Decision decision, bool of_key);
  void TakeDecisions();

  // --- Walpost's side: one turn of the loop ---
  void StartProcess();
  void CrashProcess();
  void SeeToProcess();
  void Resumed();
  void Turn();
  void Commands();
  void Statuses();
  int ReadFrames();
  bool TakeFrame();
  void EndOfStream();
  void HandFrame(const std::string& frame, bool keepalive, bool reply_requested);
  void Wait(int frames);

  // --- Oracles ---
  void CheckTurn();
  void CheckMemory();
  void CheckCounters();
  void CheckHalt();
  void CheckStatus(const pgoutput::StandbyStatus& status, const char* what);
  void CheckFinalStatus(const pgoutput::StandbyStatus& status);
  base::Lsn Remembered(base::Lsn none) const;
  bool Delivered() const;
  base::Lsn Complete() const;
  base::Lsn Confirmable(base::Lsn safe) const;
  void CheckConnection();
  void CheckSpinning();
  bool Settled();

  void Trace(const char* what, const std::string& more = "");

  const Plan plan_;
  Random random_;
  Random time_;
  std::vector<Random> fault_random_;  // a stream for each
  ModelPostgres server_;
  Judge judge_;
  ModelKafka kafka_;
  DeadLetterTable dead_letters_;
  Random operator_;
  Random registry_;
  std::unique_ptr<pipeline::Pipeline> pipeline_;
  std::optional<Connection> connection_;

  bool trace_ = false;
  bool healed_ = false;
  std::uint64_t turn_ = 0;
  base::Now now_;
  base::MonotonicTime next_write_;

  ServerState server_state_ = ServerState::kUp;
  base::MonotonicTime server_back_at_;
  base::MonotonicTime slot_free_at_;  // an old walsender holds it until then
  std::optional<base::HaltReason> operator_reason_;

  // An attempt.
  struct Attempt {
    base::Lsn start;
    std::optional<base::Progress> known;
  };

  std::optional<Attempt> connecting_;
  base::MonotonicTime connected_at_;  // when the attempt comes to its end
  base::MonotonicTime recover_at_;    // a halted or stopped process is seen to

  Foreign foreign_;
  base::Lsn set_back_from_;                           // the end of the log that is gone
  std::optional<base::MonotonicTime> other_acts_at_;  // another instance holds the slot
  bool other_acted_ = false;                          // and the topic alone knows how far it came
  bool prefix_adopted_ = false;                       // by another instance
  bool yields_ = false;  // to another instance: what is in memory is being given up
  bool foreign_halt_ = false;
  bool late_halt_ = false;                      // by progress of a process that is gone
  std::optional<std::uint64_t> decided_epoch_;  // of the operator's last decision
  std::optional<base::SourceFacts> accepted_;   // in this process
  base::Lsn handed_;                            // how far it could know of, the same

  // What is asked of the table.
  struct Statement {
    base::MonotonicTime due;
    pipeline::DeadLetterRequest request;
    std::optional<pipeline::DeadLetterReply> reply;  // absent = not carried out yet
  };

  std::deque<Statement> statements_;  // in their order

  // Of the Schema Registry.
  struct SchemaAnswer {
    base::MonotonicTime due;
    pipeline::SchemaLookUp look_up;
  };

  std::optional<SchemaAnswer> schema_answer_;

  // Of the catalogs.
  struct LookAnswer {
    base::MonotonicTime due;
    std::uint64_t look = 0;
    base::Lsn wal_lsn;  // read first
  };

  std::optional<LookAnswer> look_answer_;
  std::size_t most_open_ = 0;           // dead letters, in this turn
  bool dead_letters_unusable_ = false;  // walpost knows it
  std::uint64_t rows_written_ = 0;      // that this process knows of

  bool stopping_ = false;  // Stop() was called
  base::MonotonicTime stop_since_;
  bool halt_seen_ = false;
  std::uint64_t processes_ = 0;
  base::MonotonicTime finishing_until_;  // CopyDone sent
  std::map<std::string, int> errors_;    // of the server, by place
  base::Lsn furthest_;                   // that a stream has come to
  int losses_ = 0;                       // of the connection since
  base::MonotonicTime spinning_at_;      // a deadline that passed
  int spins_ = 0;
  int burst_ = 0;  // keepalives of a server that stops, in this turn
};

}  // namespace walpost::simulation
