// BUG - is this mistake of seeded_bugs.py switched on? Only simulation_bugs is built with any.
// Thread: SwitchOnSeededBug before anything else runs.
#pragma once

#include <string_view>
#include <vector>

#ifdef WALPOST_SEEDED_BUGS
#include "seeded_bug_names.inc"
#else
#define WALPOST_SEEDED_BUG_LIST(X)
#endif

namespace walpost::simulation {

enum class SeededBug {
  none,
#define WALPOST_BUG_NAME(name) name,
  WALPOST_SEEDED_BUG_LIST(WALPOST_BUG_NAME)
#undef WALPOST_BUG_NAME
};

inline SeededBug seeded_bug = SeededBug::none;

// 1 is the first name; 0 switches all off.
inline void SwitchOnSeededBug(int number) { seeded_bug = static_cast<SeededBug>(number); }

inline const std::vector<std::string_view>& SeededBugNames() {
  static const std::vector<std::string_view> names = {
#define WALPOST_BUG_NAME(name) #name,
      WALPOST_SEEDED_BUG_LIST(WALPOST_BUG_NAME)
#undef WALPOST_BUG_NAME
  };
  return names;
}

}  // namespace walpost::simulation

#define BUG(name) (::walpost::simulation::seeded_bug == ::walpost::simulation::SeededBug::name)
