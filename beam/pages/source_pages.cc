#include "beam/pages/source_pages.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/page_count.h"
#include "base/status.h"

namespace espalier {

SourcePages::SourcePages(std::shared_ptr<const EncoderInput> input,
                         PagePool* pool)
    : input_(std::move(input)),
      pool_(pool),
      table_(pool),
      num_stored_(length()) {}

int SourcePages::NumPositions() const {
  return std::min(table_.num_tokens(), length());
}

int64_t SourcePages::num_pages() const {
  return NumPages(length(), pool_->page_size());
}

void SourcePages::Load(StepPlan* plan) {
  while (num_missing() > 0) {
    const SavedPage* const saved = saved_.Find(0, static_cast<int>(num_held()));
    if (saved == nullptr) return;
    absl::StatusOr<PageRef> page = pool_->Allocate();
    if (!page.ok()) return;
    plan->page_loads.push_back({saved->slot.id(), page->id()});
    table_.AdoptTail(*std::move(page), pool_->page_size());
  }
}

absl::Status SourcePages::TakeMissing() {
  const int num_stored = NumPositions();
  std::vector<PageCopy> copies;  // none, because all pages are full
  RETURN_IF_ERROR(table_.Append(
      static_cast<int>(num_missing()) * pool_->page_size(), &copies));
  num_stored_ = num_stored;
  return absl::OkStatus();
}

PlanSource SourcePages::Describe(int first_row, int num_rows) {
  CHECK(has_source() && num_missing() == 0)
      << num_missing() << " pages missing";
  if (ids_ == nullptr) {
    ids_ = std::make_shared<const std::vector<PageId>>(
        table_.page_ids().begin(), table_.page_ids().end());
  }
  return {.first_row = first_row,
          .num_rows = num_rows,
          .input = input_,
          .pages = ids_,
          .num_stored = std::exchange(num_stored_, length())};
}

bool SourcePages::Save(const PageSaving& saving, StepPlan* plan) {
  if (num_held() == 0) return false;
  const PageTable* const table = &table_;
  return saved_.Save({&table, 1}, /*num_ranks=*/1, saving, &plan->page_saves);
}

void SourcePages::Release() {
  table_.Clear();
  ids_ = nullptr;
  num_stored_ = length();
}

}  // namespace espalier
