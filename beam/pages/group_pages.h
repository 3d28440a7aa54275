// GroupPages: the pages of one group. Its sequences live in slots, each with a
// page table of its own.
// The group (beam/beam_group.h) names sequences by rank, best first, and has
// their tokens and scores. GroupPages decides which slot a rank lives in, which
// table is forked and which page is written.
//
// A decode step takes two calls:
//
//   RETURN_IF_ERROR(pages.Append(num_tokens, &plan.page_copies));  // plans it
//   pages.Reorder(parent_ranks, &next_plan);  // by its result
//
// Reorder keeps the first child of each parent in the parent's slot, forks the
// others into slots of sequences that were pruned, and releases what only these
// held (kernels/resident/assign_slots.h).
//
// A step may be planned before the answer of the last one is read
// (docs/step.md, "Running ahead"). Then every slot gets the page that it will
// write into, its tail, whichever sequence lives there by then:
//
//   ASSIGN_OR_RETURN(tails, pages.ReserveTails());        // to plan it
//   pages.Reorder(parent_ranks, &next_plan);              // the answer before
//
// That Reorder makes the tables that the planned step runs with: each child has
// its parent's full pages, its own slot's tail, and one token more. The
// executor copies the filled part of a tail where a child has moved.
//
// A step may have several rows of one sequence, for paths that it may take
// (docs/speculation.md, "Beams"). Each row but a sequence's first is a fork of
// it, in a slot of its own after the others, until the answer:
//
//   RETURN_IF_ERROR(pages.AppendRows(ranks, num_tokens, &plan));  // plans it
//   pages.FollowRows(rows);            // while its result names no new tokens
//   pages.MergeRows(num_tokens, &next_plan);
//   pages.Reorder(parent_ranks, &next_plan);
//
// A group that has to make room for others is preempted: it gives all its pages
// back and keeps its ranks; of the pages some may go to host memory
// (saved_pages.h). Restart begins anew with one empty sequence, whose tokens
// are loaded, fed again, or found in a cache (group_prefill.h).
//
// Invariants, checked in tests by pages/validate.h:
//   - a page that is about to be written has one holder;
//   - the group holds at most WorstCase pages, and what rows of paths take;
//   - a sequence's length is that of its table, at any time.
// Release gives back everything, also after a call that failed or threw.
//
// Belongs to its pool's strand.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/small_vector.h"
#include "beam/pages/saved_pages.h"
#include "beam/pages/sequence.h"
#include "exec_request/step_plan.h"
#include "pages/page_pool.h"
#include "request/request.h"

namespace espalier {

// The pages in one slot, in the order of its table.
struct HeldPages {
  int slot = 0;
  std::vector<PageId> pages;
  // Of a row of the step that no live sequence stands on: it verifies drafts.
  bool is_draft = false;
};

class GroupPages {
 public:
  // Pages that a group for `request` holds at most, at any time. The last
  // token generated is never fed, so it needs no page.
  // REQUIRES: `request` has passed ValidateRequest.
  static int64_t WorstCase(const Request& request, int page_size);

  // One sequence without tokens, in slot 0. Pool and ids outlive this.
  //   max_pages  WorstCase of the request
  // REQUIRES: num_slots >= 1.
  GroupPages(int num_slots, int64_t max_pages, PagePool* pool,
             SequenceIdSource* ids);

  // Live sequences; none after Release.
  int num_sequences() const { return static_cast<int>(slots_by_rank_.size()); }
  // The slot each of them lives in, by rank.
  std::span<const int> slots() const { return slots_by_rank_; }
  // REQUIRES: 0 <= rank < num_sequences().
  const Sequence& sequence(int rank) const {
    return *slots_[slots_by_rank_[rank]].sequence;
  }

  // Grows each live sequence by writable tokens, with the copies of shared
  // tails that this takes. Of sequences that share a tail the best one writes
  // in place and the others copy.
  //   num_tokens  [num_sequences()]  to be fed, by rank, each >= 0
  // Errors: kResourceExhausted, leaving `*copies` unchanged, if the pool has
  // too few; Preempt or Release is all that may follow.
  // REQUIRES: no tails are reserved.
  absl::Status Append(std::span<const int> num_tokens,
                      std::vector<PageCopy>* copies);
  // The same of one token each.
  absl::Status AppendOneEach(std::vector<PageCopy>* copies) {
    CHECK(!has_reserved_tails_) << "a step is planned ahead";
    const std::span<const int> slots = slots_by_rank_;
    size_t count = slots.size();  // that are to be grown
    while (count > 0 &&
           slots_[slots[count - 1]].sequence->pages.AppendInPlace()) {
      --count;
    }
    return count == 0 ? absl::OkStatus() : AppendOneToFirst(count, copies);
  }
  // Pages that this takes from the pool.
  int64_t NumPagesToAppend(std::span<const int> num_tokens) const;

  // Appends to rows: row i is of the sequence of ranks[i], and grows by
  // num_tokens[i]. Rows that are forked are sequences of their own, which
  // `*plan` names; so are its copies.
  // Errors: as Append, leaving the copies of `*plan` unchanged.
  // REQUIRES: no tails are reserved; `ranks` ascend, each rank at least once.
  absl::Status AppendRows(std::span<const int> ranks,
                          std::span<const int> num_tokens, StepPlan* plan);
  // Pages that this takes from the pool.
  int64_t NumPagesToAppendRows(std::span<const int> ranks,
                               std::span<const int> num_tokens) const;
  // The sequence of each rank is now that of a row, all different.
  void FollowRows(std::span<const int> rows);
  // Rows that are no rank's end; the others keep `num_tokens` tokens, and live
  // in slots as ever.
  void MergeRows(int num_tokens, StepPlan* next_plan);
  bool has_rows() const { return !slots_by_row_.empty(); }
  const Sequence& row(int row) const {
    return *slots_[slots_by_row_[row]].sequence;
  }

  // The sequence of a rank keeps so many tokens: drafts after them were
  // rejected.
  // REQUIRES: no tails are reserved, the answer to the plan is there.
  void Truncate(int rank, int num_tokens);

  // Plans a step ahead of an answer. Gives every slot a page for the next
  // token, and returns it by slot: the one that its sequence writes into now,
  // if that is not full, or the one that it has kept, or a fresh one. So no
  // slot holds two pages for one place in its table, and the worst case is the
  // same.
  // Errors: as Append.
  // REQUIRES: no tails are reserved; each sequence is fed since it was forked.
  absl::StatusOr<SmallVector<PageId>> ReserveTails();
  // Pages that this takes from the pool.
  int64_t NumPagesToReserveTails() const;

  // The sequence of a rank, whose pages are all full, begins with or goes on in
  // pages of another holder: full ones, and a copy of the first tokens of one
  // more (PageTable::AppendCopy, whose errors it has). The latter is held until
  // the plan with the copy is out, so that nothing in it writes there first.
  void AdoptPages(int rank, std::vector<PageRef> pages);
  // The same after truncating the sequence to its full pages.
  void ReplaceTail(int rank, std::vector<PageRef> pages);
  absl::Status AppendCopy(int rank, PageRef from, int num_tokens,
                          std::vector<PageCopy>* copies);

  // The sequence of a rank, whose pages are all full, goes on in a fresh page
  // that the plan loads, with the first `num_tokens` tokens of what was saved;
  // or in the page of `*loaded`, in which there is one for each slot so far.
  // Errors: kResourceExhausted, leaving all as it was.
  // REQUIRES: saved().Find(saved_rank, place) of the sequence's next place.
  using LoadedPages = std::unordered_map<HostSlotId, PageRef>;
  absl::Status Load(int rank, int saved_rank, int num_tokens,
                    LoadedPages* loaded, StepPlan* plan);
  // What host memory has of the group, until it is all in pages again.
  const SavedPages& saved() const { return saved_; }
  void DropSaved() { saved_.Clear(); }

  // The plan with copies and loads is out. `is_filled`: nothing is to be loaded
  // any more.
  void OnPlanOut(bool is_filled) {
    if (has_moves()) EndMoves();
    if (is_filled && !saved_.empty()) saved_.Clear();
  }
  // Whether a plan that is not out yet copies or loads pages for the group.
  bool has_moves() const { return copy_source_ || has_loads_; }
  // Takes these moves out of the plan.
  void WithdrawMoves(StepPlan* plan);

  // The next sequences are the children of these ranks, by rank. Sequences that
  // end and, unless tails are reserved, those that are forked go into
  // `*next_plan`. Reserved tails become part of the children's tables; those of
  // slots without a sequence wait for the next ReserveTails, or are released if
  // none were reserved. Throws std::bad_alloc; Release is all that may follow.
  // REQUIRES: 1 <= parent_ranks.size() <= num_slots, each a live rank.
  void Reorder(std::span<const int> parent_ranks, StepPlan* next_plan);
  // Reorder where each sequence has one child, of its own rank, and none moves.
  // False where there is more to do, and nothing is done.
  bool KeepOrder() {
    if (has_reserved_tails_ || is_preempted_) return false;
    if (may_have_tails_) DropTails();
    num_tail_copies_ahead_ = 0;
    return true;
  }

  // Tails that the executor copied for the step whose tables the last Reorder
  // made; 0 if that was not planned ahead.
  int num_tail_copies_ahead() const { return num_tail_copies_ahead_; }

  // Gives back all pages. If `finished` is not null, the live sequences are
  // appended to it. Throws std::bad_alloc, and has done nothing then.
  void Release(std::vector<SequenceId>* finished);

  // As Release, but the group has `num_ranks` ranks: Reorder goes on with ranks
  // alone, and no pages, until Restart. Nothing else may be called but these,
  // DropSaved and Release. What `*plan` was to copy or load for it is taken out
  // of that, and what was saved before stays so; else pages are saved, if the
  // plans before fill them all. Returns whether any were. If `names_end`, the
  // sequences are appended to plan->finished.
  bool Preempt(int num_ranks, const PageSaving& saving, bool names_end,
               StepPlan* plan);
  bool is_preempted() const { return is_preempted_; }
  // One sequence without tokens again, of a new id.
  // REQUIRES: is_preempted().
  void Restart();

  // Begins to read the first slot.
  [[gnu::always_inline]] void PrefetchSlots() const {
    __builtin_prefetch(slots_.data());
  }

  const PagePool& pool() const { return *pool_; }
  // Pages that it may hold now.
  int64_t max_pages() const { return max_pages_ + num_pages_of_rows_; }
  int num_slots() const { return num_slots_; }
  // For the validator and for figures: tables of the live sequences, and the
  // reserved tails that are not part of one.
  std::vector<const PageTable*> Tables() const;
  // Pages of these together, those that several hold counted for each.
  int64_t NumUnsharedPages() const;
  std::vector<const PageRef*> Tails() const;
  bool holds_pages() const;
  // Held for a copy that a plan makes; null if there is none.
  const PageRef& copy_source() const { return copy_source_; }
  // Of the slots that hold any.
  std::vector<HeldPages> PagesBySlot() const;

 private:
  struct Slot {
    std::optional<Sequence> sequence;  // that lives here
    // Reserved for the next token of the sequence that lives here then. Null if
    // the tail of the sequence's table has room.
    PageRef tail;
  };

  // AppendOneEach, of the first so many ranks.
  absl::Status AppendOneToFirst(size_t count, std::vector<PageCopy>* copies);
  bool Holds(PageId page) const;
  void EndMoves();
  bool HasRoomInTail(const Slot& slot) const;
  absl::Status AppendToSlots(std::span<const int> slots,
                             std::span<const int> num_tokens,
                             std::vector<PageCopy>* copies);
  // Of a fork of `table` that grows by `num_tokens` tokens, none of which it
  // shares with others.
  int64_t NumPagesOfFork(const PageTable& table, int num_tokens) const;
  // Takes the tails with room out of the tables; returns the tokens in them, by
  // slot.
  SmallVector<int> DetachTails();
  // Release, but for what is saved.
  void ReleasePages(std::vector<SequenceId>* finished);
  // Of the sequences that have no child in their slot.
  void PruneSequences(std::span<const int> slots, std::span<const int> parents,
                      StepPlan* next_plan);
  // Whether each sequence has one child, of its own rank.
  bool AllStay(std::span<const int> parent_ranks) const;
  // Into tables of these: a child has most of its pages in common with whom it
  // replaces. Those that are left become empty.
  void ForkChildren(std::span<const int> slots, std::span<const int> parents,
                    StepPlan* next_plan);
  // Of a sequence that has no child: its table becomes a spare one, which is
  // returned and still has its pages.
  PageTable& EndSequence(std::optional<Sequence>* sequence,
                         StepPlan* next_plan);
  // One to fork into. Throws std::bad_alloc.
  PageTable TakeTable();
  // Of all slots.
  void DropTails();
  void AttachTails(std::span<const int> slots, std::span<const int> parents,
                   std::span<const int> num_tail_tokens);

  // What each step reads comes first. Of slots there are at most num_slots_;
  // grown as sequences come alive, since a request may ask for more than there
  // ever are continuations. All once tails are reserved.
  std::vector<Slot> slots_;
  SmallVector<int> slots_by_rank_;
  bool may_have_tails_ = false;  // in slots
  bool has_reserved_tails_ = false;
  bool has_loads_ = false;  // in a plan that is not out
  bool is_preempted_ = false;
  int num_tail_copies_ahead_ = 0;
  PageRef copy_source_;
  SavedPages saved_;
  // Of sequences that were pruned: forks take their memory. Empty ones, but
  // within Reorder.
  std::vector<PageTable> spare_tables_;
  PagePool* pool_;
  SequenceIdSource* ids_;
  int num_slots_;
  int64_t max_pages_;
  std::vector<int> slots_by_row_;  // between AppendRows and MergeRows
  int64_t num_pages_of_rows_ = 0;  // that its forks may hold, at most
};

}  // namespace espalier
