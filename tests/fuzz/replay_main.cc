// Runs a fuzz target without a fuzzer: every input of its corpus, then random changes of them.
//
//     fuzz_decoder             the corpus and WALPOST_FUZZ mutations (2000 unless set)
//     fuzz_decoder FILE ...    these inputs and nothing else
//
// WALPOST_SEED repeats a run. The inputs run in a child process, so that the one it died of,
// however it died, is still known: it is written to <program>.input in the current folder. Give
// that file to the program to see it again; once repaired, it belongs into the corpus.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "fuzz/mutate.h"
#include "support/random_seed.h"

namespace walpost::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr unsigned long kMutations = 2'000;
constexpr std::size_t kInputBytesMax = std::size_t{1} << 20;
constexpr unsigned int kSecondsMax = 60;  // for one input
// Room for a mutator of the target's own to grow an input into.
constexpr std::size_t kGrowthBytes = 256;

std::string ReadInput(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::cerr << path.string() << " cannot be read\n";
    std::exit(2);
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::vector<std::string> ReadCorpus() {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(WALPOST_FUZZ_CORPUS)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());  // one seed, one run
  std::vector<std::string> corpus;
  for (const fs::path& path : paths) {
    corpus.push_back(ReadInput(path));
  }
  const std::vector<std::string> more = MoreInputs();
  corpus.insert(corpus.end(), more.begin(), more.end());
  return corpus;
}

void Run(const std::string& input) {
  // In memory of exactly its size, so that a sanitizer sees the first byte read past its end.
  const std::unique_ptr<std::uint8_t[]> exact(new std::uint8_t[input.size()]);
  std::memcpy(exact.get(), input.data(), input.size());
  LLVMFuzzerTestOneInput(exact.get(), input.size());
}

// What the child is at, in memory that both processes see.
struct Current {
  std::size_t size = 0;
  char bytes[kInputBytesMax] = {};
};

Current* SharedCurrent() {
  void* memory =
      mmap(nullptr, sizeof(Current), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::cerr << "mmap: " << std::strerror(errno) << '\n';
    std::exit(2);
  }
  return ::new (memory) Current();
}

void RunShared(const std::string& input, Current* current) {
  current->size = std::min(input.size(), kInputBytesMax);
  std::memcpy(current->bytes, input.data(), current->size);
  alarm(kSecondsMax);  // its signal ends the child: an endless loop is found like a crash
  Run(input.substr(0, current->size));
}

std::string Mutated(const std::vector<std::string>& corpus, Random* random) {
  std::string input = corpus[Below(corpus.size(), random)];
  if (LLVMFuzzerCustomMutator != nullptr && Below(4, random) != 0) {
    const std::size_t size = input.size();
    input.resize(size + kGrowthBytes);
    input.resize(LLVMFuzzerCustomMutator(reinterpret_cast<std::uint8_t*>(input.data()), size,
                                         input.size(), static_cast<unsigned int>((*random)())));
    return input;
  }
  if (Below(8, random) == 0) {  // the beginning of one and the end of another
    const std::string& other = corpus[Below(corpus.size(), random)];
    input.resize(Below(input.size() + 1, random));
    input += other.substr(Below(other.size() + 1, random));
  }
  Mutate(&input, random);
  return input;
}

void RunAll(const std::vector<std::string>& corpus, unsigned long mutations, std::uint64_t seed,
            Current* current) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that timed out leaves nothing behind
  Random random(seed);
  for (const std::string& input : corpus) {
    RunShared(input, current);
  }
  for (unsigned long i = 0; i < mutations; ++i) {
    RunShared(Mutated(corpus, &random), current);
  }
}

int Replay(const std::string& program) {
  const char* wanted = std::getenv("WALPOST_FUZZ");
  const unsigned long mutations =
      wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : kMutations;
  const std::vector<std::string> corpus = ReadCorpus();
  std::cout << corpus.size() << " inputs, then " << mutations << " mutations; seed: ";
  const std::uint64_t seed = testing::RandomSeed();
  Current* current = SharedCurrent();
  const pid_t child = fork();
  if (child == 0) {
    RunAll(corpus, mutations, seed, current);
    std::exit(0);  // not _exit: leaks are looked for at the end
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    std::cerr << "fork: " << std::strerror(errno) << '\n';
    return 2;
  }
  if (status == 0) {
    return 0;
  }
  const std::string path = program + ".input";
  std::ofstream(path, std::ios::binary)
      .write(current->bytes, static_cast<std::streamsize>(current->size));
  std::cerr << program << (WIFSIGNALED(status) ? ": ended by signal " : ": ended with ")
            << (WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status))
            << "; to see it again: " << program << ' ' << path << '\n';
  return 1;
}

int Main(const std::vector<std::string>& arguments) {
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    Run(ReadInput(arguments[i]));
    std::cout << arguments[i] << ": passed\n";
  }
  return arguments.size() > 1 ? 0 : Replay(fs::path(arguments[0]).filename().string());
}

}  // namespace
}  // namespace walpost::fuzz

int main(int argc, char** argv) {
  return walpost::fuzz::Main(std::vector<std::string>(argv, argv + argc));
}
