#include "unit/observe/prometheus_text.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <regex>
#include <sstream>

namespace walpost::observe {
namespace {

std::string Unescape(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      result += text[i] == 'n' ? '\n' : text[i];
    } else {
      result += text[i];
    }
  }
  return result;
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
  static const std::regex comment("# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)");
  std::smatch match;
  if (!std::regex_match(line, match, comment)) {
    errors.push_back("neither HELP nor TYPE: " + line);
    return;
  }
  const std::string name = match[2];
  if (match[1] == "HELP") {
    if (families.count(name) != 0) {
      errors.push_back("family twice: " + name);
    }
    families[name].help = match[3];
  } else {
    static const std::regex types("counter|gauge|histogram|summary|untyped");
    if (!std::regex_match(match[3].str(), types) || !families[name].samples.empty()) {
      errors.push_back("TYPE wrong or late: " + line);
    }
    families[name].type = match[3];
  }
  current_ = name;
}

void PrometheusText::ReadSample(const std::string& line) {
  static const std::regex sample(
      R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\["\\n])*",?)*)\})? (\S+))re");
  static const std::regex label(R"re(([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\["\\n])*)",?)re");
  std::smatch match;
  if (!std::regex_match(line, match, sample)) {
    errors.push_back("no sample: " + line);
    return;
  }
  PrometheusSample read;
  read.name = match[1];
  PrometheusFamily& family = families[current_];
  const std::string suffix =
      read.name.rfind(current_, 0) == 0 ? read.name.substr(current_.size()) : "?";
  const bool part = suffix == "_bucket" || suffix == "_sum" || suffix == "_count";
  if (!(family.type == "histogram" ? part : suffix.empty())) {
    errors.push_back("sample outside its family: " + line);
  }
  const std::string labels = match[3];
  for (std::sregex_iterator at(labels.begin(), labels.end(), label), end; at != end; ++at) {
    if (!read.labels.emplace((*at)[1], Unescape((*at)[2])).second) {
      errors.push_back("label twice: " + line);
    }
  }
  char* rest = nullptr;
  const std::string value = match[4];
  read.value =
      value == "+Inf" ? std::numeric_limits<double>::infinity() : std::strtod(value.c_str(), &rest);
  if (value != "+Inf" && *rest != '\0') {
    errors.push_back("no number: " + line);
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
