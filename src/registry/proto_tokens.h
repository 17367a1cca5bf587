// ProtoTokens - the words (names and numbers), strings and single characters of .proto text.
// Thread: a value.   Lifetime: tokens are views into the text.
// Source: protobuf language specification, lexical elements.
#pragma once

#include <string_view>

namespace walpost::registry {

inline bool IsProtoLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

class ProtoTokens {
 public:
  explicit ProtoTokens(std::string_view text) : rest_(text) { Next(); }

  // Empty at the end.
  std::string_view token() const { return token_; }

  bool failed() const { return failed_; }

  bool Is(std::string_view token) const { return token_ == token; }

  bool IsWord() const { return !token_.empty() && IsProtoLetter(token_[0]); }

  std::string_view Take() {
    const std::string_view taken = token_;
    Next();
    return taken;
  }

 private:
  void Next() {
    SkipSpace();
    std::size_t size = rest_.empty() ? 0 : 1;
    if (!rest_.empty() && IsProtoLetter(rest_[0])) {
      while (size < rest_.size() && IsProtoLetter(rest_[size])) {
        ++size;
      }
    } else if (!rest_.empty() && (rest_[0] == '"' || rest_[0] == '\'')) {
      TakeString();
      return;
    }
    token_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }

  void SkipSpace() {
    for (;;) {
      const std::size_t start = rest_.find_first_not_of(" \t\r\n\f\v");
      rest_.remove_prefix(start == std::string_view::npos ? rest_.size() : start);
      const std::string_view two = rest_.substr(0, 2);
      if (two != "//" && two != "/*") {
        return;
      }
      const std::size_t end = rest_.find(two == "//" ? "\n" : "*/", 2);
      failed_ = failed_ || (two == "/*" && end == std::string_view::npos);
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size()
                                                        : end + (two == "//" ? 1 : 2));
    }
  }

  void TakeString() {
    const char quote = rest_[0];
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != quote && rest_[end] != '\n') {
      end += rest_[end] == '\\' ? 2 : 1;
    }
    if (end >= rest_.size() || rest_[end] != quote) {
      failed_ = true;
      end = rest_.size() - 1;
    }
    token_ = rest_.substr(0, end + 1);
    rest_.remove_prefix(end + 1);
  }

  std::string_view rest_;
  std::string_view token_;
  bool failed_ = false;
};

}  // namespace walpost::registry
