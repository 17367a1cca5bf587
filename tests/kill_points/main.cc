// `walpost run` with a kill point: kill_points --config FILE run. The product has none.
#include <cstdio>
#include <string_view>

#include "config/config.h"
#include "kill_points/kill_point.h"
#include "kill_points/wrappers.h"
#include "observe/log.h"
#include "runtime/run.h"

int main(int argc, char** argv) {
  if (argc != 4 || std::string_view(argv[1]) != "--config" || std::string_view(argv[3]) != "run") {
    std::fputs("usage: kill_points --config FILE run\n", stderr);
    return 64;
  }
  walpost::config::LoadOptions load;
  load.file = argv[2];
  auto config = walpost::config::Load(load);
  if (!config.ok()) {
    std::fprintf(stderr, "kill_points: %s\n", std::string(config.status().message()).c_str());
    return 78;
  }
  walpost::observe::InitLogging(config->log_level, config->log_format);
  config->run.version = "kill points";
  walpost::testing::KillPoint point = walpost::testing::KillPoint::FromEnvironment();
  return walpost::runtime::Run(config->run, walpost::testing::WrappersWith(&point));
}
