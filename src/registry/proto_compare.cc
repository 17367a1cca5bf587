#include "registry/proto_compare.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "registry/proto_tokens.h"

namespace walpost::registry {
namespace {

constexpr int kDepthMax = 100;

// `message A { int32 b = 1; }`: the words before the braces, and the statements within.
struct Statement {
  std::vector<std::string> words;
  std::vector<Statement> body;
};

// A name with dots is one word, as long as there is no space in it: `repeated .a.B` are two.
std::string TakeWord(ProtoTokens* tokens) {
  std::string_view last = tokens->Take();
  std::string word(last);
  const bool is_name = last == "." || (!last.empty() && IsProtoLetter(last[0]));
  while (is_name && tokens->token().data() == last.data() + last.size() &&
         (tokens->Is(".") || (last == "." && tokens->IsWord()))) {
    last = tokens->Take();
    word += last;
  }
  return word;
}

// Up to `end`, which is taken.
std::optional<std::vector<Statement>> ReadBody(ProtoTokens* tokens, std::string_view end,
                                               int depth) {
  std::vector<Statement> body;
  Statement statement;
  for (;;) {
    const bool over = tokens->token().empty();
    const std::string word = TakeWord(tokens);
    if (statement.words.empty() && word == end) {
      return body;
    }
    if (over || word == "}" || depth > kDepthMax) {
      return std::nullopt;
    }
    if (word == "{") {
      std::optional<std::vector<Statement>> inner = ReadBody(tokens, "}", depth + 1);
      if (!inner) {
        return std::nullopt;
      }
      statement.body = *std::move(inner);
    }
    if (word != "{" && word != ";") {
      statement.words.push_back(word);
    } else if (!statement.words.empty()) {
      body.push_back(std::move(statement));
      statement = Statement();
    }
  }
}

// `.shop.v1.Money` is also `v1.Money` and `Money`.
bool SameWord(const std::string& ours, const std::string& theirs) {
  if (ours == theirs) {
    return true;
  }
  const std::string tail = theirs.rfind('.', 0) == 0 ? theirs : "." + theirs;
  return ours.rfind('.', 0) == 0 && ours.size() >= tail.size() &&
         ours.compare(ours.size() - tail.size(), tail.size(), tail) == 0 &&
         (theirs[0] != '.' || ours == theirs);
}

bool SameBody(const std::vector<Statement>& ours, const std::vector<Statement>& theirs);

bool Same(const Statement& ours, const Statement& theirs) {
  return std::equal(ours.words.begin(), ours.words.end(), theirs.words.begin(), theirs.words.end(),
                    SameWord) &&
         SameBody(ours.body, theirs.body);
}

bool SameBody(const std::vector<Statement>& ours, const std::vector<Statement>& theirs) {
  if (ours.size() != theirs.size()) {
    return false;
  }
  std::vector<bool> taken(theirs.size(), false);
  for (const Statement& statement : ours) {
    std::size_t i = 0;
    while (i < theirs.size() && (taken[i] || !Same(statement, theirs[i]))) {
      ++i;
    }
    if (i == theirs.size()) {
      return false;
    }
    taken[i] = true;
  }
  return true;
}

std::optional<std::vector<Statement>> Read(std::string_view text) {
  ProtoTokens tokens(text);
  std::optional<std::vector<Statement>> body = ReadBody(&tokens, "", 0);
  return tokens.failed() ? std::nullopt : body;
}

}  // namespace

bool SameDeclarations(std::string_view ours, std::string_view theirs) {
  const auto a = Read(ours);
  const auto b = Read(theirs);
  return a && b && SameBody(*a, *b);
}

}  // namespace walpost::registry
