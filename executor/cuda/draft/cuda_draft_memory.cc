#include "executor/cuda/draft/cuda_draft_memory.h"

#include <algorithm>
#include <vector>

#include "base/cuda.h"
#include "base/page_count.h"
#include "executor/cuda/transfer/cuda_array_layout.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

// At higher numbers of concurrent sequences, drafts do not pay.
constexpr int kMaxDraftRows = 256;
// The logits of a step's rows.
constexpr int64_t kMaxStepLogits = (int64_t{128} << 20) / sizeof(float);
constexpr int kFewestDraftRows = 16;
constexpr int kMaxDraftEdits = 1 << 18;

void AddInputs(int num_tokens, const CudaDraftLimits& limits,
               CudaArrayLayout* layout, CudaDraftInputs* inputs) {
  layout->Add(&inputs->tokens, num_tokens);
  layout->Add(&inputs->positions, num_tokens);
  layout->Add(&inputs->token_tables, num_tokens);
  layout->Add(&inputs->items, limits.max_items);
  layout->Add(&inputs->item_counts, 2);
  layout->Add(&inputs->partial_indptr, int64_t{num_tokens} + 1);
}

int64_t LayOutDrafts(const CudaDraftLimits& limits, int* words,
                     CudaDraftArrays* arrays) {
  const int max_rows = limits.max_rows;
  CudaArrayLayout layout(words);
  layout.Add(&arrays->tables, (int64_t{max_rows} + 1) * limits.table_stride);
  AddInputs(limits.max_tokens(), limits, &layout, &arrays->first);
  AddInputs(max_rows, limits, &layout, &arrays->next);
  layout.Add(&arrays->first_logits_tokens, max_rows);
  layout.Add(&arrays->rows, max_rows);
  layout.Add(&arrays->num_draws, 1);
  layout.Add(&arrays->draws, max_rows);
  layout.Add(&arrays->row_params, max_rows);
  layout.Add(&arrays->params, max_rows);
  layout.Add(&arrays->cum_log_probs, max_rows);
  layout.Add(&arrays->row_edits, max_rows);
  layout.Add(&arrays->kept_rows, max_rows);
  layout.Add(&arrays->edits, limits.max_edits);
  layout.Add(&arrays->candidates, max_rows);
  layout.Add(&arrays->clock, 1);
  return layout.num_words();
}

}  // namespace

CudaDraftLimits CudaDraftLimits::Of(const CudaModel& model) {
  const CudaCallBounds& bounds = model.bounds();
  const ModelDescription& description = model.description();
  const int64_t most = std::max<int64_t>(
      kMaxStepLogits / description.vocab_size, kFewestDraftRows);
  CudaDraftLimits limits;
  // A row feeds two tokens after a bonus token.
  limits.max_row_tokens = bounds.max_tokens >= 2 ? 2 : 1;
  // A token is an item of attention at least, and two partial results.
  limits.max_rows = static_cast<int>(std::max<int64_t>(
      1, std::min<int64_t>(
             {kMaxDraftRows, most, bounds.max_logits,
              bounds.max_tokens / limits.max_row_tokens,
              bounds.max_attention_items / limits.max_row_tokens,
              bounds.max_attention_partials / (2 * limits.max_row_tokens)})));
  limits.table_stride = static_cast<int>(std::min<int64_t>(
      NumPages(description.max_context, description.page_size),
      int64_t{description.num_pages} + 1));
  limits.max_edits = kMaxDraftEdits;
  limits.max_items = bounds.max_attention_items;
  limits.max_partials = bounds.max_attention_partials;
  return limits;
}

absl::StatusOr<CudaDraftMemory> CudaDraftMemory::Create(
    const CudaDraftLimits& limits, PageId null_page) {
  CudaDraftMemory memory;
  memory.limits_ = limits;
  ASSIGN_OR_RETURN(
      memory.words_,
      TakeDeviceMemory<int>("drafting",
                            LayOutDrafts(limits, nullptr, &memory.arrays_)));
  LayOutDrafts(limits, memory.words_.data(), &memory.arrays_);
  RETURN_IF_CUDA_ERROR(
      cudaMemset(memory.words_.data(), 0, memory.words_.size_bytes()));
  const std::vector<int> nobodys(limits.table_stride, null_page.value);
  RETURN_IF_CUDA_ERROR(cudaMemcpy(
      memory.arrays_.tables + int64_t{limits.max_rows} * limits.table_stride,
      nobodys.data(), nobodys.size() * sizeof(int), cudaMemcpyHostToDevice));
  // Other streams do not wait for these by themselves.
  RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
  return memory;
}

}  // namespace espalier
