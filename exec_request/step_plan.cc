#include "exec_request/step_plan.h"

namespace espalier {

std::shared_ptr<const ScoreEdits> EditsOf(const SelectionParams& rule) {
  if (rule.edits != nullptr) return rule.edits;
  return std::make_shared<const ScoreEdits>(rule.processors);
}

std::shared_ptr<const SelectionParams> PlanSelection::DefaultRule() {
  static const auto* const rule =
      new std::shared_ptr<const SelectionParams>(new SelectionParams);
  return *rule;
}

}  // namespace espalier
