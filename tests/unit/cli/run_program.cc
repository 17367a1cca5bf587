#include "unit/cli/run_program.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>

namespace walpost::testing {
namespace {

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Ended RunProgram(const std::vector<std::string>& command,
                 const std::vector<std::string>& environment) {
  std::vector<std::string> arguments = command;
  std::vector<std::string> variables = environment;
  const std::vector<char*> argv = Pointers(&arguments);
  const std::vector<char*> envp = Pointers(&variables);
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  PCHECK(pipe2(out.data(), O_CLOEXEC) == 0);
  PCHECK(pipe2(err.data(), O_CLOEXEC) == 0);
  const pid_t child = fork();
  PCHECK(child >= 0);
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  Ended ended;
  std::array<pollfd, 2> fds = {pollfd{out[0], POLLIN, 0}, pollfd{err[0], POLLIN, 0}};
  const std::array<std::string*, 2> texts = {&ended.out, &ended.err};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    if (poll(fds.data(), fds.size(), 100) < 0 || std::chrono::steady_clock::now() > deadline) {
      kill(child, SIGKILL);
      break;
    }
    for (std::size_t i = 0; i < fds.size(); ++i) {
      std::array<char, 4096> chunk{};
      if (fds[i].fd < 0 || fds[i].revents == 0) {
        continue;
      }
      const ssize_t size = read(fds[i].fd, chunk.data(), chunk.size());
      if (size > 0) {
        texts[i]->append(chunk.data(), static_cast<std::size_t>(size));
      } else {
        fds[i].fd = -1;  // poll passes it over
      }
    }
  }
  close(out[0]);
  close(err[0]);
  int status = 0;
  PCHECK(waitpid(child, &status, 0) == child);
  ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

}  // namespace walpost::testing
