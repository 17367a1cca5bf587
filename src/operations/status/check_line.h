// CheckLine - one finding of `walpost check`; CheckLines - all of them, in the order they were found.
#pragma once

#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace walpost::operations {

struct CheckLine {
  enum class Level { kOk, kWarning, kFailed };

  Level level = Level::kOk;
  std::string name;
  std::string text;  // what was found; for a problem also how to fix it
};

class CheckLines {
 public:
  void Ok(std::string name, std::string text) {
    lines_.push_back({CheckLine::Level::kOk, std::move(name), std::move(text)});
  }

  void Warn(std::string name, std::string text) {
    lines_.push_back({CheckLine::Level::kWarning, std::move(name), std::move(text)});
  }

  void Fail(std::string name, std::string text) {
    lines_.push_back({CheckLine::Level::kFailed, std::move(name), std::move(text)});
  }

  void Append(std::vector<CheckLine> lines) {
    std::move(lines.begin(), lines.end(), std::back_inserter(lines_));
  }

  const std::vector<CheckLine>& all() const { return lines_; }

  std::vector<CheckLine> Take() { return std::move(lines_); }

 private:
  std::vector<CheckLine> lines_;
};

}  // namespace walpost::operations
