// SourcePages: the pages of a group's source (exec_request/encoder_input.h),
// which hold the keys and values of cross-attention for all sequences of the
// group. They belong to no sequence: forks and ends of sequences do not touch
// them, and they are held from the prompt on until the group ends or is
// preempted.
//
//   source.Adopt(pages);                      // shared in the prefix tree
//   source.Load(&plan);                       // saved ones
//   RETURN_IF_ERROR(source.TakeMissing());    // the encoder fills the others
//   plan.sources.push_back(source.Describe(first_row, num_rows));
//
// The source begins at the first position of its first page. What is left of
// its last page is not used, but the page counts as full: it is shared, saved
// and loaded with the others, because the encoder reads all of the source again
// if any page is missing.
//
// Belongs to its pool's strand.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "beam/pages/saved_pages.h"
#include "exec_request/encoder_input.h"
#include "exec_request/step_plan.h"
#include "pages/page_pool.h"
#include "pages/page_table.h"

namespace espalier {

class SourcePages {
 public:
  // Starts without pages. The pool outlives this.
  //   input  null: the model has no encoder, so no page is ever missing
  SourcePages(std::shared_ptr<const EncoderInput> input, PagePool* pool);

  bool has_source() const { return input_ != nullptr; }
  // Returns the positions of the source; 0 if there is none.
  int length() const { return has_source() ? input_->length() : 0; }
  // Returns how many of them have a page.
  int NumPositions() const;
  // Returns the number of pages: in all, and those that it does not hold yet.
  int64_t num_pages() const;
  int64_t num_missing() const { return num_pages() - num_held(); }
  int64_t num_held() const { return std::ssize(table_.pages()); }

  // Appends pages of another holder.
  void Adopt(std::vector<PageRef> pages) {
    table_.AdoptPages(std::move(pages));
  }
  // Appends pages into which `*plan` loads saved ones, as long as the next page
  // is saved and the pool has one.
  void Load(StepPlan* plan);
  // Appends the missing pages. The next Describe has the encoder fill them.
  // Errors: kResourceExhausted; then nothing has changed.
  absl::Status TakeMissing();
  // Returns the entry for rows of the plan being written.
  // REQUIRES: has_source(), num_missing() == 0.
  PlanSource Describe(int first_row, int num_rows);

  // Saves pages that would be lost to host memory. Returns true if it saves
  // any. Throws std::bad_alloc.
  bool Save(const PageSaving& saving, StepPlan* plan);
  // Releases all pages; saved ones stay saved until DropSaved.
  void Release();
  void DropSaved() { saved_.Clear(); }
  const SavedPages& saved() const { return saved_; }

  const PageTable& table() const { return table_; }

 private:
  const std::shared_ptr<const EncoderInput> input_;
  PagePool* const pool_;
  PageTable table_;
  SavedPages saved_;
  // The ids in `table_`, for plans; null before the first.
  std::shared_ptr<const std::vector<PageId>> ids_;
  // PlanSource::num_stored of the next plan.
  int num_stored_ = 0;
};

}  // namespace espalier
