#include "exec_request/step_plan.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <variant>

#include "base/check.h"

namespace espalier {
namespace {

using Choice = decltype(PlanSelection::choice);

// kind() is the index of the alternative.
static_assert(std::variant_size_v<Choice> == 3);
static_assert(
    std::is_same_v<BeamSelection, std::variant_alternative_t<
                                      size_t(SelectionKind::kBeams), Choice>>);
static_assert(
    std::is_same_v<RowSelection, std::variant_alternative_t<
                                     size_t(SelectionKind::kRows), Choice>>);
static_assert(
    std::is_same_v<DrawSelection, std::variant_alternative_t<
                                      size_t(SelectionKind::kDraws), Choice>>);

// REQUIRES: `choice` holds a Chosen.
template <typename Chosen>
Chosen& Edit(Choice& choice) {
  auto* const chosen = std::get_if<Chosen>(&choice);
  CHECK(chosen != nullptr) << "a selection of kind " << choice.index();
  return *chosen;
}

}  // namespace

BeamSelection& PlanSelection::EditBeams() {
  return Edit<BeamSelection>(choice);
}
RowSelection& PlanSelection::EditRows() { return Edit<RowSelection>(choice); }
DrawSelection& PlanSelection::EditDraws() {
  return Edit<DrawSelection>(choice);
}

std::shared_ptr<const ScoreEdits> EditsOf(const SelectionParams& params) {
  if (params.edits != nullptr) return params.edits;
  return std::make_shared<const ScoreEdits>(params.processors);
}

std::vector<int> PathRows::num_tokens() const {
  std::vector<int> counts;
  for (const std::vector<TokenId>& draft : drafts) {
    counts.push_back(static_cast<int>(draft.size()) + 1);
  }
  return counts;
}

int PathRows::num_drafted(int num_beams) const {
  int count = -num_beams;
  for (const int num_fed : num_tokens()) count += num_fed;
  return count;
}

int PlanSelection::num_candidates() const {
  if (const BeamSelection* beams = as_beams()) return beams->num_candidates;
  const RowSelection* const rows = as_rows();
  return rows == nullptr ? 1 : rows->num_candidates;
}

std::span<const std::vector<TokenId>> PlanSelection::drafts() const {
  if (const BeamSelection* beams = as_beams()) return beams->paths.drafts;
  if (const DrawSelection* draws = as_draws()) return draws->drafts.tokens;
  return {};
}

int PlanSelection::num_logits() const {
  int count = num_plan_rows();
  for (const std::vector<TokenId>& draft : drafts()) {
    count += static_cast<int>(draft.size());
  }
  return count;
}

SmallVector<int> PlanSelection::FirstLogits() const {
  const std::span<const std::vector<TokenId>> drafted = drafts();
  const int num_plan_rows = this->num_plan_rows();
  SmallVector<int> logits_rows = {first_logits};
  for (int row = 0; row < num_plan_rows; ++row) {
    const size_t num_drafted = drafted.empty() ? 0 : drafted[row].size();
    logits_rows.push_back(logits_rows.back() + 1 +
                          static_cast<int>(num_drafted));
  }
  return logits_rows;
}

std::shared_ptr<const SelectionParams> PlanSelection::DefaultParams() {
  static const auto* const params =
      new std::shared_ptr<const SelectionParams>(new SelectionParams);
  return *params;
}

const PlanSource* StepPlan::source_of(size_t row) const {
  const auto after = std::ranges::upper_bound(sources, static_cast<int>(row),
                                              {}, &PlanSource::first_row);
  if (after == sources.begin()) return nullptr;
  const PlanSource& source = *(after - 1);
  const int end = source.first_row + source.num_rows;
  return static_cast<int>(row) < end ? &source : nullptr;
}

int64_t StepPlan::NumSourceTokens(size_t first_source) const {
  int64_t count = 0;
  for (const PlanSource& source : std::span(sources).subspan(first_source)) {
    if (source.is_read()) count += source.input->length();
  }
  return count;
}

std::vector<RequestId> AskedOf(const StepPlan& plan) {
  std::vector<RequestId> asked;
  for (const PlanSelection& selection : plan.selections) {
    asked.push_back(selection.request);
  }
  for (const GroupContinuation& continuation : plan.continuations) {
    asked.push_back(continuation.request);
  }
  return asked;
}

bool NeedsDraftLogits(const SelectionParams& params) {
  return params.verify_mode == VerifyMode::kRejection &&
         !params.sampling.greedy();
}

}  // namespace espalier
