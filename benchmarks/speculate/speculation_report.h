// SpeculationReport: what verify_speculation has found, for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "espalier/generator.h"
#include "speculate/speculation_figures.h"

namespace espalier::verify_speculation {

// Requests whose results must be equal: on the CPU to the bit, on a GPU token
// for token, with scores and log-probabilities within rounding.
struct ExactComparison {
  // Allowed difference of scores and log-probabilities, relative to them, or
  // absolute below 1. 0: bit for bit.
  double tolerance = 0;
  int num_requests = 0;
  int num_hypotheses = 0;
  std::vector<int64_t> lines_without_drafts;  // no draft was verified
  std::vector<std::string> differences;       // one line each

  // Both are results of the request on line `line`.
  void Compare(int64_t line, const Generation& without, const Generation& with);
};

// One request whose samples must have the same distribution.
struct SampleComparison {
  // That a right implementation is called wrong, by all requests together.
  static constexpr double kFalseAlarms = 0.001;

  int64_t line = 0;
  int num_samples = 0;      // with, and as many without
  bool has_drafts = false;  // some were verified
  double p_value = 1;       // over all of its tables

  bool differs(size_t num_requests) const {
    return p_value * num_requests < kFalseAlarms;
  }
};

enum class SpeculationVerdict {
  kEqual,
  kDifferent,
  kNothingShown,  // nothing differs, and no draft was verified
};

struct SpeculationReport {
  bool may_add_draft_model = true;  // none yet, and the model can use one
  ExactComparison exact;
  std::vector<SampleComparison> sampled;
  std::vector<std::string> left_out;  // why, one line each
  SpeculationFigures compared;        // with drafts in every step
  SpeculationFigures timed;           // with drafts as they pay
  std::vector<absl::Duration> times_without, times_with;  // [rounds]

  SpeculationVerdict verdict() const;
};

std::string Format(const SpeculationReport& report);

}  // namespace espalier::verify_speculation
