#include "cli/cli.h"

namespace walpost::cli {

int Main(int, char**) { return 64; }

}  // namespace walpost::cli
