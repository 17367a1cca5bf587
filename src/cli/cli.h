// Main - parses the command line, calls the verb, prints, and returns the exit code (sysexits).
#pragma once

namespace walpost::cli {

int Main(int argc, char** argv);

}  // namespace walpost::cli
