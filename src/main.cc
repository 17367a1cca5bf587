#include "cli/cli.h"

int main(int argc, char** argv) { return walpost::cli::Main(argc, argv); }
