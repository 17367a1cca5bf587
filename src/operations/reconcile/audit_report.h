// AuditReport - what `walpost audit` found, as text and as JSON.
// Thread: values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "operations/reconcile/audit.h"

namespace walpost::operations {

struct AuditReport {
  static constexpr std::size_t kFindings = static_cast<std::size_t>(Finding::kUndeliverable) + 1;
  static constexpr std::size_t kExamplesMax = 20;

  std::string pipeline;
  std::vector<std::string> tables;
  std::uint64_t rows = 0;
  std::array<std::uint64_t, kFindings> counts = {};
  std::vector<std::string> missing;  // the first
  std::vector<ReconciledTopic> topics;
  Reconciliation::Order order;
  std::vector<std::string> notes;  // what limits it

  void Count(const Reconciled& reconciled, Finding finding);

  std::uint64_t operator[](Finding finding) const {
    return counts[static_cast<std::size_t>(finding)];
  }

  std::uint64_t Unknown() const;
  int ExitCode() const;
  std::string Text() const;
  std::string Json() const;
};

// As in the JSON and in the file of --report.
std::string_view NameOf(Finding finding);

}  // namespace walpost::operations
