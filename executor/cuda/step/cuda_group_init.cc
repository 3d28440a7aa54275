#include "executor/cuda/step/cuda_group_init.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

#include "base/check.h"
#include "base/status.h"
#include "executor/selection_rows.h"

namespace espalier {
namespace {

int LastPosition(const PlanRow& row) {
  return row.first_position + row.num_tokens - 1;
}

// Returns the first entry of arrays [2, num_places] at the group's position.
int FirstPlaceOf(const CudaBeamState& state, const CudaGroup& group) {
  return group.first_slot + (group.position % 2 != 0 ? state.num_places : 0);
}

}  // namespace

int PlanRowOf(const StepPlan& plan, int logits_row) {
  const auto row =
      std::lower_bound(plan.rows.begin(), plan.rows.end(), logits_row,
                       [](const PlanRow& r, int wanted) {
                         return r.first_logits + r.num_logits <= wanted;
                       });
  CHECK(row != plan.rows.end()) << "row " << logits_row << " is of no row";
  return static_cast<int>(row - plan.rows.begin());
}

int NumSlotsOf(const PlanSelection& selection) {
  return std::max(selection.num_slots, selection.num_plan_rows());
}

absl::StatusOr<CudaGroupInit> CudaGroupInit::Find(
    const StepPlan& plan, const PlanSelection& selection) {
  CudaGroupInit found(&plan, &selection);
  const bool differ = HasDifferentRows(selection);
  const SmallVector<int> first_logits = selection.FirstLogits();
  for (int i = 0; i < selection.num_plan_rows(); ++i) {
    const int logits_row = first_logits[i + 1] - 1;
    found.rows_.push_back(PlanRowOf(plan, logits_row));
    const PlanRow& row = plan.rows[found.rows_.back()];
    const int last = row.first_logits + row.num_logits - 1;
    if (logits_row != last) {
      return InvalidArgument("a selection is from row ", logits_row,
                             " of logits, on a CUDA device it is from a row's ",
                             "last, ", last);
    }
    const int first_position = LastPosition(plan.rows[found.rows_[0]]);
    if (LastPosition(row) != first_position && !differ) {
      return InvalidArgument("rows of one request end at positions ",
                             first_position, " and ", LastPosition(row));
    }
  }
  found.feeds_beams_ = found.FeedsBeams();
  return found;
}

// True if the rows feed one generated token for each slot. A group with fewer
// live beams than slots is fed from the plan, row by row, so that a step has no
// more tokens than its plan.
bool CudaGroupInit::FeedsBeams() const {
  return !HasDifferentRows(*selection_) && selection_->num_generated > 0 &&
         selection_->num_rows == selection_->num_slots &&
         std::all_of(rows_.begin(), rows_.end(),
                     [&](int row) { return plan_->rows[row].num_tokens == 1; });
}

void CudaGroupInit::Put(const CudaStepMemory& memory, int page_size,
                        CudaGroup* group, CudaDelta* delta) const {
  // With rows of different lengths, the group has the shortest one's position.
  group->position = LastPosition(plan_->rows[rows_[0]]);
  for (const int row : rows_) {
    group->position = std::min(group->position, LastPosition(plan_->rows[row]));
  }
  // Full pages that no beam of the group will write into.
  const int num_full = (group->position + (feeds_beams_ ? 0 : 1)) / page_size;
  group->num_shared_pages = NumCommonPages(num_full);
  group->eos_token_ids.assign(selection_->eos_token_ids.begin(),
                              selection_->eos_token_ids.end());
  group->tail_pages.clear();
  if (!selection_->places.empty()) {
    group->end_position = selection_->places[0].room + group->position;
  }
  PutTables(memory, *group, delta);
  PutHomes(memory, *group, delta);
  if (feeds_beams_) PutBeams(memory, page_size, *group, delta);
}

int CudaGroupInit::NumCommonPages(int limit) const {
  const std::span<const PageId> first = plan_->row_pages(rows_[0]);
  size_t count = std::min<size_t>(limit, first.size());
  for (const int row : std::span(rows_).subspan(1)) {
    const std::span<const PageId> pages = plan_->row_pages(row);
    count = std::mismatch(first.begin(), first.begin() + count, pages.begin(),
                          pages.end())
                .first -
            first.begin();
  }
  return static_cast<int>(count);
}

int CudaGroupInit::HomeOf(int rank) const {
  return selection_->kind() == SelectionKind::kRows ? selection_->slots[rank]
                                                    : rank;
}

void CudaGroupInit::PutTables(const CudaStepMemory& memory,
                              const CudaGroup& group, CudaDelta* delta) const {
  const int num_shared = group.num_shared_pages;
  const CudaDelta::Shared shared =
      delta->Share(Words(plan_->row_pages(rows_[0]).first(num_shared)));
  for (int slot = 0; slot < group.num_slots; ++slot) {
    delta->Put(memory.table(group.first_slot + slot), shared);
  }
  for (int i = 0; i < std::ssize(rows_); ++i) {
    const int slot = group.first_slot + SlotOf(*selection_, i);
    delta->Put<int>(memory.table(slot) + num_shared,
                    Words(plan_->row_pages(rows_[i]).subspan(num_shared)));
  }
}

void CudaGroupInit::PutHomes(const CudaStepMemory& memory,
                             const CudaGroup& group, CudaDelta* delta) const {
  // Each row of kRows is a group of one slot, with a position of its own.
  const bool each = selection_->kind() == SelectionKind::kRows;
  const int num_homes = each ? group.num_slots : selection_->num_rows;
  std::vector<int> slots(num_homes);
  for (int home = 0; home < num_homes; ++home) {
    slots[home] = group.first_slot + (each ? home : selection_->slots[home]);
  }
  const CudaBeamState& state = memory.arrays().state;
  delta->Put<int>(state.slots + group.first_slot, slots);
  delta->Put<int>(state.positions + group.first_slot,
                  std::vector<int>(each ? group.num_slots : 1, group.position));
  if (each || selection_->places.empty()) return;
  // With drafts there are more places than ranks, and no continuation follows.
  std::vector<int32_t> states(num_homes);
  for (int rank = 0; rank < num_homes; ++rank) {
    states[rank] = selection_->places[rank].state;
  }
  const std::optional<ConstraintTables>& tables =
      selection_->params->constraint;
  if (tables.has_value() && tables->has_stacks()) {
    for (int rank = 0; rank < num_homes; ++rank) {
      states[rank] = PutPlace(memory, group, rank, delta);
    }
  }
  delta->Put<int32_t>(state.constraint_states + FirstPlaceOf(state, group),
                      states);
}

int32_t CudaGroupInit::PutPlace(const CudaStepMemory& memory,
                                const CudaGroup& group, int rank,
                                CudaDelta* delta) const {
  PushdownPlace place;
  selection_->params->constraint->stacks.places->Find(
      selection_->places[rank].state, &place);
  const CudaBeamState& state = memory.arrays().state;
  PushdownPlace* const to = state.places + FirstPlaceOf(state, group) + rank;
  const int words[] = {place.state, place.count, place.height, 0};
  delta->Put<int>(&to->state, words);
  if (place.height > 0) {
    delta->Put<PushdownFrame>(
        to->frames, std::span<const PushdownFrame>(
                        place.frames, static_cast<size_t>(place.height)));
  }
  return place.state;
}

void CudaGroupInit::PutBeams(const CudaStepMemory& memory, int page_size,
                             const CudaGroup& group, CudaDelta* delta) const {
  const int tail = group.position / page_size;
  std::vector<int> tokens(rows_.size());
  std::vector<int> tails(rows_.size());
  std::vector<float> cums(rows_.size());
  for (int rank = 0; rank < std::ssize(rows_); ++rank) {
    const int home = HomeOf(rank);
    tokens[home] = plan_->row_tokens(plan_->rows[rows_[rank]]).front();
    cums[home] = selection_->cum_log_probs[rank];
    tails[selection_->slots[rank]] = plan_->row_pages(rows_[rank])[tail].value;
  }
  const CudaBeamState& state = memory.arrays().state;
  const int first = group.first_slot;
  delta->Put<int>(state.tokens + first, tokens);
  delta->Put<float>(state.cum_log_probs + first, cums);
  delta->Put<int>(state.sources + first, std::vector<int>(rows_.size(), -1));
  delta->Put<int>(state.tails + first, tails);
  const DrawSelection* const draws = selection_->as_draws();
  if (draws == nullptr) return;
  const std::vector<uint32_t> samples(draws->samples.begin(),
                                      draws->samples.end());
  delta->Put<uint32_t>(state.samples + first, samples);
}

}  // namespace espalier
