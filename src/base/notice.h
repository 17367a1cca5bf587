// ReportsSkippedPublication - the one notice of the server that means lost rows.
// Why here: postgres must not drop it, pipeline halts by it; neither may use the other's rule.
// Thread: any.
// Source: PostgreSQL 18, pgoutput.c, LoadPublications.
#pragma once

#include <string_view>

namespace walpost::base {

// PostgreSQL 18 only warns, and then skips rows; older servers end the stream instead. The function
// that warns has the same name in every language; the text is in the server's language.
inline bool ReportsSkippedPublication(std::string_view notice) {
  return notice.find("LoadPublications") != std::string_view::npos ||
         notice.find("skipped loading publication") != std::string_view::npos;
}

}  // namespace walpost::base
