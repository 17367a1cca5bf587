// TellsOfSkippedPublication - the one notice of the server that means lost rows.
// Why here: postgres must not drop it, pipeline halts by it; neither may use the other's rule.
// Thread: any.
// Source: PostgreSQL 18, pgoutput.c, LoadPublications.
#pragma once

#include <string_view>

namespace walpost::base {

// PostgreSQL 18 only warns, and then skips rows; older servers end the stream instead. The function
// that warns is told in every language, the text only in the server's.
inline bool TellsOfSkippedPublication(std::string_view notice) {
  return notice.find("LoadPublications") != std::string_view::npos ||
         notice.find("skipped loading publication") != std::string_view::npos;
}

}  // namespace walpost::base
