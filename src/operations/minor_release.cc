#include "operations/minor_release.h"

#include <algorithm>
#include <iterator>

namespace walpost::operations {
namespace {

constexpr int kMajor = 10'000;
constexpr int kMended[] = {130'021, 140'018, 150'013, 160'009, 170'005};

}  // namespace

int FirstThatLearnsOfAddedTables(int server_version) {
  const auto* const mended = std::find_if(std::begin(kMended), std::end(kMended), [&](int first) {
    return first / kMajor == server_version / kMajor;
  });
  return mended == std::end(kMended) ? 0 : *mended;
}

}  // namespace walpost::operations
