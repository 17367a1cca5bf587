// PrometheusText - a strict reader of Prometheus' text format 0.0.4, as a scraper would be.
// Errors: what breaks the format is collected in `errors`.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace walpost::observe {

struct PrometheusSample {
  std::string name;  // with _bucket, _sum, _count
  std::map<std::string, std::string> labels;
  double value = 0;
};

struct PrometheusFamily {
  std::string help;
  std::string type;
  std::vector<PrometheusSample> samples;
};

struct PrometheusText {
  explicit PrometheusText(const std::string& text);

  // The value of the one sample with this name and, besides `pipeline`, these labels; NaN if none.
  double Value(const std::string& name,
               const std::map<std::string, std::string>& labels = {}) const;

  std::map<std::string, PrometheusFamily> families;
  std::vector<std::string> errors;

 private:
  void ReadLine(const std::string& line);
  void ReadComment(const std::string& line);
  void ReadSample(const std::string& line);

  std::string current_;
};

}  // namespace walpost::observe
