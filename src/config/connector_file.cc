#include "config/connector_file.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/text.h"

namespace walpost::config {
namespace {

using Settings = std::map<std::string, std::string>;

constexpr char kOverride[] = "producer.override.";

absl::StatusOr<Settings> FromJson(const std::string& text, std::vector<std::string>* notes) {
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return absl::InvalidArgumentError("it is not a JSON object");
  }
  const bool wrapped = document.contains("config") && document["config"].is_object();
  Settings settings;
  if (wrapped && document.contains("name") && document["name"].is_string()) {
    settings["name"] = document["name"].get<std::string>();
  }
  const nlohmann::json& config = wrapped ? document["config"] : document;
  for (const auto& [name, value] : config.items()) {
    if (value.is_string()) {
      settings[name] = value.get<std::string>();
    } else if (value.is_primitive() && !value.is_null()) {
      settings[name] = base::JsonText(value);
    } else {
      notes->push_back(absl::StrFormat("%s: left out, because it is no text", name));
    }
  }
  return settings;
}

// Lines of a properties file: continued ones joined, comments left out.
std::vector<std::string> LogicalLines(const std::string& text) {
  std::vector<std::string> lines;
  std::string line;
  bool continued = false;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find_first_of("\r\n", at), text.size());
    std::string part = text.substr(at, end - at);
    at = end + 1;
    part.erase(0, std::min(part.find_first_not_of(" \t\f"), part.size()));
    if (!continued && (part.empty() || part[0] == '#' || part[0] == '!')) {
      continue;
    }
    const std::size_t last = part.find_last_not_of('\\');
    const std::size_t backslashes = part.size() - (last == std::string::npos ? 0 : last + 1);
    continued = backslashes % 2 == 1;
    if (continued) {
      part.pop_back();
    }
    line += part;
    if (!continued) {
      lines.push_back(std::exchange(line, ""));
    }
  }
  if (!line.empty()) {
    lines.push_back(line);
  }
  return lines;
}

int HexDigit(char c) {
  const std::string_view digits = "0123456789abcdef";
  const std::size_t i = digits.find(static_cast<char>(c >= 'A' && c <= 'F' ? c + 32 : c));
  return i == std::string_view::npos ? -1 : static_cast<int>(i);
}

// Of \uXXXX; characters outside the basic plane are not put together.
void AppendUtf8(unsigned code, std::string* out) {
  if (code < 0x80) {
    *out += static_cast<char>(code);
  } else if (code < 0x800) {
    *out += static_cast<char>(0xC0 | (code >> 6));
    *out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    *out += static_cast<char>(0xE0 | (code >> 12));
    *out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    *out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// The character after a backslash at `*at`, which moves to its end. False: not well-formed.
bool Unescape(const std::string& line, std::size_t* at, std::string* out) {
  const char c = line[++*at];
  if (c != 'u') {
    constexpr std::string_view kNames = "tnrf";
    constexpr std::string_view kCharacters = "\t\n\r\f";
    const std::size_t i = kNames.find(c);
    *out += i == std::string_view::npos ? c : kCharacters[i];
    return true;
  }
  unsigned code = 0;
  for (int i = 0; i < 4; ++i) {
    const int digit = *at + 1 < line.size() ? HexDigit(line[*at + 1]) : -1;
    if (digit < 0) {
      return false;
    }
    code = code * 16 + static_cast<unsigned>(digit);
    ++*at;
  }
  AppendUtf8(code, out);
  return true;
}

absl::StatusOr<Settings> FromProperties(const std::string& text) {
  Settings settings;
  for (const std::string& line : LogicalLines(text)) {
    std::string key;
    std::string value;

    enum { kKey, kSeparator, kValue } state = kKey;

    bool separated = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      const bool blank = c == ' ' || c == '\t' || c == '\f';
      if (state == kKey && (blank || c == '=' || c == ':')) {
        state = kSeparator;
      }
      if (state == kSeparator) {
        if (blank || (!separated && (c == '=' || c == ':'))) {
          separated = separated || !blank;
          continue;
        }
        state = kValue;
      }
      std::string* out = state == kKey ? &key : &value;
      if (c != '\\') {
        *out += c;
      } else if (i + 1 < line.size() && !Unescape(line, &i, out)) {
        return absl::InvalidArgumentError(absl::StrFormat("%s: a \\u without four digits", key));
      }
    }
    settings[key] = value;
  }
  return settings;
}

// Quarkus writes $${ for ${; what is left are its variables, whose default stands after one colon.
std::string FromQuarkus(const std::string& value) {
  std::string result;
  for (std::size_t i = 0; i < value.size();) {
    if (value.compare(i, 3, "$${") == 0 || value.compare(i, 3, "\\${") == 0) {
      result += "${";
      i += 3;
    } else {
      result += value[i++];
    }
  }
  return result;
}

ConnectorFile FromServer(const Settings& settings) {
  ConnectorFile file;
  file.is_server = true;
  for (const auto& [name, value] : settings) {
    const std::string text = FromQuarkus(value);
    std::string_view rest = name;
    const auto after = [&](std::string_view prefix) {
      if (rest.substr(0, prefix.size()) != prefix) {
        return false;
      }
      rest.remove_prefix(prefix.size());
      return true;
    };
    if (after("debezium.source.")) {
      file.settings[std::string(rest)] = text;
    } else if (after("debezium.sink.kafka.producer.")) {
      file.producer[std::string(rest)] = text;
    } else if (after("debezium.")) {
      // Names that stand in no connector, but for `transforms` and `predicates`.
      file.settings[std::string(rest)] = text;
    } else {
      file.notes.push_back(
          absl::StrFormat("%s: left out, because it is no setting of Debezium", name));
    }
  }
  return file;
}

}  // namespace

absl::StatusOr<ConnectorFile> ReadConnectorFile(const std::string& text) {
  ConnectorFile file;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) {
    return absl::InvalidArgumentError("it is empty");
  }
  if (text[first] == '{' || text[first] == '[') {
    ASSIGN_OR_RETURN(file.settings, FromJson(text, &file.notes));
  } else {
    ASSIGN_OR_RETURN(const Settings settings, FromProperties(text));
    bool server = false;
    for (const auto& [name, value] : settings) {
      server = server || name.compare(0, 9, "debezium.") == 0;
    }
    file.settings = settings;  // a connector of a standalone worker
    if (server) {
      file = FromServer(settings);
    }
  }
  const std::string_view prefix = kOverride;
  for (auto setting = file.settings.begin(); setting != file.settings.end();) {
    if (setting->first.compare(0, prefix.size(), prefix) == 0) {
      file.producer[setting->first.substr(prefix.size())] = setting->second;
      setting = file.settings.erase(setting);
    } else {
      ++setting;
    }
  }
  return file;
}

}  // namespace walpost::config
