// RunProgram - starts a program, waits for its end, and returns what it printed and how it ended.
// Why: exit codes, and what goes to which stream, are seen only from outside.
// Units/limits: ended with SIGKILL after 30 s. The environment is the one given and no other.
#pragma once

#include <string>
#include <vector>

namespace walpost::testing {

struct Ended {
  int exit_code = -1;  // 128 + signal when it was ended by one
  std::string out;
  std::string err;
};

Ended RunProgram(const std::vector<std::string>& command,
                 const std::vector<std::string>& environment = {});

}  // namespace walpost::testing
