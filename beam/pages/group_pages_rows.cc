// GroupPages, part: rows of the paths that a step may take, several for one
// sequence.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "beam/pages/group_pages.h"
#include "pages/page_table.h"

namespace espalier {

absl::Status GroupPages::AppendRows(std::span<const int> ranks,
                                    std::span<const int> num_tokens,
                                    StepPlan* plan) {
  CHECK(!has_rows()) << "the rows of the last step are not merged";
  slots_by_row_.reserve(ranks.size());
  slots_.reserve(slots_.size() + ranks.size());
  for (size_t row = 0; row < ranks.size(); ++row) {
    const int slot = slots_by_rank_[ranks[row]];
    if (row == 0 || ranks[row - 1] != ranks[row]) {
      slots_by_row_.push_back(slot);
      continue;
    }
    const Sequence& parent = *slots_[slot].sequence;
    num_pages_of_rows_ += NumPagesOfFork(parent.pages, num_tokens[row]);
    const SequenceId child = ids_->Next();
    Sequence fork = {child, TakeTable()};
    fork.pages.ForkFrom(parent.pages, parent.num_tokens());
    plan->forks.push_back({parent.id, child});
    slots_by_row_.push_back(static_cast<int>(slots_.size()));
    slots_.emplace_back().sequence = std::move(fork);
  }
  return AppendToSlots(slots_by_row_, num_tokens, &plan->page_copies);
}

int64_t GroupPages::NumPagesOfFork(const PageTable& table,
                                   int num_tokens) const {
  const int page_size = pool_->page_size();
  return NumPages(table.num_tokens() + num_tokens, page_size) -
         table.num_tokens() / page_size;
}

int64_t GroupPages::NumPagesToAppendRows(
    std::span<const int> ranks, std::span<const int> num_tokens) const {
  std::vector<int> of_first_rows;
  int64_t num_pages = 0;
  for (size_t row = 0; row < ranks.size(); ++row) {
    if (row == 0 || ranks[row - 1] != ranks[row]) {
      of_first_rows.push_back(num_tokens[row]);
    } else {
      num_pages += NumPagesOfFork(sequence(ranks[row]).pages, num_tokens[row]);
    }
  }
  return num_pages + NumPagesToAppend(of_first_rows);
}

void GroupPages::FollowRows(std::span<const int> rows) {
  slots_by_rank_.resize(rows.size());
  if (is_preempted_) {
    std::iota(slots_by_rank_.begin(), slots_by_rank_.end(), 0);
    return;
  }
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    slots_by_rank_[rank] = slots_by_row_.at(rows[rank]);
  }
}

// At most num_slots rows live on, so each row beyond the regular slots finds a
// free one.
void GroupPages::MergeRows(int num_tokens, StepPlan* next_plan) {
  if (is_preempted_) return;
  std::vector<bool> lives(slots_.size());
  for (const int slot : slots_by_rank_) lives[slot] = true;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    std::optional<Sequence>& sequence = slots_[slot].sequence;
    if (lives[slot] || !sequence.has_value()) continue;
    EndSequence(&sequence, next_plan).Clear();
  }
  size_t free = 0;
  for (int& slot : slots_by_rank_) {
    if (slot >= num_slots_) {
      while (lives[free]) ++free;
      slots_[free].sequence = std::move(slots_[slot].sequence);
      slots_[slot].sequence.reset();
      lives[free] = true;
      slot = static_cast<int>(free);
    }
    slots_[slot].sequence->pages.Truncate(num_tokens);
  }
  if (std::ssize(slots_) > num_slots_) slots_.resize(num_slots_);
  slots_by_row_.clear();
  num_pages_of_rows_ = 0;
}

void GroupPages::Truncate(int rank, int num_tokens) {
  CHECK(!has_reserved_tails_) << "a step is planned ahead";
  slots_[slots_by_rank_[rank]].sequence->pages.Truncate(num_tokens);
}

}  // namespace espalier
