#include "runner.h"

#include <glog/logging.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "simulation.h"
#include "simulation/seeded_bug.h"
#include "violation.h"

namespace walpost::simulation {
namespace {

constexpr unsigned kHistorySecondsMax = 20;

// What the processes of one Play share.
struct Board {
  std::atomic<bool> failed{false};
  std::atomic<std::uint64_t> histories{0};
  std::atomic<std::uint64_t> events{0};
  std::atomic<std::uint64_t> playing[kJobsMax] = {};  // the seed, by process
  std::uint64_t seed = 0;                             // of the first that failed
  char what[1000] = {};
};

// Of this process.
Board* g_board = nullptr;
unsigned g_job = 0;
const Simulation* g_simulation = nullptr;

void Fail(std::string_view what) {
  if (!g_board->failed.exchange(true)) {
    g_board->seed = g_board->playing[g_job];
    const std::string text =
        absl::StrFormat("turn %u: %s", g_simulation == nullptr ? 0 : g_simulation->turn(), what);
    std::strncpy(g_board->what, text.c_str(), sizeof(g_board->what) - 1);
  }
  std::fflush(stdout);
  _exit(1);
}

// glog has the text; this is where a failed CHECK ends.
class CheckText final : public google::LogSink {
 public:
  void send(google::LogSeverity severity, const char* /*full_filename*/, const char* base_filename,
            int line, const google::LogMessageTime& /*time*/, const char* message,
            std::size_t size) override {
    if (severity == google::GLOG_FATAL) {
      Fail(absl::StrFormat("%s:%d: %s", base_filename, line, std::string(message, size)));
    }
  }
};

void OnSignal(int signal) { Fail(signal == SIGALRM ? "hangs" : "crashes"); }

void PlayHere(std::uint64_t seed, const Cuts& cuts, bool trace) {
  g_board->playing[g_job] = seed;
  alarm(kHistorySecondsMax);
  Simulation simulation(MakePlan(seed, cuts));
  g_simulation = &simulation;
  if (trace) {
    simulation.PrintTrace();
  }
  try {
    simulation.Run();
  } catch (const Violation& violation) {
    Fail(violation.what);
  }
  g_board->events += simulation.events();
  ++g_board->histories;
  g_simulation = nullptr;
}

void BecomePlayer(Board* board, unsigned job, int bug, bool quiet) {
  g_board = board;
  g_job = job;
  static CheckText check_text;
  google::AddLogSink(&check_text);
  for (const int each : {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) {
    signal(each, OnSignal);
  }
  if (quiet) {  // the sink has what matters; a sanitizer's report is seen with --trace
    PCHECK(std::freopen("/dev/null", "w", stderr) != nullptr);
  }
  SwitchOnSeededBug(bug);
}

template <typename Job>
Outcome InProcesses(unsigned processes, int bug, bool quiet, Job job) {
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  PCHECK(memory != MAP_FAILED);
  auto* board = ::new (memory) Board();
  std::fflush(stdout);
  std::vector<pid_t> children;
  for (unsigned i = 0; i < processes; ++i) {
    const pid_t child = fork();
    PCHECK(child >= 0);
    if (child == 0) {
      BecomePlayer(board, i, bug, quiet);
      job(i);
      std::fflush(stdout);
      _exit(0);
    }
    children.push_back(child);
  }
  Outcome outcome;
  for (std::size_t i = 0; i < children.size(); ++i) {
    int status = 0;
    waitpid(children[i], &status, 0);
    if (status != 0 && !board->failed) {
      outcome.failed = true;  // for example by a sanitizer
      outcome.seed = board->playing[i];
      outcome.what = absl::StrFormat("a process ended with status %d", status);
    }
  }
  if (board->failed) {
    outcome.failed = true;
    outcome.seed = board->seed;
    outcome.what = board->what;
  }
  outcome.histories = board->histories;
  outcome.events = board->events;
  munmap(memory, sizeof(Board));
  return outcome;
}

}  // namespace

Outcome Play(std::uint64_t first, std::uint64_t count, unsigned jobs, int bug) {
  return InProcesses(jobs, bug, true, [&](unsigned job) {
    for (std::uint64_t i = job; i < count && !g_board->failed; i += jobs) {
      PlayHere(first + i, Cuts(), false);
    }
  });
}

Outcome PlayOne(std::uint64_t seed, const Cuts& cuts, bool trace, int bug) {
  return InProcesses(1, bug, !trace, [&](unsigned /*job*/) { PlayHere(seed, cuts, trace); });
}

Cuts Shrink(std::uint64_t seed, Cuts cuts, int bug) {
  const auto fails = [&](const Cuts& candidate) {
    return PlayOne(seed, candidate, false, bug).failed;
  };
  for (unsigned i = 0; i < static_cast<unsigned>(Fault::count_); ++i) {
    const auto fault = static_cast<Fault>(i);
    if (!MakePlan(seed, cuts).faults.Has(fault)) {
      continue;
    }
    Cuts candidate = cuts;
    candidate.without.Add(fault);
    if (fails(candidate)) {
      cuts = candidate;
    }
  }
  const auto lower = [&](std::uint64_t Cuts::*maximum, std::uint64_t now) {
    for (std::uint64_t step = now / 2; step > 0 && now > step;) {
      Cuts candidate = cuts;
      candidate.*maximum = now - step;
      if (fails(candidate)) {
        cuts = candidate;
        now -= step;
      } else {
        step /= 2;
      }
    }
  };
  lower(&Cuts::transactions_max, MakePlan(seed, cuts).transactions);
  lower(&Cuts::turns_max, MakePlan(seed, cuts).turns);
  return cuts;
}

}  // namespace walpost::simulation
