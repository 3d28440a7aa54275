#include "executor/cuda/batch/cuda_step_limits.h"

#include <algorithm>

#include "base/page_count.h"
#include "executor/cuda/batch/cuda_input_batch.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

// More EOS ids than any model has.
constexpr int kMaxEosTokenIds = 63;
// Joint top-k has max(2, 1 + number of EOS ids) candidates per beam, of 12
// bytes each. Per-row top-k may have more; then fewer requests run.
constexpr int kCandidatesPerRow = 1 + kMaxEosTokenIds;
// Best tokens reported per row of logits: the maximum that a request may set.
constexpr int kBestPerRow = 64;
// 16 bytes each.
constexpr int64_t kMaxEdits = 1 << 23;
// Per-row top-k has about 2 * num_beams candidates per row; with a constraint
// or allowed sequences, as many as can end at once. 12 bytes each, in four
// buffers.
constexpr int64_t kMaxCandidates = 1 << 19;

int MaxCandidates(int64_t max_rows) {
  const int64_t count = std::min(2 * max_rows * max_rows, kMaxCandidates);
  return static_cast<int>(std::max(kCandidatesPerRow * max_rows, count));
}

// Edit lists that the device builds are sized for up to kPlannedPositions - 1
// tokens more than the history has, so that their size rarely changes.
int64_t SpareEdits(const CudaStepLimits& limits) {
  return int64_t{limits.max_rows} * (kPlannedPositions - 1);
}

}  // namespace

CudaStepLimits StepLimitsOf(const ModelDescription& model,
                            const CudaCallBounds& bounds) {
  CudaStepLimits limits;
  limits.vocab_size = model.vocab_size;
  limits.max_rows = std::min(bounds.max_logits, bounds.max_tokens);
  limits.max_tokens = bounds.max_tokens;
  limits.num_slots = 2 * limits.max_rows;
  limits.table_stride = static_cast<int>(
      std::min<int64_t>(NumPages(model.max_context, model.page_size),
                        int64_t{model.num_pages} + 1));
  if (model.encoder) {
    limits.source_stride = static_cast<int>(
        NumPages(model.encoder->max_source_tokens, model.page_size));
  }
  limits.max_candidates = MaxCandidates(limits.max_rows);
  limits.max_best_tokens = kBestPerRow * limits.max_rows;
  limits.max_eos_token_ids = kMaxEosTokenIds * limits.max_rows;
  limits.num_pages = model.num_pages + 1;  // and the null page
  limits.max_edits = static_cast<int>(
      std::min(kMaxEdits, int64_t{limits.max_rows} * model.vocab_size) +
      SpareEdits(limits));
  limits.max_items = bounds.max_attention_items;
  limits.max_partials = bounds.max_attention_partials;
  return limits;
}

StepLimits LimitsOfRequests(const CudaStepLimits& limits) {
  return {.max_step_tokens = limits.max_tokens,
          .max_beams = limits.max_rows,
          .max_prefill_rows = limits.num_row_tables(),
          .max_eos_token_ids = kMaxEosTokenIds,
          .max_scored_at_once = limits.max_rows > 1 ? limits.max_rows - 1 : 1,
          .max_score_edits = limits.max_edits - SpareEdits(limits),
          .max_list_edits = kMaxListEdits,
          .max_candidates = limits.max_candidates};
}

}  // namespace espalier
