#include "exec_request/step_plan.h"

namespace espalier {

std::shared_ptr<const ScoreEdits> EditsOf(const SelectionParams& params) {
  if (params.edits != nullptr) return params.edits;
  return std::make_shared<const ScoreEdits>(params.processors);
}

int PlanSelection::num_logits() const {
  return first_logits_of(num_plan_rows()) - first_logits;
}

int PlanSelection::first_logits_of(int row) const {
  int logits_row = first_logits + row;
  if (drafts.empty()) return logits_row;
  for (int r = 0; r < row; ++r)
    logits_row += static_cast<int>(drafts[r].size());
  return logits_row;
}

std::shared_ptr<const SelectionParams> PlanSelection::DefaultParams() {
  static const auto* const params =
      new std::shared_ptr<const SelectionParams>(new SelectionParams);
  return *params;
}

bool NeedsDraftLogits(const SelectionParams& params) {
  return params.verify_mode == VerifyMode::kRejection &&
         !params.sampling.greedy();
}

}  // namespace espalier
