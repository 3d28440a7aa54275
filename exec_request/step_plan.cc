#include "exec_request/step_plan.h"

namespace espalier {

std::shared_ptr<const ScoreEdits> EditsOf(const SelectionRule& rule) {
  if (rule.edits != nullptr) return rule.edits;
  return std::make_shared<const ScoreEdits>(rule.processors);
}

std::shared_ptr<const SelectionRule> PlanSelection::DefaultRule() {
  static const auto* const rule =
      new std::shared_ptr<const SelectionRule>(new SelectionRule);
  return *rule;
}

}  // namespace espalier
