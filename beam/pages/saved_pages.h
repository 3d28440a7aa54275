// SavedPages: what host memory has of a group that was preempted: the pages
// that nothing else held, by the place that they had in the tables of its
// sequences. When the group resumes they are loaded into fresh pages instead of
// computed again (group_prefill.h).
//
//   // As the group gives its pages back:
//   saved.Save(tables, num_ranks, saving, &plan.page_saves);
//   saved.Reorder(parent_ranks);  // by answers that come meanwhile
//   const SavedPage* page = saved.Find(rank, page_idx);  // to load it
//   saved.Clear();                // when that is done
//
// Saving is a plan's work, done before the plan writes anything: so a page can
// be given out at once. Pages that sequences share are saved once, and the slot
// has as many holders. A page that others hold too, or that is sooner computed
// than loaded, or for which no slot is free, leaves a gap.
//
// Belongs to its pools' strand.
#pragma once

#include <span>
#include <vector>

#include "exec_request/step_plan.h"
#include "pages/host_pool.h"
#include "pages/page_table.h"

namespace espalier {

// Where preempted pages go to, and which.
struct PageSaving {
  HostPool* pool = nullptr;  // null: none do
  // A page of fewer tokens is dropped.
  int min_tokens = 1;
};

struct SavedPage {
  HostSlot slot;       // holds nothing: a gap
  int num_tokens = 0;  // in it
};

class SavedPages {
 public:
  // Takes slots for the pages of `tables`, by rank, that have none yet or have
  // grown, and adds the saves to `*saves`: first pages first, so that where
  // slots run out those are missing which come last. A table of fewer ranks
  // than there are is every rank's. Returns whether it added any. Throws
  // std::bad_alloc, and Clear must follow.
  //   num_ranks  of the group
  // REQUIRES: all tokens of the tables are fed by earlier plans.
  bool Save(std::span<const PageTable* const> tables, int num_ranks,
            const PageSaving& saving, std::vector<PageSave>* saves);

  // The next ranks are the children of these.
  void Reorder(std::span<const int> parent_ranks);
  void Clear() { tables_.clear(); }

  // Null if there is a gap.
  const SavedPage* Find(int rank, int page_idx) const;
  // Of a rank's pages after `page_idx`, the first; -1: none.
  int NextAfter(int rank, int page_idx) const;

  bool empty() const { return tables_.empty(); }
  // Ascending, each once for each page that is there.
  std::vector<HostSlotId> SlotIds() const;
  // For the validator.
  std::vector<const HostSlot*> Slots() const;

 private:
  std::vector<std::vector<SavedPage>> tables_;  // by rank, then by place
};

}  // namespace espalier
