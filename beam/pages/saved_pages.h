// SavedPages: the pages of a preempted group that are saved in host memory, by
// their places in the tables of its sequences. Only pages that nothing else
// held are saved. When the group resumes they are loaded into new pages instead
// of being recomputed (group_prefill.h).
//
//   // When the group releases its pages:
//   saved.Save(tables, num_ranks, saving, &plan.page_saves);
//   saved.Reorder(parent_ranks);  // for results that arrive meanwhile
//   const SavedPage* page = saved.Find(rank, page_idx);  // to load it
//   saved.Clear();                // when all are loaded
//
// A plan saves pages before it writes anything, so a saved page can be reused
// at once. A page that several sequences share is saved once, and its slot has
// as many holders. A gap remains for a page that other groups hold too, that is
// cheaper to recompute than to load, or for which no slot is free.
//
// Belongs to its pools' strand.
#pragma once

#include <span>
#include <vector>

#include "exec_request/step_plan.h"
#include "pages/host_pool.h"
#include "pages/page_table.h"

namespace espalier {

// Destination of preempted pages, and the choice of pages.
struct PageSaving {
  HostPool* pool = nullptr;  // null: no page is saved
  // Pages with fewer tokens are dropped.
  int min_tokens = 1;
};

struct SavedPage {
  HostSlot slot;       // empty: a gap
  int num_tokens = 0;  // tokens in the page
};

class SavedPages {
 public:
  // Takes slots for the pages of `tables`, by rank, that have none yet or have
  // grown, and adds the saves to `*saves`. Saves first pages first, so that the
  // last ones are missing if slots run out. If there are fewer tables than
  // ranks, there is one table for all ranks. Returns true if it added any save.
  // Throws std::bad_alloc; then Clear must follow.
  //   num_ranks  ranks of the group
  // REQUIRES: earlier plans feed all tokens of the tables.
  bool Save(std::span<const PageTable* const> tables, int num_ranks,
            const PageSaving& saving, std::vector<PageSave>* saves);

  // Makes the next ranks the children of `parent_ranks`.
  void Reorder(std::span<const int> parent_ranks);
  void Clear() { tables_.clear(); }

  // Returns the saved page, or null for a gap.
  const SavedPage* Find(int rank, int page_idx) const;
  // Returns the place of a rank's first saved page after `page_idx`; -1: none.
  int NextAfter(int rank, int page_idx) const;

  bool empty() const { return tables_.empty(); }
  // Returns the slots, ascending, once for each page in them.
  std::vector<HostSlotId> SlotIds() const;
  // For validation.
  std::vector<const HostSlot*> Slots() const;

 private:
  std::vector<std::vector<SavedPage>> tables_;  // by rank, then by place
};

}  // namespace espalier
