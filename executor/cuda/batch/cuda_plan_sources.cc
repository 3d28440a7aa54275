#include "executor/cuda/batch/cuda_plan_sources.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace espalier {
namespace {

const PlanSource& SourceOfRow(const StepPlan& plan, size_t row) {
  const auto source = std::ranges::lower_bound(
      plan.sources, static_cast<int>(row), {}, &PlanSource::row);
  CHECK(source != plan.sources.end() && source->row == static_cast<int>(row))
      << "row " << row << " feeds its source, which the plan does not have";
  return *source;
}

// Returns the number of the row's tokens in its source or the padding after it.
int NumOfSource(const PlanRow& row, int page_size) {
  return std::clamp(
      SourceEnd(row.source_length, page_size) - row.first_position, 0,
      row.num_tokens);
}

CudaPlanSources::Read ReadOf(const StepPlan& plan, size_t row_idx,
                             int num_of_source) {
  const PlanRow& row = plan.rows[row_idx];
  return {.row = static_cast<int>(row_idx),
          .tokens = SourceOfRow(plan, row_idx).tokens,
          .first_fed = row.first_position,
          .end_fed =
              std::min(row.first_position + num_of_source, row.source_length)};
}

}  // namespace

CudaPlanSources TakeSources(int page_size, StepPlan* plan) {
  CudaPlanSources sources;
  const bool has_sources = std::ranges::any_of(
      plan->rows, [](const PlanRow& row) { return row.source_length > 0; });
  if (!has_sources) return sources;
  sources.page_indptr = {0};
  std::vector<TokenId> tokens;
  SmallVector<PageId> pages;
  std::vector<int> page_indptr = {0};
  for (size_t r = 0; r < plan->rows.size(); ++r) {
    PlanRow& row = plan->rows[r];
    const std::span<const PageId> all = plan->row_pages(r);
    const auto own = std::min<size_t>(
        SourceEnd(row.source_length, page_size) / page_size, all.size());
    sources.pages.insert(sources.pages.end(), all.begin(), all.begin() + own);
    sources.page_indptr.push_back(static_cast<int>(sources.pages.size()));
    pages.append(all.subspan(own));
    page_indptr.push_back(static_cast<int>(pages.size()));
    const int count = NumOfSource(row, page_size);
    // Padding alone has no keys and values.
    if (count > 0 && row.first_position < row.source_length) {
      sources.reads.push_back(ReadOf(*plan, r, count));
    }
    const auto fed = plan->row_tokens(row).subspan(count);
    row.first_token = static_cast<int>(tokens.size());
    tokens.insert(tokens.end(), fed.begin(), fed.end());
    row.num_tokens -= count;
    row.first_position = std::max(
        row.first_position + count - SourceEnd(row.source_length, page_size),
        0);
  }
  plan->tokens = std::move(tokens);
  plan->page_indices = std::move(pages);
  plan->page_indptr = std::move(page_indptr);
  plan->sources.clear();
  return sources;
}

}  // namespace espalier
