#include "registry/proto_outline.h"

#include <utility>

#include "registry/proto_tokens.h"

namespace walpost::registry {
namespace {

class Outliner {
 public:
  explicit Outliner(std::string_view text) : tokens_(text) {}

  std::optional<ProtoOutline> Run() {
    ProtoOutline outline;
    while (!tokens_.token().empty()) {
      if (tokens_.Is("package")) {
        tokens_.Take();
        while (tokens_.IsWord() || tokens_.Is(".")) {
          outline.package += tokens_.Take();
        }
        if (!Expect(";")) {
          return std::nullopt;
        }
      } else if (!Statement(&outline.messages, 0)) {
        return std::nullopt;
      }
    }
    return tokens_.failed() ? std::nullopt : std::optional(std::move(outline));
  }

 private:
  bool Expect(std::string_view token) {
    const bool there = tokens_.Is(token);
    tokens_.Take();
    return there;
  }

  // Of a file or of a message.
  bool Statement(std::vector<OutlinedMessage>* messages, int depth) {
    if (tokens_.Is(";")) {
      tokens_.Take();
      return true;
    }
    if (!tokens_.IsWord() && !tokens_.Is(".")) {
      return false;
    }
    const std::string_view word = tokens_.Take();
    if (word == "message") {
      return Message(messages, depth);
    }
    if ((word == "extend" || word == "oneof") && !tokens_.Is("=")) {
      while (tokens_.IsWord() || tokens_.Is(".")) {
        tokens_.Take();
      }
      return Body(messages, depth);  // a group in it belongs to what is around it
    }
    if (word == "map" && tokens_.Is("<")) {
      messages->emplace_back();
    }
    if (word == "enum" || word == "service") {
      return SkipTo("}");
    }
    if (word == "group" || tokens_.Is("group")) {  // without a label in a oneof
      return Group(word == "group", messages, depth);
    }
    return SkipTo(";");
  }

  bool Message(std::vector<OutlinedMessage>* messages, int depth) {
    if (!tokens_.IsWord() || depth >= kOutlineDepthMax) {
      return false;
    }
    OutlinedMessage message;
    message.name = tokens_.Take();
    const bool whole = Body(&message.nested, depth + 1);
    messages->push_back(std::move(message));
    return whole;
  }

  bool Body(std::vector<OutlinedMessage>* messages, int depth) {
    if (!Expect("{")) {
      return false;
    }
    while (!tokens_.Is("}")) {
      if (tokens_.token().empty() || !Statement(messages, depth)) {
        return false;
      }
    }
    tokens_.Take();
    return true;
  }

  bool Group(bool taken, std::vector<OutlinedMessage>* messages, int depth) {
    if (!taken) {
      tokens_.Take();
    }
    if (!tokens_.IsWord() || depth >= kOutlineDepthMax) {
      return false;
    }
    OutlinedMessage group;
    group.name = tokens_.Take();
    while (!tokens_.Is("{") && !tokens_.token().empty()) {
      tokens_.Take();
    }
    const std::size_t place = messages->size();
    messages->emplace_back();
    const bool whole = Body(&group.nested, depth + 1);
    (*messages)[place] = std::move(group);
    return whole;
  }

  // Behind the end of a statement, whatever braces and brackets are in it.
  bool SkipTo(std::string_view end) {
    int open = 0;
    while (!tokens_.token().empty()) {
      const std::string_view token = tokens_.Take();
      if (token == "{" || token == "[") {
        ++open;
      } else if (token == "}" || token == "]") {
        --open;
      }
      if (open < 0) {
        return false;
      }
      if (open == 0 && token == end) {
        return true;
      }
    }
    return false;
  }

  ProtoTokens tokens_;
};

bool FindIn(const std::vector<OutlinedMessage>& messages, std::string_view path,
            std::vector<std::int32_t>* indexes) {
  const std::string_view name = path.substr(0, path.find('.'));
  for (std::size_t i = 0; i < messages.size() && !name.empty(); ++i) {
    if (messages[i].name == name) {
      indexes->push_back(static_cast<std::int32_t>(i));
      return name.size() == path.size() ||
             FindIn(messages[i].nested, path.substr(name.size() + 1), indexes);
    }
  }
  return false;
}

}  // namespace

std::optional<ProtoOutline> OutlineOf(std::string_view text) { return Outliner(text).Run(); }

std::optional<std::vector<std::int32_t>> FindIndexes(const ProtoOutline& outline,
                                                     std::string_view record) {
  const std::string prefix = outline.package.empty() ? "" : outline.package + ".";
  std::vector<std::int32_t> indexes;
  if (record.substr(0, prefix.size()) != prefix ||
      !FindIn(outline.messages, record.substr(prefix.size()), &indexes)) {
    return std::nullopt;
  }
  return indexes;
}

}  // namespace walpost::registry
