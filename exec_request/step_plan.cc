#include "exec_request/step_plan.h"

namespace espalier {

std::shared_ptr<const ScoreEdits> EditsOf(const SelectionParams& rule) {
  if (rule.edits != nullptr) return rule.edits;
  return std::make_shared<const ScoreEdits>(rule.processors);
}

int PlanSelection::num_logits() const {
  return first_logits_of(num_plan_rows()) - first_logits;
}

int PlanSelection::first_logits_of(int row) const {
  int line = first_logits + row;
  if (drafts.empty()) return line;
  for (int r = 0; r < row; ++r) line += static_cast<int>(drafts[r].size());
  return line;
}

std::shared_ptr<const SelectionParams> PlanSelection::DefaultRule() {
  static const auto* const rule =
      new std::shared_ptr<const SelectionParams>(new SelectionParams);
  return *rule;
}

bool NeedsDraftLogits(const SelectionParams& rule) {
  return rule.verify_mode == VerifyMode::kRejection && !rule.sampling.greedy();
}

}  // namespace espalier
