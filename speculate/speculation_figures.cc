#include "speculate/speculation_figures.h"

#include "base/check.h"

namespace espalier {

void SpeculationFigures::Record(int num_drafted, int num_accepted,
                                int num_given) {
  CHECK(0 <= num_accepted && num_accepted <= num_drafted &&
        num_drafted <= kMaxDraftTokens)
      << num_accepted << " accepted of " << num_drafted;
  CHECK(1 <= num_given && num_accepted <= num_given &&
        num_given <= num_accepted + 1)
      << num_given << " tokens, " << num_accepted << " of them accepted";
  ++num_target_steps;
  num_tokens += num_given;
  num_drafted_tokens += num_drafted;
  num_accepted_tokens += num_accepted;
  for (int i = 0; i < num_drafted; ++i) ++num_drafted_at[i];
  for (int i = 0; i < num_accepted; ++i) ++num_accepted_at[i];
}

void SpeculationFigures::Add(const SpeculationFigures& other) {
  num_target_steps += other.num_target_steps;
  num_tokens += other.num_tokens;
  num_drafted_tokens += other.num_drafted_tokens;
  num_accepted_tokens += other.num_accepted_tokens;
  for (size_t i = 0; i < num_drafted_at.size(); ++i) {
    num_drafted_at[i] += other.num_drafted_at[i];
    num_accepted_at[i] += other.num_accepted_at[i];
  }
}

void SpeculationFigures::Subtract(const SpeculationFigures& earlier) {
  num_target_steps -= earlier.num_target_steps;
  num_tokens -= earlier.num_tokens;
  num_drafted_tokens -= earlier.num_drafted_tokens;
  num_accepted_tokens -= earlier.num_accepted_tokens;
  for (size_t i = 0; i < num_drafted_at.size(); ++i) {
    num_drafted_at[i] -= earlier.num_drafted_at[i];
    num_accepted_at[i] -= earlier.num_accepted_at[i];
  }
}

double SpeculationFigures::AcceptanceRate() const {
  if (num_drafted_tokens == 0) return 0;
  return static_cast<double>(num_accepted_tokens) / num_drafted_tokens;
}

double SpeculationFigures::TokensPerStep() const {
  if (num_target_steps == 0) return 1;
  return static_cast<double>(num_tokens) / num_target_steps;
}

}  // namespace espalier
