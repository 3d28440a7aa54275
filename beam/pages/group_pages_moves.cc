// GroupPages, part: pages adopted from the prefix cache, loaded from host
// memory, or released by a preemption.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "beam/pages/group_pages.h"
#include "pages/page_table.h"

namespace espalier {

void GroupPages::AdoptPages(int rank, std::vector<PageRef> pages) {
  slots_[slots_by_rank_[rank]].sequence->pages.AdoptPages(std::move(pages));
}

void GroupPages::ReplaceTail(int rank, std::vector<PageRef> pages) {
  PageTable& table = slots_[slots_by_rank_[rank]].sequence->pages;
  table.Truncate(table.num_tokens() / pool_->page_size() * pool_->page_size());
  table.AdoptPages(std::move(pages));
}

absl::Status GroupPages::AppendCopy(int rank, PageRef from, int num_tokens,
                                    std::vector<PageCopy>* copies) {
  copy_source_ = std::move(from);
  return slots_[slots_by_rank_[rank]].sequence->pages.AppendCopy(
      copy_source_, num_tokens, copies);
}

absl::Status GroupPages::Load(int rank, int saved_rank, int num_tokens,
                              LoadedPages* loaded, StepPlan* plan) {
  PageTable& table = slots_[slots_by_rank_[rank]].sequence->pages;
  const int place = table.num_tokens() / pool_->page_size();
  const SavedPage* const saved = saved_.Find(saved_rank, place);
  CHECK(saved != nullptr && num_tokens <= saved->num_tokens)
      << num_tokens << " tokens to load at place " << place;
  const HostSlotId slot = saved->slot.id();
  PageRef page = (*loaded)[slot];
  if (!page) {
    ASSIGN_OR_RETURN(page, pool_->Allocate());
    plan->page_loads.push_back({slot, page.id()});
    has_loads_ = true;
    (*loaded)[slot] = page;
  }
  table.AdoptTail(std::move(page), num_tokens);
  return absl::OkStatus();
}

void GroupPages::EndMoves() {
  copy_source_ = PageRef();
  has_loads_ = false;
}

void GroupPages::WithdrawMoves(StepPlan* plan) {
  if (!has_moves()) return;
  const std::vector<HostSlotId> slots = saved_.SlotIds();
  std::erase_if(plan->page_loads, [&](const PageLoad& load) {
    return std::ranges::binary_search(slots, load.slot);
  });
  std::erase_if(plan->page_copies, [&](const PageCopy& copy) {
    return copy_source_ && copy.from == copy_source_.id() && Holds(copy.to);
  });
  EndMoves();
}

bool GroupPages::Holds(PageId page) const {
  const auto is_it = [&](const PageRef& held) { return held.id() == page; };
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.sequence.has_value() &&
           std::ranges::any_of(slot.sequence->pages.pages(), is_it);
  });
}

// Reserved tails are not saved, because only the executor knows their contents.
bool GroupPages::Preempt(int num_ranks, const PageSaving& saving,
                         bool names_end, StepPlan* plan) {
  SmallVector<int> ranks(num_ranks);
  std::iota(ranks.begin(), ranks.end(), 0);
  bool has_saved = false;
  if (has_moves()) {
    WithdrawMoves(plan);
  } else if (!has_reserved_tails_) {
    std::vector<const PageTable*> tables;
    for (int rank = 0; rank < num_sequences(); ++rank) {
      tables.push_back(&sequence(rank).pages);
    }
    has_saved = saved_.Save(tables, num_ranks, saving, &plan->page_saves);
  }
  ReleasePages(names_end ? &plan->finished : nullptr);
  slots_by_rank_ = std::move(ranks);
  is_preempted_ = true;
  return has_saved;
}

void GroupPages::Restart() {
  CHECK(is_preempted_) << "a group that holds pages";
  std::vector<Slot> slots(1);
  slots[0].sequence = Sequence{ids_->Next(), PageTable(pool_)};
  slots_by_rank_.assign(1, 0);
  slots_ = std::move(slots);
  is_preempted_ = false;
}

}  // namespace espalier
