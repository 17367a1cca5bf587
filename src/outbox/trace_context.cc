#include "outbox/trace_context.h"

#include <algorithm>

namespace walpost::outbox {
namespace {

constexpr std::string_view kBlank = " \t\f";
constexpr std::string_view kName = "traceparent";

std::string_view TrimLeft(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kBlank), text.size()));
}

// An odd number of backslashes at its end: the next line belongs to this one.
bool GoesOn(std::string_view line) {
  const std::size_t last = line.find_last_not_of('\\');
  const std::size_t backslashes =
      last == std::string_view::npos ? line.size() : line.size() - last - 1;
  return backslashes % 2 == 1;
}

// Of one whole line; nothing when it is about something else.
std::string_view ValueIn(std::string_view line) {
  if (line.substr(0, kName.size()) != kName) {
    return {};
  }
  line.remove_prefix(kName.size());
  const std::size_t blank = line.size();
  line = TrimLeft(line);
  const bool separated = line.size() < blank;
  if (!line.empty() && (line[0] == '=' || line[0] == ':')) {
    line = TrimLeft(line.substr(1));
  } else if (!separated) {
    return {};  // a longer name
  }
  return line.find('\\') == std::string_view::npos ? line : std::string_view();
}

}  // namespace

std::string_view TraceparentOf(std::string_view properties) {
  std::string_view found;
  bool continued = false;
  while (!properties.empty()) {
    const std::size_t end = std::min(properties.find_first_of("\r\n"), properties.size());
    const std::string_view line = TrimLeft(properties.substr(0, end));
    properties.remove_prefix(std::min(end + 1, properties.size()));
    const bool comment = !continued && !line.empty() && (line[0] == '#' || line[0] == '!');
    if (!continued && !comment) {
      if (const std::string_view value = ValueIn(line); !value.empty()) {
        found = value;
      }
    }
    // A "\r\n" after a backslash is one end of line, and a comment never goes on.
    const bool half = line.empty() && continued;
    continued = half ? continued : !comment && GoesOn(line);
  }
  return found;
}

}  // namespace walpost::outbox
