#include "beam/pages/group_pages.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <ranges>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/fault_injection.h"
#include "base/page_count.h"
#include "base/status.h"
#include "beam/strategy/selection_options.h"
#include "kernels/resident/assign_slots.h"
#include "pages/page_table.h"

namespace espalier {

int64_t GroupPages::WorstCase(const Request& request, int page_size,
                              int64_t source_length) {
  const int64_t num_prompt_tokens = request.prompt_tokens.size();
  const int64_t max_new_tokens = request.params.max_new_tokens.value();
  return NumPages(source_length, page_size) +
         WorstCasePages(
             num_prompt_tokens,
             num_prompt_tokens + std::max<int64_t>(max_new_tokens, 1) - 1,
             NumSlots(request.params), page_size);
}

GroupPages::GroupPages(int num_slots, int64_t max_pages, PagePool* pool,
                       SequenceIdSource* ids,
                       std::shared_ptr<const EncoderInput> source)
    : slots_(1),
      slots_by_rank_(1),
      pool_(pool),
      ids_(ids),
      num_slots_(num_slots),
      max_pages_(max_pages),
      source_(std::move(source), pool) {
  slots_[0].sequence = Sequence{ids_->Next(), PageTable(pool_)};
}

absl::Status GroupPages::Append(std::span<const int> num_tokens,
                                std::vector<PageCopy>* copies) {
  return AppendToSlots(slots_by_rank_, num_tokens, copies);
}

absl::Status GroupPages::AppendOneToFirst(size_t count,
                                          std::vector<PageCopy>* copies) {
  const size_t num_copies = copies->size();
  while (count-- > 0) {
    PageTable& table = slots_[slots_by_rank_[count]].sequence->pages;
    if (table.AppendInPlace()) continue;
    const absl::Status status = table.Append(1, copies);
    if (!status.ok()) {
      copies->resize(num_copies);
      return status;
    }
  }
  return absl::OkStatus();
}

// Visits the last slot first: children rank below the one that stays in their
// parent's slot, so they copy the tail and it writes in place. Rows do so too.
absl::Status GroupPages::AppendToSlots(std::span<const int> slots,
                                       std::span<const int> num_tokens,
                                       std::vector<PageCopy>* copies) {
  CHECK(!has_reserved_tails_) << "a step is planned ahead";
  CHECK_EQ(num_tokens.size(), slots.size()) << "sequences to grow";
  const size_t num_copies = copies->size();
  for (size_t i = slots.size(); i-- > 0;) {
    Sequence& sequence = *slots_[slots[i]].sequence;
    const absl::Status status = sequence.pages.Append(num_tokens[i], copies);
    if (!status.ok()) {
      copies->resize(num_copies);
      return status;
    }
  }
  return absl::OkStatus();
}

// All but one of the sequences that share a tail copy it.
int64_t GroupPages::NumPagesToAppend(std::span<const int> num_tokens) const {
  const int page_size = pool_->page_size();
  int64_t num_pages = 0;
  SmallVector<PageId> shared_tails;
  for (int rank = 0; rank < num_sequences(); ++rank) {
    if (num_tokens[rank] == 0) continue;
    const PageTable& table = sequence(rank).pages;
    const int num_left = table.room_in_tail();
    if (num_tokens[rank] > num_left) {
      num_pages += NumPages(num_tokens[rank] - num_left, page_size);
    }
    if (num_left > 0 && table.pages().back().shared()) {
      shared_tails.push_back(table.pages().back().id());
    }
  }
  if (shared_tails.empty()) return num_pages;
  num_pages += std::ssize(shared_tails);
  std::sort(shared_tails.begin(), shared_tails.end());
  for (auto at = shared_tails.begin(); at != shared_tails.end();) {
    const auto end = std::upper_bound(at, shared_tails.end(), *at);
    // The last one writes in place, if only these sequences hold the page.
    if (end - at == pool_->ref_count(*at)) --num_pages;
    at = end;
  }
  return num_pages;
}

int64_t GroupPages::NumPagesToReserveTails() const {
  int64_t num_pages = num_slots_ - std::ssize(slots_);
  for (const Slot& slot : slots_) {
    if (!HasRoomInTail(slot) && !slot.tail) ++num_pages;
  }
  return num_pages;
}

bool GroupPages::HasRoomInTail(const Slot& slot) const {
  return slot.sequence.has_value() && slot.sequence->pages.room_in_tail() > 0;
}

absl::StatusOr<SmallVector<PageId>> GroupPages::ReserveTails() {
  CHECK(!has_reserved_tails_) << "a step is planned ahead";
  slots_.resize(num_slots_);
  may_have_tails_ = true;
  SmallVector<PageId> tails;
  tails.reserve(num_slots_);
  for (Slot& slot : slots_) {
    if (HasRoomInTail(slot)) {
      const PageRef& tail = slot.sequence->pages.pages().back();
      CHECK(!tail.shared()) << "a sequence has fed nothing since its fork";
      tails.push_back(tail.id());
      continue;
    }
    if (!slot.tail) {
      if (FaultInjected(FaultPoint::kTakePages)) {
        return ResourceExhausted("need 1 page, 0 available");
      }
      ASSIGN_OR_RETURN(slot.tail, pool_->Allocate());
    }
    tails.push_back(slot.tail.id());
  }
  has_reserved_tails_ = true;
  return tails;
}

void GroupPages::Reorder(std::span<const int> parent_ranks,
                         StepPlan* next_plan) {
  const int num_children = static_cast<int>(parent_ranks.size());
  CHECK(num_children >= 1 && num_children <= num_slots_)
      << num_children << " sequences in " << num_slots_ << " slots";
  if (is_preempted_) {
    saved_.Reorder(parent_ranks);
    slots_by_rank_.resize(num_children);
    std::iota(slots_by_rank_.begin(), slots_by_rank_.end(), 0);
    return;
  }
  if (AllStay(parent_ranks) && KeepOrder()) return;
  if (slots_.size() < parent_ranks.size()) slots_.resize(num_children);
  SmallVector<int> parents(num_children);  // slots, by rank of the child
  for (int rank = 0; rank < num_children; ++rank) {
    parents[rank] = slots_by_rank_[parent_ranks[rank]];
  }
  SmallVector<int> slots(num_children);
  const int num_slots = static_cast<int>(slots_.size());
  SmallVector<bool> has_child(num_slots);
  AssignSlots(parents.data(), num_children, num_slots, slots.data(),
              has_child.data());
  SmallVector<int> num_tail_tokens;
  if (has_reserved_tails_) num_tail_tokens = DetachTails();
  PruneSequences(slots, parents, next_plan);
  ForkChildren(slots, parents, next_plan);
  AttachTails(slots, parents, num_tail_tokens);
  slots_by_rank_.assign(slots.begin(), slots.end());
}

void GroupPages::DropTails() {
  if (!std::exchange(may_have_tails_, false)) return;
  for (Slot& slot : slots_) slot.tail = PageRef();
}

bool GroupPages::AllStay(std::span<const int> parent_ranks) const {
  if (parent_ranks.size() != slots_by_rank_.size()) return false;
  for (size_t rank = 0; rank < parent_ranks.size(); ++rank) {
    if (parent_ranks[rank] != static_cast<int>(rank)) return false;
  }
  return true;
}

SmallVector<int> GroupPages::DetachTails() {
  SmallVector<int> num_tail_tokens(slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (!HasRoomInTail(slot)) continue;
    num_tail_tokens[i] =
        pool_->page_size() - slot.sequence->pages.room_in_tail();
    slot.tail = slot.sequence->pages.DetachTail();
  }
  return num_tail_tokens;
}

void GroupPages::PruneSequences(std::span<const int> slots,
                                std::span<const int> parents,
                                StepPlan* next_plan) {
  const auto num_spare = std::ssize(spare_tables_);
  SmallVector<bool> survives(slots_.size());
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    if (slots[rank] == parents[rank]) survives[parents[rank]] = true;
  }
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    std::optional<Sequence>& sequence = slots_[slot].sequence;
    if (survives[slot] || !sequence.has_value()) continue;
    EndSequence(&sequence, next_plan);
  }
  // The first pruned table is reused first.
  std::reverse(spare_tables_.begin() + num_spare, spare_tables_.end());
}

void GroupPages::ForkChildren(std::span<const int> slots,
                              std::span<const int> parents,
                              StepPlan* next_plan) {
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    if (slots[rank] == parents[rank]) continue;
    const Sequence& parent = *slots_[parents[rank]].sequence;
    const SequenceId child = ids_->Next();
    Sequence fork = {child, TakeTable()};
    fork.pages.ForkFrom(parent.pages, parent.num_tokens());
    // The plan names exactly the live sequences, even if memory runs out.
    if (!has_reserved_tails_) next_plan->forks.push_back({parent.id, child});
    slots_[slots[rank]].sequence = std::move(fork);
  }
  for (auto it = spare_tables_.rbegin(); it != spare_tables_.rend(); ++it) {
    it->Clear();
  }
}

PageTable& GroupPages::EndSequence(std::optional<Sequence>* sequence,
                                   StepPlan* next_plan) {
  next_plan->finished.push_back((*sequence)->id);
  spare_tables_.push_back(std::move((*sequence)->pages));
  sequence->reset();
  return spare_tables_.back();
}

// Reserves capacity before it makes a table, so that all can be returned.
PageTable GroupPages::TakeTable() {
  if (spare_tables_.empty()) {
    spare_tables_.reserve(slots_.size() + 1);
    return PageTable(pool_);
  }
  PageTable table = std::move(spare_tables_.back());
  spare_tables_.pop_back();
  return table;
}

void GroupPages::AttachTails(std::span<const int> slots,
                             std::span<const int> parents,
                             std::span<const int> num_tail_tokens) {
  num_tail_copies_ahead_ = 0;
  if (!std::exchange(has_reserved_tails_, false)) return DropTails();
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    Slot& slot = slots_[slots[rank]];
    const int num_tokens = num_tail_tokens[parents[rank]];
    slot.sequence->pages.AttachTail(std::move(slot.tail), num_tokens + 1);
    const bool has_moved = slots[rank] != parents[rank];
    if (has_moved && num_tokens > 0) ++num_tail_copies_ahead_;
  }
}

void GroupPages::Release(std::vector<SequenceId>* finished) {
  ReleasePages(finished);
  DropSaved();
}

void GroupPages::DropSaved() {
  saved_.Clear();
  source_.DropSaved();
}

void GroupPages::ReleasePages(std::vector<SequenceId>* finished) {
  if (finished != nullptr) {
    std::vector<SequenceId> ids;
    for (const Slot& slot : slots_) {
      if (slot.sequence.has_value()) ids.push_back(slot.sequence->id);
    }
    finished->insert(finished->end(), ids.begin(), ids.end());
  }
  slots_.clear();
  spare_tables_.clear();
  slots_by_rank_.clear();
  slots_by_row_.clear();
  num_pages_of_rows_ = 0;
  source_.Release();
  copy_source_ = PageRef();
  has_loads_ = false;
  may_have_tails_ = false;
  has_reserved_tails_ = false;
  num_tail_copies_ahead_ = 0;
  is_preempted_ = false;
}

std::vector<const PageTable*> GroupPages::Tables() const {
  std::vector<const PageTable*> tables;
  for (const Slot& slot : slots_) {
    if (slot.sequence.has_value()) tables.push_back(&slot.sequence->pages);
  }
  if (source_.num_held() > 0) tables.push_back(&source_.table());
  return tables;
}

int64_t GroupPages::NumUnsharedPages() const {
  int64_t count = 0;
  for (const Slot& slot : slots_) {
    if (!slot.sequence.has_value()) continue;
    count += std::ssize(slot.sequence->pages.pages()) + source_.num_held();
  }
  return count;
}

std::vector<const PageRef*> GroupPages::Tails() const {
  std::vector<const PageRef*> tails;
  for (const Slot& slot : slots_) {
    if (slot.tail) tails.push_back(&slot.tail);
  }
  return tails;
}

bool GroupPages::holds_pages() const {
  return source_.num_held() > 0 ||
         std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) {
           return slot.tail || (slot.sequence.has_value() &&
                                slot.sequence->num_tokens() > 0);
         });
}

std::vector<HeldPages> GroupPages::PagesBySlot() const {
  const std::set<int> live(slots_by_rank_.begin(), slots_by_rank_.end());
  std::vector<HeldPages> held;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    HeldPages pages = {.slot = static_cast<int>(slot), .pages = {}};
    pages.is_draft = has_rows() && !live.contains(pages.slot);
    if (slots_[slot].sequence.has_value()) {
      const std::span<const PageId> source = source_.table().page_ids();
      pages.pages.assign(source.begin(), source.end());
      for (const PageRef& page : slots_[slot].sequence->pages.pages()) {
        pages.pages.push_back(page.id());
      }
    }
    if (slots_[slot].tail) pages.pages.push_back(slots_[slot].tail.id());
    if (!pages.pages.empty()) held.push_back(std::move(pages));
  }
  return held;
}

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

void GroupPages::LoadSource(StepPlan* plan) {
  const int64_t num_held = source_.num_held();
  source_.Load(plan);
  has_loads_ = has_loads_ || source_.num_held() > num_held;
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
  for (const SavedPages* const saved :
       std::initializer_list<const SavedPages*>{&saved_, &source_.saved()}) {
    const std::vector<HostSlotId> slots = saved->SlotIds();
    std::erase_if(plan->page_loads, [&](const PageLoad& load) {
      return std::ranges::binary_search(slots, load.slot);
    });
  }
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
    has_saved = source_.Save(saving, plan);
    has_saved |= saved_.Save(tables, num_ranks, saving, &plan->page_saves);
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
