#include "outbox/java_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace walpost::outbox {
namespace {

// Far more than a topic's name needs. A step may look at all of the text, so both bounds together
// keep a match within some milliseconds. These bounds alone decide: PCRE2's machine code (JIT)
// counts steps in another way and has a small stack of its own, and there is none where no memory
// may become executable (MemoryDenyWriteExecute), so an event would have another outcome there. So
// there is none anywhere.
constexpr std::uint32_t kStepsMax = 100'000;
constexpr std::uint32_t kHeapMaxKib = 1024;
constexpr std::size_t kTextMax = 1'000;

template <auto free_function>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    free_function(object);
  }
};

using Code = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;

std::string PcreError(int code) {
  std::array<unsigned char, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  std::string message;
  for (std::size_t i = 0; i < text.size() && text[i] != 0; ++i) {
    message += static_cast<char>(text[i]);
  }
  return message;
}

PCRE2_SPTR Bytes(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data() != nullptr ? text.data() : "");
}

absl::StatusOr<Code> Compile(const std::string& regex, std::uint32_t options) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(Bytes(regex), regex.size(), PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | options,
                          &error, &offset, nullptr));
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrFormat("at character %u: %s", offset + 1, PcreError(error)));
  }
  return code;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Text, or a group when `group` is not negative.
struct Part {
  std::string text;
  int group = -1;
};

// Of a '$' that stands before `*at`.
absl::StatusOr<int> ParseGroup(std::string_view replacement, const pcre2_code* code, int groups,
                               std::size_t* at) {
  std::size_t i = *at;
  if (i < replacement.size() && replacement[i] == '{') {
    const std::size_t close = replacement.find('}', i);
    const std::string name(
        replacement.substr(i + 1, close == std::string_view::npos ? close : close - i - 1));
    const int group =
        close == std::string_view::npos
            ? -1
            : pcre2_substring_number_from_name(code, Bytes(std::string_view(name.c_str())));
    if (group < 0) {
      return absl::InvalidArgumentError(absl::StrFormat("the regex has no group named '%s'", name));
    }
    *at = close + 1;
    return group;
  }
  if (i >= replacement.size() || !IsDigit(replacement[i])) {
    return absl::InvalidArgumentError(
        "a '$' stands before a group's number or {name}; write \\$ for the character itself");
  }
  int group = replacement[i++] - '0';
  if (group > groups) {
    return absl::InvalidArgumentError(absl::StrFormat("the regex has no group %d", group));
  }
  // More digits belong to it as long as there is such a group.
  while (i < replacement.size() && IsDigit(replacement[i]) &&
         group * 10 + (replacement[i] - '0') <= groups) {
    group = group * 10 + (replacement[i++] - '0');
  }
  *at = i;
  return group;
}

absl::StatusOr<std::vector<Part>> ParseReplacement(std::string_view replacement,
                                                   const pcre2_code* code) {
  std::uint32_t groups = 0;
  pcre2_pattern_info(code, PCRE2_INFO_CAPTURECOUNT, &groups);
  std::vector<Part> parts(1);
  for (std::size_t i = 0; i < replacement.size();) {
    const char c = replacement[i++];
    if (c == '\\') {
      if (i == replacement.size()) {
        return absl::InvalidArgumentError("it ends with a lone backslash");
      }
      parts.back().text += replacement[i++];
    } else if (c == '$') {
      ASSIGN_OR_RETURN(const int group,
                       ParseGroup(replacement, code, static_cast<int>(groups), &i));
      parts.push_back({"", group});
      parts.emplace_back();
    } else {
      parts.back().text += c;
    }
  }
  return parts;
}

// Walks over a regex and stops at what is foreign to Java.
class Vetting {
 public:
  explicit Vetting(std::string_view regex) : rest_(regex) {}

  std::string Run() {
    std::string found;
    while (found.empty() && !rest_.empty()) {
      found = Next();
    }
    return found;
  }

 private:
  char Peek(std::size_t ahead = 0) const { return ahead < rest_.size() ? rest_[ahead] : '\0'; }

  std::string Next() {
    const char c = rest_[0];
    if (c == '\\') {
      return Escape(/*in_class=*/false);
    }
    if (c == '[') {
      return Class();
    }
    if (c == '(') {
      return Group();
    }
    if (c == '{') {
      return Quantifier();
    }
    rest_.remove_prefix(1);
    return "";
  }

  std::string Escape(bool in_class) {
    const char c = Peek(1);
    const std::string name = "\\" + std::string(1, c);
    if (c == 'Q') {
      const std::size_t end = rest_.find("\\E", 2);
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 2);
      return "";
    }
    if (c == 'x') {
      const bool braces = Peek(2) == '{';
      if (!braces && !(IsHex(Peek(2)) && IsHex(Peek(3)))) {
        return "\\x without two digits or {}";
      }
      const std::size_t close = braces ? rest_.find('}') : std::string_view::npos;
      rest_.remove_prefix(close == std::string_view::npos ? 0 : close - 1);
    } else if (c == 'p' || c == 'P') {
      return Property();
    } else if (c == 'k') {
      if (Peek(2) != '<') {
        return "\\k without <name>";
      }
    } else if (c >= '1' && c <= '9') {
      if (IsDigit(Peek(2))) {
        return "a back reference of several digits";
      }
    } else if (IsLetter(c) || c == '0') {
      constexpr std::string_view kSame = "dDsSwWhHvVtnrfae";
      constexpr std::string_view kSameOutside = "AGzZR";
      if (kSame.find(c) == std::string_view::npos &&
          (in_class || kSameOutside.find(c) == std::string_view::npos)) {
        return name;
      }
    } else if (c == '\0') {
      return "a lone backslash at the end";
    }
    rest_.remove_prefix(2);
    return "";
  }

  static bool IsHex(char c) {
    return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  }

  // Only general categories have the same names in both.
  std::string Property() {
    std::string_view name = rest_.substr(2, 1);
    std::size_t size = 3;
    if (name == "{") {
      const std::size_t close = rest_.find('}');
      name = rest_.substr(3, close == std::string_view::npos ? close : close - 3);
      size = close == std::string_view::npos ? rest_.size() : close + 1;
    }
    constexpr std::string_view kCategories =
        " L M N P S Z C Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp "
        "Cc Cf Co Cs Cn ";
    const std::string padded = " " + std::string(name) + " ";
    if (name.empty() || kCategories.find(padded) == std::string_view::npos) {
      return std::string(rest_.substr(0, size));
    }
    rest_.remove_prefix(size);
    return "";
  }

  std::string Class() {
    rest_.remove_prefix(Peek(1) == '^' ? 2 : 1);
    if (Peek() == ']') {
      return "a ']' that is the first character of a class; write \\]";
    }
    while (!rest_.empty() && rest_[0] != ']') {
      if (rest_[0] == '[') {
        return "a '[' in a character class, which is a union in Java; write \\[ for the character";
      }
      if (rest_[0] == '&' && Peek(1) == '&') {
        return "the intersection && in a character class";
      }
      if (rest_[0] != '\\') {
        rest_.remove_prefix(1);
      } else if (std::string found = Escape(/*in_class=*/true); !found.empty()) {
        return found;
      }
    }
    rest_.remove_prefix(rest_.empty() ? 0 : 1);
    return "";
  }

  std::string Group() {
    if (Peek(1) == '*') {
      return "(*";
    }
    if (Peek(1) != '?') {
      rest_.remove_prefix(1);
      return "";
    }
    const char kind = Peek(2);
    if (kind == '<' && Peek(3) != '=' && Peek(3) != '!') {
      return GroupName();
    }
    if (std::string_view(":=!>").find(kind) != std::string_view::npos || kind == '<') {
      rest_.remove_prefix(3);
      return "";
    }
    std::size_t i = 2;
    while (i < rest_.size() && (rest_[i] == '-' || IsLetter(rest_[i]))) {
      if (std::string_view("-ims").find(rest_[i]) == std::string_view::npos) {
        return absl::StrFormat("the flag or group (?%c", rest_[i]);
      }
      ++i;
    }
    if (i == 2 || i >= rest_.size() || (rest_[i] != ')' && rest_[i] != ':')) {
      return absl::StrFormat("(?%c", kind);
    }
    rest_.remove_prefix(i);
    return "";
  }

  std::string GroupName() {
    std::size_t i = 3;
    while (i < rest_.size() && (IsLetter(rest_[i]) || (i > 3 && IsDigit(rest_[i])))) {
      ++i;
    }
    if (i == 3 || i >= rest_.size() || rest_[i] != '>') {
      return "a group's name of other than letters and digits";
    }
    rest_.remove_prefix(i + 1);
    return "";
  }

  // Java has no '{' that stands for itself.
  std::string Quantifier() {
    std::size_t i = 1;
    const auto digits = [&] {
      const std::size_t first = i;
      while (i < rest_.size() && IsDigit(rest_[i])) {
        ++i;
      }
      return i > first;
    };
    bool well = digits();
    if (well && i < rest_.size() && rest_[i] == ',') {
      ++i;
      digits();
    }
    well = well && i < rest_.size() && rest_[i] == '}';
    if (!well) {
      return "a '{' that is no quantifier; write \\{ for the character";
    }
    rest_.remove_prefix(i + 1);
    return "";
  }

  std::string_view rest_;
};

}  // namespace

struct JavaRegex::Impl {
  Code whole;
  Code first;
  MatchData match;
  MatchContext context;
  std::vector<Part> parts;

  // 1 = matches, 0 = does not.
  absl::StatusOr<bool> Match(const pcre2_code* code, std::string_view text) const {
    const int result =
        pcre2_match(code, Bytes(text), text.size(), 0, 0, match.get(), context.get());
    if (result == PCRE2_ERROR_NOMATCH) {
      return false;
    }
    if (result < 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("route.topic.regex cannot be matched: %s", PcreError(result)));
    }
    return true;
  }
};

std::string ForeignToJava(std::string_view regex) { return Vetting(regex).Run(); }

absl::StatusOr<JavaRegex> JavaRegex::Make(const std::string& regex,
                                          const std::string& replacement) {
  if (const std::string foreign = ForeignToJava(regex); !foreign.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the regex has %s, which Java reads differently or not at all: write it in another way",
        foreign));
  }
  auto impl = std::make_unique<Impl>();
  absl::StatusOr<Code> whole = Compile(regex, PCRE2_ANCHORED | PCRE2_ENDANCHORED);
  absl::StatusOr<Code> first = Compile(regex, 0);
  if (!whole.ok() || !first.ok()) {
    return base::Annotate(whole.ok() ? first.status() : whole.status(),
                          "the regex is not understood");
  }
  impl->whole = *std::move(whole);
  impl->first = *std::move(first);
  absl::StatusOr<std::vector<Part>> parts = ParseReplacement(replacement, impl->first.get());
  if (!parts.ok()) {
    return base::Annotate(parts.status(), "the replacement is not understood");
  }
  impl->parts = *std::move(parts);
  impl->match.reset(pcre2_match_data_create_from_pattern(impl->first.get(), nullptr));
  impl->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(impl->context.get(), kStepsMax);
  pcre2_set_heap_limit(impl->context.get(), kHeapMaxKib);
  return JavaRegex(std::move(impl));
}

JavaRegex::JavaRegex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

JavaRegex::~JavaRegex() = default;
JavaRegex::JavaRegex(JavaRegex&&) noexcept = default;
JavaRegex& JavaRegex::operator=(JavaRegex&&) noexcept = default;

std::string JavaRegex::Pattern() const {
  std::string pattern;
  for (const Part& part : impl_->parts) {
    pattern += part.text;
    pattern += part.group >= 0 ? "*" : "";
  }
  return pattern;
}

absl::Status JavaRegex::Replace(std::string_view text, std::string* result) const {
  if (text.size() > kTextMax) {
    return absl::InvalidArgumentError("it is far too long for a topic's name");
  }
  ASSIGN_OR_RETURN(const bool matches, impl_->Match(impl_->whole.get(), text));
  result->assign(text);
  if (!matches) {
    return absl::OkStatus();
  }
  // What matches first may be less than the whole: a|ab in "ab".
  ASSIGN_OR_RETURN(const bool found, impl_->Match(impl_->first.get(), text));
  if (!found) {
    return absl::OkStatus();
  }
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(impl_->match.get());
  result->assign(text.substr(0, offsets[0]));
  for (const Part& part : impl_->parts) {
    *result += part.text;
    if (part.group >= 0) {
      const auto i = static_cast<std::size_t>(part.group) * 2;
      if (offsets[i] != PCRE2_UNSET) {
        *result += text.substr(offsets[i], offsets[i + 1] - offsets[i]);
      }
    }
  }
  *result += text.substr(offsets[1]);
  return absl::OkStatus();
}

}  // namespace walpost::outbox
