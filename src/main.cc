#include "cli/cli.h"

// Read by jemalloc before main. Few arenas, since few threads allocate; freed pages go back within
// a quarter of a second, so that what an outage took is not kept.
extern "C" const char* const malloc_conf = "narenas:2,dirty_decay_ms:250,muzzy_decay_ms:0";

int main(int argc, char** argv) { return walpost::cli::Main(argc, argv); }
