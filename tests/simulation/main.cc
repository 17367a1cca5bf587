// simulation - plays histories, or one, or finds out whether seeded bugs are caught.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "plan.h"
#include "runner.h"
#include "simulation/seeded_bug.h"

namespace walpost::simulation {
namespace {

constexpr char kUsage[] =
    "usage: simulation [--histories N] [--first SEED] [--jobs N]\n"
    "       simulation --seed SEED [--trace] [--without FAULT,...] [--transactions N] [--turns N]\n"
    "       simulation --seeded-bugs [--histories N] [--known FILE]   (the build with seeded bugs "
    "only)\n"
    "       --bug NAME switches one seeded bug on in the first two\n";

constexpr std::uint64_t kHistories = 10'000;
// The rarest mistakes show in one history of some 70,000; a mistake that is caught ends its search.
constexpr std::uint64_t kHistoriesForOneBug = 200'000;

struct Arguments {
  std::uint64_t histories = 0;  // 0 = as many as usual
  std::uint64_t first = 1;
  unsigned jobs =
      static_cast<unsigned>(std::clamp<long>(sysconf(_SC_NPROCESSORS_ONLN), 1, kJobsMax));
  bool one = false;
  std::uint64_t seed = 0;
  bool trace = false;
  bool seeded_bugs = false;
  std::map<std::string, std::uint64_t, std::less<>>
      known;  // by bug: a history in which it showed once
  int bug = 0;
  Cuts cuts;
};

int FindBug(std::string_view name) {
  const std::vector<std::string_view>& bugs = SeededBugNames();
  const auto found = std::find(bugs.begin(), bugs.end(), name);
  return found == bugs.end() ? 0 : static_cast<int>(found - bugs.begin()) + 1;
}

bool ParseNumber(const char* text, std::uint64_t* number) {
  char* end = nullptr;
  *number = std::strtoull(text, &end, 10);
  return *text >= '0' && *text <= '9' && *end == '\0';
}

bool ReadKnown(const char* path, Arguments* arguments) {
  std::ifstream file(path);
  std::string bug;
  std::uint64_t seed = 0;
  while (file >> bug >> seed) {
    arguments->known[bug] = seed;
  }
  return file.eof() && !arguments->known.empty();
}

bool ParseOne(std::string_view name, const char* value, Arguments* arguments) {
  std::uint64_t number = 0;
  if (name == "--bug") {
    arguments->bug = FindBug(value);
    return arguments->bug != 0;
  }
  if (name == "--known") {
    return ReadKnown(value, arguments);
  }
  if (name == "--without") {
    return arguments->cuts.without.Parse(value);
  }
  if (!ParseNumber(value, &number)) {
    return false;
  }
  if (name == "--histories") {
    arguments->histories = number;
  } else if (name == "--first") {
    arguments->first = number;
  } else if (name == "--jobs") {
    arguments->jobs = static_cast<unsigned>(std::min<std::uint64_t>(number, kJobsMax + 1));
    return number > 0 && number <= kJobsMax;
  } else if (name == "--seed") {
    arguments->one = true;
    arguments->seed = number;
  } else if (name == "--transactions") {
    arguments->cuts.transactions_max = number;
  } else if (name == "--turns") {
    arguments->cuts.turns_max = number;
  } else {
    return false;
  }
  return true;
}

bool Parse(int count, char** words, Arguments* arguments) {
  for (int i = 1; i < count; ++i) {
    const std::string_view name = words[i];
    if (name == "--trace") {
      arguments->trace = true;
    } else if (name == "--seeded-bugs") {
      arguments->seeded_bugs = true;
    } else if (i + 1 == count || !ParseOne(name, words[++i], arguments)) {
      return false;
    }
  }
  if (arguments->histories == 0) {
    arguments->histories = arguments->seeded_bugs ? kHistoriesForOneBug : kHistories;
  }
  return true;
}

std::string BugArgument(int bug) {
  return bug == 0 ? ""
                  : " --bug " + std::string(SeededBugNames()[static_cast<std::size_t>(bug) - 1]);
}

int Report(const Outcome& failure, const Cuts& cuts, int bug) {
  std::cout << "FAILED: seed " << failure.seed << ", " << failure.what << '\n' << std::flush;
  const Cuts smaller = Shrink(failure.seed, cuts, bug);
  const Outcome again = PlayOne(failure.seed, smaller, false, bug);
  std::cout << "smaller: " << MakePlan(failure.seed, smaller).ToString() << "\n  " << again.what
            << "\nplay it: simulation --trace --seed " << failure.seed << smaller.ToString()
            << BugArgument(bug) << '\n';
  return 1;
}

int PlayMany(const Arguments& arguments) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = Play(arguments.first, arguments.histories, arguments.jobs, arguments.bug);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::cout << absl::StrFormat("%u histories from seed %u, %u events, %.1f s\n", outcome.histories,
                               arguments.first, outcome.events, took.count());
  return outcome.failed ? Report(outcome, Cuts(), arguments.bug) : 0;
}

int PlaySeed(const Arguments& arguments) {
  std::cout << MakePlan(arguments.seed, arguments.cuts).ToString() << '\n';
  const Outcome outcome = PlayOne(arguments.seed, arguments.cuts, arguments.trace, arguments.bug);
  if (outcome.failed) {
    std::cout << "FAILED: seed " << arguments.seed << ", " << outcome.what << '\n';
    return 1;
  }
  std::cout << "passed, " << outcome.events << " events\n";
  return 0;
}

// First the history that is known, then one after the other.
Outcome Catch(const Arguments& arguments, int bug) {
  const auto known = arguments.known.find(SeededBugNames()[static_cast<std::size_t>(bug) - 1]);
  if (known != arguments.known.end()) {
    const Outcome outcome = PlayOne(known->second, Cuts(), /*trace=*/false, bug);
    if (outcome.failed) {
      return outcome;
    }
  }
  return Play(arguments.first, arguments.histories, arguments.jobs, bug);
}

int PlaySeededBugs(const Arguments& arguments) {
  int missed = 0;
  const std::vector<std::string_view>& bugs = SeededBugNames();
  for (std::size_t i = 0; i < bugs.size(); ++i) {
    const Outcome outcome = Catch(arguments, static_cast<int>(i) + 1);
    missed += outcome.failed ? 0 : 1;
    std::cout << absl::StrFormat("%-7s %-36s after %u histories%s%s\n",
                                 outcome.failed ? "caught" : "MISSED", std::string(bugs[i]),
                                 outcome.histories + (outcome.failed ? 1 : 0),
                                 outcome.failed ? absl::StrFormat(", seed %u: ", outcome.seed) : "",
                                 outcome.what.substr(0, outcome.what.find('\n')));
    std::cout << std::flush;
  }
  std::cout << bugs.size() - static_cast<std::size_t>(missed) << " of " << bugs.size()
            << " seeded bugs caught\n";
  return missed == 0 && !bugs.empty() ? 0 : 1;
}

int Main(int count, char** words) {
  Arguments arguments;
  if (!Parse(count, words, &arguments)) {
    std::cerr << kUsage;
    return 64;
  }
  if (arguments.seeded_bugs) {
    return PlaySeededBugs(arguments);
  }
  return arguments.one ? PlaySeed(arguments) : PlayMany(arguments);
}

}  // namespace
}  // namespace walpost::simulation

int main(int count, char** words) { return walpost::simulation::Main(count, words); }
