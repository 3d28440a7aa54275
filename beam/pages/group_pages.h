// GroupPages: the pages of one group. Its sequences live in slots, each with a
// page table of its own. The group (beam/sequence_group.h) names sequences by
// rank, best first, and has their tokens and scores. GroupPages assigns ranks
// to slots, forks tables and chooses the page to write.
//
// A decode step takes two calls:
//
//   RETURN_IF_ERROR(pages.Append(num_tokens, &plan.page_copies));  // plans it
//   pages.Reorder(parent_ranks, &next_plan);  // by its result
//
// Reorder keeps the first child of each parent in the parent's slot, forks the
// others into slots of pruned sequences, and releases pages that only these
// held (kernels/resident/assign_slots.h).
//
// A step may be planned before the result of the last one is read
// (docs/step.md, "Running ahead"). Then every slot gets a tail, the page that
// it will write into, whichever sequence lives there by then:
//
//   ASSIGN_OR_RETURN(tails, pages.ReserveTails());        // to plan it
//   pages.Reorder(parent_ranks, &next_plan);              // previous result
//
// That Reorder makes the tables that the planned step runs with: each child has
// its parent's full pages, its own slot's tail, and one token more. The
// executor copies the filled part of a tail where a child has moved.
//
// A step may have several rows of one sequence, for paths that it may take
// (docs/speculation.md, "Beams"). The first row of a sequence is the sequence
// itself. Until the result arrives, each other row is a fork in a slot of its
// own after the others:
//
//   RETURN_IF_ERROR(pages.AppendRows(ranks, num_tokens, &plan));  // plans it
//   pages.FollowRows(rows);            // for each further step of the result
//   pages.MergeRows(num_tokens, &next_plan);
//   pages.Reorder(parent_ranks, &next_plan);
//
// A preempted group releases all pages and keeps its ranks; some pages may be
// saved to host memory (saved_pages.h). Restart begins again with one empty
// sequence, whose tokens are loaded, recomputed, or found in the prefix cache
// (group_prefill.h).
//
// With an encoder the group also holds the pages of its source, which belong to
// no sequence (source_pages.h).
//
// Invariants, checked in tests by pages/validate.h:
//   - a page about to be written has one holder;
//   - the group holds at most WorstCase pages, and the pages of path rows;
//   - a sequence's length is always that of its table.
// Release returns everything, even after a call that failed or threw.
//
// Belongs to its pool's strand.
#pragma once

#include <cstdint>
#include <memory>
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
#include "beam/pages/source_pages.h"
#include "exec_request/step_plan.h"
#include "pages/page_pool.h"
#include "request/request.h"

namespace espalier {

// Pages in one slot, in the order of its table.
struct HeldPages {
  int slot = 0;
  std::vector<PageId> pages;
  // True for a row of the step that verifies drafts and is no live sequence.
  bool is_draft = false;
};

class GroupPages {
 public:
  // Returns the most pages that a group for `request` holds at any time. The
  // last generated token is never fed, so it needs no page.
  //   source_length  EncoderInput::length; then the prompt of `request` is the
  //                  decoder's
  // REQUIRES: `request` has passed ValidateRequest.
  static int64_t WorstCase(const Request& request, int page_size,
                           int64_t source_length = 0);

  // Starts with one sequence without tokens, in slot 0. Pool and ids outlive
  // this.
  //   max_pages  WorstCase of the request
  //   source     may be null: the model has no encoder
  // REQUIRES: num_slots >= 1.
  GroupPages(int num_slots, int64_t max_pages, PagePool* pool,
             SequenceIdSource* ids,
             std::shared_ptr<const EncoderInput> source = nullptr);

  SourcePages& source() { return source_; }
  const SourcePages& source() const { return source_; }
  // SourcePages::Load, for the plan being written.
  void LoadSource(StepPlan* plan);

  // Live sequences; none after Release.
  int num_sequences() const { return static_cast<int>(slots_by_rank_.size()); }
  // Returns the slot of each live sequence, by rank.
  std::span<const int> slots() const { return slots_by_rank_; }
  // REQUIRES: 0 <= rank < num_sequences().
  const Sequence& sequence(int rank) const {
    return *slots_[slots_by_rank_[rank]].sequence;
  }

  // Grows each live sequence by writable tokens, with the copies of shared
  // tails that this takes. Of sequences that share a tail, the best one writes
  // in place and the others copy.
  //   num_tokens  [num_sequences()]  to be fed, by rank, each >= 0
  // Errors: kResourceExhausted, leaving `*copies` unchanged, if the pool has
  // too few pages; then only Preempt or Release may follow.
  // REQUIRES: no tails are reserved.
  absl::Status Append(std::span<const int> num_tokens,
                      std::vector<PageCopy>* copies);
  // Append of one token to each sequence.
  absl::Status AppendOneEach(std::vector<PageCopy>* copies) {
    CHECK(!has_reserved_tails_) << "a step is planned ahead";
    const std::span<const int> slots = slots_by_rank_;
    size_t count = slots.size();  // sequences left to grow
    while (count > 0 &&
           slots_[slots[count - 1]].sequence->pages.AppendInPlace()) {
      --count;
    }
    return count == 0 ? absl::OkStatus() : AppendOneToFirst(count, copies);
  }
  // Returns the pages that Append takes from the pool.
  int64_t NumPagesToAppend(std::span<const int> num_tokens) const;

  // Appends to rows: row i belongs to the sequence of ranks[i] and grows by
  // num_tokens[i]. Forked rows are sequences of their own, which `*plan` names
  // with their copies.
  // Errors: as Append, leaving the copies of `*plan` unchanged.
  // REQUIRES: no tails are reserved; `ranks` ascend, each rank at least once.
  absl::Status AppendRows(std::span<const int> ranks,
                          std::span<const int> num_tokens, StepPlan* plan);
  // Returns the pages that AppendRows takes from the pool.
  int64_t NumPagesToAppendRows(std::span<const int> ranks,
                               std::span<const int> num_tokens) const;
  // Moves each rank to the sequence of its row in `rows`; rows are all
  // different.
  void FollowRows(std::span<const int> rows);
  // Ends rows that no rank follows. The others are truncated to `num_tokens`
  // tokens and move to regular slots.
  void MergeRows(int num_tokens, StepPlan* next_plan);
  bool has_rows() const { return !slots_by_row_.empty(); }
  const Sequence& row(int row) const {
    return *slots_[slots_by_row_[row]].sequence;
  }

  // Truncates the sequence of a rank to `num_tokens` tokens, because later
  // drafts were rejected.
  // REQUIRES: no tails are reserved, and the plan's result has arrived.
  void Truncate(int rank, int num_tokens);

  // Plans a step that runs ahead of a result. Gives every slot a page for the
  // next token, and returns these by slot: the page that its sequence writes
  // into now if it is not full, or the one that the slot has kept, or a new
  // one. So no slot holds two pages for one place in its table, and the worst
  // case is unchanged.
  // Errors: as Append.
  // REQUIRES: no tails are reserved; each sequence has been fed since it was
  // forked.
  absl::StatusOr<SmallVector<PageId>> ReserveTails();
  // Returns the pages that ReserveTails takes from the pool.
  int64_t NumPagesToReserveTails() const;
  // The step that was planned ahead feeds nothing: tails are no longer
  // reserved. The slots keep them until the next result.
  void WithdrawTails() { has_reserved_tails_ = false; }

  // Append pages of other holders to the sequence of a rank, whose pages are
  // all full: AdoptPages full pages, AppendCopy a copy of the first tokens of
  // one more page (PageTable::AppendCopy, with its errors). The source of the
  // copy is held until the plan with the copy is sent, so that no row of the
  // plan writes there first.
  void AdoptPages(int rank, std::vector<PageRef> pages);
  // AdoptPages after truncating the sequence to its full pages.
  void ReplaceTail(int rank, std::vector<PageRef> pages);
  absl::Status AppendCopy(int rank, PageRef from, int num_tokens,
                          std::vector<PageCopy>* copies);

  // Appends a new page to the sequence of a rank, whose pages are all full. The
  // plan loads the first `num_tokens` saved tokens into it. If `*loaded`, which
  // has one page for each loaded slot, has the page, it is shared instead.
  // Errors: kResourceExhausted, leaving everything unchanged.
  // REQUIRES: saved().Find(saved_rank, place) for the sequence's next place.
  using LoadedPages = std::unordered_map<HostSlotId, PageRef>;
  absl::Status Load(int rank, int saved_rank, int num_tokens,
                    LoadedPages* loaded, StepPlan* plan);
  // Pages of the group in host memory, until all are loaded or recomputed.
  const SavedPages& saved() const { return saved_; }
  void DropSaved();

  // Called when the plan with copies and loads is sent. `is_filled`: nothing is
  // left to load.
  void OnPlanOut(bool is_filled) {
    if (has_moves()) EndMoves();
    if (is_filled) DropSaved();
  }
  // True if a plan that is not sent yet copies or loads pages for the group.
  bool has_moves() const { return copy_source_ || has_loads_; }
  // Removes these copies and loads from the plan.
  void WithdrawMoves(StepPlan* plan);

  // Makes the next sequences the children of `parent_ranks`, by rank. Ended
  // sequences and, unless tails are reserved, forks go into `*next_plan`.
  // Reserved tails become part of the children's tables. Tails of slots without
  // a sequence are kept for the next ReserveTails, or released if none were
  // reserved. Throws std::bad_alloc; then only Release may follow.
  // REQUIRES: 1 <= parent_ranks.size() <= num_slots, each a live rank.
  void Reorder(std::span<const int> parent_ranks, StepPlan* next_plan);
  // Fast path of Reorder if each sequence has one child, of its own rank.
  // Returns false, having changed nothing, if other work is necessary.
  bool KeepOrder() {
    if (has_reserved_tails_ || is_preempted_) return false;
    if (may_have_tails_) DropTails();
    num_tail_copies_ahead_ = 0;
    return true;
  }

  // Tail copies that the executor made for the step whose tables the last
  // Reorder built; 0 if that step did not run ahead.
  int num_tail_copies_ahead() const { return num_tail_copies_ahead_; }

  // Releases all pages. Appends the live sequences to `finished`, unless null.
  // If it throws std::bad_alloc, nothing has changed.
  void Release(std::vector<SequenceId>* finished);

  // As Release, but the group keeps `num_ranks` ranks. Until Restart, Reorder
  // updates ranks only, and nothing else may be called except Reorder,
  // DropSaved and Release. Removes the group's copies and loads from `*plan`;
  // pages that were saved before stay saved. Otherwise saves pages, if earlier
  // plans fill them all. Returns true if it saves any. If `names_end`, appends
  // the sequences to plan->finished.
  bool Preempt(int num_ranks, const PageSaving& saving, bool names_end,
               StepPlan* plan);
  bool is_preempted() const { return is_preempted_; }
  // Starts again with one sequence without tokens, with a new id.
  // REQUIRES: is_preempted().
  void Restart();

  // Prefetches the first slot.
  [[gnu::always_inline]] void PrefetchSlots() const {
    __builtin_prefetch(slots_.data());
  }

  const PagePool& pool() const { return *pool_; }
  // Returns the most pages that it may hold now.
  int64_t max_pages() const { return max_pages_ + num_pages_of_rows_; }
  int num_slots() const { return num_slots_; }
  // For validation and statistics: tables of the live sequences and of the
  // source; and in Tails() the reserved tails outside tables.
  std::vector<const PageTable*> Tables() const;
  // Returns the number of pages if each sequence had its own, and a source of
  // its own.
  int64_t NumUnsharedPages() const;
  std::vector<const PageRef*> Tails() const;
  bool holds_pages() const;
  // Source of a copy in the plan being written; null if there is none.
  const PageRef& copy_source() const { return copy_source_; }
  // Returns the pages of each slot that holds any, after those of the source.
  std::vector<HeldPages> PagesBySlot() const;

 private:
  struct Slot {
    // Sequence that lives here.
    std::optional<Sequence> sequence;
    // Reserved for the next token of the sequence that will live here. Null if
    // the tail of the sequence's table has room.
    PageRef tail;
  };

  // AppendOneEach for the first `count` ranks.
  absl::Status AppendOneToFirst(size_t count, std::vector<PageCopy>* copies);
  bool Holds(PageId page) const;
  void EndMoves();
  bool HasRoomInTail(const Slot& slot) const;
  absl::Status AppendToSlots(std::span<const int> slots,
                             std::span<const int> num_tokens,
                             std::vector<PageCopy>* copies);
  // Returns the pages of a fork of `table` that grows by `num_tokens` tokens,
  // none of them shared.
  int64_t NumPagesOfFork(const PageTable& table, int num_tokens) const;
  // Removes tails with room from the tables. Returns the tokens in them, by
  // slot.
  SmallVector<int> DetachTails();
  // As Release, but keeps saved pages.
  void ReleasePages(std::vector<SequenceId>* finished);
  // Ends the sequences that have no child in their slot.
  void PruneSequences(std::span<const int> slots, std::span<const int> parents,
                      StepPlan* next_plan);
  // True if each sequence has one child, of its own rank.
  bool AllStay(std::span<const int> parent_ranks) const;
  // Forks into tables of pruned sequences, because a child shares most pages
  // with the sequence that it replaces. Clears the tables that are left.
  void ForkChildren(std::span<const int> slots, std::span<const int> parents,
                    StepPlan* next_plan);
  // Ends a sequence without a child. Its table becomes a spare one, which is
  // returned and still has its pages.
  PageTable& EndSequence(std::optional<Sequence>* sequence,
                         StepPlan* next_plan);
  // Returns a table to fork into. Throws std::bad_alloc.
  PageTable TakeTable();
  // Releases the tails of all slots.
  void DropTails();
  void AttachTails(std::span<const int> slots, std::span<const int> parents,
                   std::span<const int> num_tail_tokens);

  // Members that each step reads come first. Slots are added as sequences come
  // alive, up to num_slots_, because a request may ask for more than there ever
  // are continuations. Once tails are reserved, all slots exist.
  std::vector<Slot> slots_;
  SmallVector<int> slots_by_rank_;
  bool may_have_tails_ = false;  // in slots
  bool has_reserved_tails_ = false;
  bool has_loads_ = false;  // in a plan that is not sent yet
  bool is_preempted_ = false;
  int num_tail_copies_ahead_ = 0;
  PageRef copy_source_;
  SavedPages saved_;
  // Tables of pruned sequences, whose memory forks reuse. Empty, except within
  // Reorder.
  std::vector<PageTable> spare_tables_;
  PagePool* pool_;
  SequenceIdSource* ids_;
  int num_slots_;
  int64_t max_pages_;
  std::vector<int> slots_by_row_;  // between AppendRows and MergeRows
  int64_t num_pages_of_rows_ = 0;  // upper bound for the forks
  SourcePages source_;
};

}  // namespace espalier
