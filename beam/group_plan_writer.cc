#include "beam/group_plan_writer.h"

#include <utility>

#include "beam/strategy/selection_options.h"

namespace espalier {
namespace {

// Returns a selection with the fields that are constant for all steps.
std::shared_ptr<PlanSelection> MakeSelection(
    RequestId id, const GenerationParams& request,
    std::shared_ptr<const SelectionParams> params) {
  const SharedList<TokenId> finishing = FinishingTokenIds(request);
  auto selection = std::make_shared<PlanSelection>();
  selection->request = id;
  selection->params = std::move(params);
  selection->num_slots = NumSlots(request);
  selection->eos_token_ids.assign(finishing.begin(), finishing.end());
  return selection;
}

}  // namespace

GroupPlanWriter::GroupPlanWriter(RequestId id, const Request& request,
                                 std::shared_ptr<const SelectionParams> params)
    : needs_history_(params->processors.needs_history() ||
                     params->processors.timestamps.has_value()),
      selection_(MakeSelection(id, request.params, params)),
      id_(id),
      params_(std::move(params)) {}

void GroupPlanWriter::AddHistories(const GroupSearch& search, size_t num_rows,
                                   PlanSelection* selection) {
  selection->histories.resize(num_rows);
  for (size_t rank = 0; rank < num_rows; ++rank) {
    selection->histories[rank].clear();
    search.strategy().AppendTokens(static_cast<int>(rank),
                                   &selection->histories[rank]);
  }
}

void GroupPlanWriter::AddRow(const Sequence& sequence, const TokenPath& tokens,
                             int num_logits, StepPlan* plan) const {
  AddRowOf(sequence, static_cast<int>(tokens.size()), num_logits, plan);
  plan->tokens.insert(plan->tokens.end(), tokens.head.begin(),
                      tokens.head.end());
  plan->tokens.insert(plan->tokens.end(), tokens.rest.begin(),
                      tokens.rest.end());
}

}  // namespace espalier
