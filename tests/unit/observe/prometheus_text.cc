#include "unit/observe/prometheus_text.h"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string_view>
#include <utility>

namespace walpost::observe {
namespace {

// Takes tokens from the front of one line.
class Scanner {
 public:
  explicit Scanner(std::string_view rest) : rest_(rest) {}

  bool Take(std::string_view token) {
    const bool found = rest_.substr(0, token.size()) == token;
    rest_.remove_prefix(found ? token.size() : 0);
    return found;
  }

  // [a-zA-Z_][a-zA-Z0-9_]*, empty when there is none. A metric's name may hold colons as well;
  // ours do not.
  std::string Name() {
    std::size_t size = 0;
    while (size < rest_.size() && (std::isalpha(Byte(size)) != 0 || rest_[size] == '_' ||
                                   (size > 0 && std::isdigit(Byte(size)) != 0))) {
      ++size;
    }
    const std::string name(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return name;
  }

  // A label's value in quotes, in which only these may be escaped: backslash, quote, line break.
  bool Quoted(std::string* value) {
    if (!Take("\"")) {
      return false;
    }
    while (!rest_.empty() && rest_[0] != '"') {
      if (Take("\\n")) {
        *value += '\n';
      } else if (Take("\\\\")) {
        *value += '\\';
      } else if (Take("\\\"")) {
        *value += '"';
      } else if (rest_[0] == '\\') {
        return false;
      } else {
        *value += rest_[0];
        rest_.remove_prefix(1);
      }
    }
    return Take("\"");
  }

  const std::string_view& rest() const { return rest_; }

 private:
  unsigned char Byte(std::size_t at) const { return static_cast<unsigned char>(rest_[at]); }

  std::string_view rest_;
};

bool ReadLabels(Scanner* scanner, std::map<std::string, std::string>* labels) {
  while (!scanner->Take("}")) {
    const std::string name = scanner->Name();
    std::string value;
    if (name.empty() || !scanner->Take("=") || !scanner->Quoted(&value) ||
        !labels->emplace(name, value).second) {
      return false;
    }
    if (!scanner->Take(",") && scanner->rest().substr(0, 1) != "}") {
      return false;
    }
  }
  return true;
}

bool ReadValue(const std::string& text, double* value) {
  char* end = nullptr;
  *value =
      text == "+Inf" ? std::numeric_limits<double>::infinity() : std::strtod(text.c_str(), &end);
  return !text.empty() && (end == nullptr || *end == '\0');
}

bool IsType(std::string_view type) {
  return type == "counter" || type == "gauge" || type == "histogram";
}

}  // namespace

PrometheusText::PrometheusText(const std::string& text) {
  if (text.empty() || text.back() != '\n') {
    errors.push_back("the last line does not end");
  }
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    ReadLine(line);
  }
}

void PrometheusText::ReadLine(const std::string& line) {
  line.rfind("# ", 0) == 0 ? ReadComment(line) : ReadSample(line);
}

void PrometheusText::ReadComment(const std::string& line) {
  Scanner scanner(line);
  scanner.Take("# ");
  const bool help = scanner.Take("HELP ");
  const bool type = !help && scanner.Take("TYPE ");
  const std::string name = scanner.Name();
  if ((!help && !type) || name.empty() || !scanner.Take(" ")) {
    errors.push_back("neither HELP nor TYPE: " + line);
    return;
  }
  if (help && families.count(name) != 0) {
    errors.push_back("family twice: " + line);
  }
  PrometheusFamily& family = families[name];
  if (type && (!IsType(scanner.rest()) || !family.samples.empty() || !family.type.empty())) {
    errors.push_back("TYPE wrong, late or twice: " + line);
  }
  (help ? family.help : family.type) = std::string(scanner.rest());
  current_ = name;
}

void PrometheusText::ReadSample(const std::string& line) {
  Scanner scanner(line);
  PrometheusSample read;
  read.name = scanner.Name();
  if (read.name.empty() || (scanner.Take("{") && !ReadLabels(&scanner, &read.labels)) ||
      !scanner.Take(" ") || !ReadValue(std::string(scanner.rest()), &read.value)) {
    errors.push_back("no sample: " + line);
    return;
  }
  PrometheusFamily& family = families[current_];
  const std::string suffix =
      read.name.rfind(current_, 0) == 0 ? read.name.substr(current_.size()) : "?";
  const bool part = suffix == "_bucket" || suffix == "_sum" || suffix == "_count";
  if (!(family.type == "histogram" ? part : suffix.empty())) {
    errors.push_back("sample outside its family: " + line);
  }
  for (const PrometheusSample& other : family.samples) {
    if (other.name == read.name && other.labels == read.labels) {
      errors.push_back("sample twice: " + line);
    }
  }
  family.samples.push_back(std::move(read));
}

double PrometheusText::Value(const std::string& name,
                             const std::map<std::string, std::string>& labels) const {
  for (const auto& [family_name, family] : families) {
    for (const PrometheusSample& sample : family.samples) {
      std::map<std::string, std::string> others = sample.labels;
      others.erase("pipeline");
      if (sample.name == name && others == labels) {
        return sample.value;
      }
    }
  }
  return std::nan("");
}

}  // namespace walpost::observe
