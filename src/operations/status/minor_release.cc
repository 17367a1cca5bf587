#include "operations/status/minor_release.h"

#include <algorithm>
#include <iterator>

namespace walpost::operations {
namespace {

constexpr int kMajor = 10'000;
constexpr int kFixed[] = {130'021, 140'018, 150'013, 160'009, 170'005};

}  // namespace

int FirstThatLearnsOfAddedTables(int server_version) {
  const auto* const fixed = std::find_if(std::begin(kFixed), std::end(kFixed), [&](int first) {
    return first / kMajor == server_version / kMajor;
  });
  return fixed == std::end(kFixed) ? 0 : *fixed;
}

}  // namespace walpost::operations
