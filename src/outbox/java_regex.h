// JavaRegex - a regular expression and replacement as Java reads them, matched by PCRE2.
// Why: route.topic.regex is written for Java. What the two read differently is rejected by name
//   when the configuration is read, so that no topic silently becomes another one.
// Thread: one owner.
// Limits: a match takes a bounded number of steps, whatever the expression and the text are.
// Errors: Make: kInvalidArgument names the construct. Replace: kInvalidArgument when the text takes
//   too many steps, or is not UTF-8.
// Source: Java SE, java.util.regex.Pattern and Matcher.appendReplacement; pcre2pattern(3).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace walpost::outbox {

class JavaRegex {
 public:
  static absl::StatusOr<JavaRegex> Make(const std::string& regex, const std::string& replacement);

  ~JavaRegex();
  JavaRegex(JavaRegex&&) noexcept;
  JavaRegex& operator=(JavaRegex&&) noexcept;

  // As Kafka Connect's RegexRouter: when the whole text matches, its first match is replaced; else
  // the text stays as it is.
  absl::Status Replace(std::string_view text, std::string* result) const;

  // The replacement's own text, with '*' for each group.
  std::string Pattern() const;

 private:
  struct Impl;
  explicit JavaRegex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The first construct of `regex` that PCRE2 would read differently than Java, or that Java does not
// have; empty when there is none.
std::string ForeignToJava(std::string_view regex);

}  // namespace walpost::outbox
