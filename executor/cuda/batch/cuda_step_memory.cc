#include "executor/cuda/batch/cuda_step_memory.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/cuda_memory.h"
#include "base/status.h"
#include "executor/cuda/transfer/cuda_array_layout.h"
#include "kernels/constrain/token_masks.h"

namespace espalier {
namespace {

int64_t NumTables(const CudaStepLimits& limits) {
  return int64_t{limits.num_slots} + 1 + limits.num_row_tables();
}

void AddLogProbs(const CudaStepLimits& limits, CudaArrayLayout* layout,
                 CudaStepLogprobs* log_probs) {
  layout->Add(&log_probs->zeros, limits.max_rows);
  layout->Add(&log_probs->asked, limits.max_asked_tokens());
  layout->Add(&log_probs->scores, limits.max_asked_tokens());
  layout->Add(&log_probs->best, limits.max_best_tokens);
  layout->Add(&log_probs->num_found, limits.max_rows);
}

// Sets the pointers to the batch's arrays in `state` and `log_probs`.
void NameBatchArrays(CudaStepArrays* arrays) {
  CudaBeamState& state = arrays->state;
  state.num_groups = arrays->group_count;
  state.groups = arrays->groups;
  state.selections = arrays->selections;
  state.row_groups = arrays->row_groups;
  state.eos_token_ids = arrays->eos_token_ids;
  state.row_edits = arrays->row_edits;
  state.continuing = arrays->masks.continuing;
  CudaStepLogprobs& log_probs = arrays->log_probs;
  log_probs.counts = arrays->logprob_counts;
  log_probs.asking_groups = arrays->asking_groups;
  log_probs.best_groups = arrays->best_groups;
  log_probs.best_row_groups = arrays->best_row_groups;
}

int64_t LayOut(const CudaStepLimits& limits, int page_size, int* words,
               CudaStepArrays* arrays) {
  CudaArrayLayout layout(words);
  CudaBeamState& state = arrays->state;
  layout.Add(&state.tables, NumTables(limits) * limits.row_stride());
  layout.Add(&state.tokens, limits.num_slots);
  layout.Add(&state.cum_log_probs, limits.num_slots);
  layout.Add(&state.slots, limits.num_slots);
  layout.Add(&state.samples, limits.num_slots);
  layout.Add(&state.parents, limits.num_slots);
  layout.Add(&state.constraint_states, int64_t{2} * limits.num_slots);
  layout.Add(&state.sources, limits.num_slots);
  layout.Add(&state.tails, limits.num_slots);
  layout.Add(&state.positions, limits.num_slots);
  layout.Add(&state.page_tokens, int64_t{limits.num_pages} * page_size);
  layout.Add(&state.batch_tokens, limits.max_tokens);
  layout.Add(&state.batch_positions, limits.max_tokens);
  layout.Add(&state.logits_tokens, limits.max_rows);
  layout.Add(&state.batch_cum_log_probs, limits.max_rows);
  layout.Add(&state.draws, limits.max_rows);
  layout.Add(&state.copies, limits.num_slots);
  layout.Add(&state.num_copies, 1);
  layout.Add(&state.clock, 1);
  layout.Add(&state.masks, 1);
  layout.Add(&arrays->mask_jobs, int64_t{2} * limits.max_rows);
  layout.Add(&arrays->pushdown_jobs, int64_t{2} * limits.max_rows);
  layout.Add(&arrays->kept_places, limits.num_kept_places());
  layout.Add(&arrays->masks.legal,
             limits.num_masks() * NumMaskWords(limits.vocab_size));
  layout.Add(&arrays->masks.continuing, int64_t{limits.first_list_mask()} *
                                            NumMaskWords(limits.vocab_size));
  layout.Add(&state.scratch, int64_t{3} * limits.num_slots);
  layout.Add(&arrays->candidates, limits.max_candidates);
  layout.Add(&state.places, int64_t{2} * limits.num_slots);
  layout.Add(&arrays->num_candidates, limits.max_rows);
  layout.Add(&arrays->verify_counters, limits.max_rows);
  const auto add = [&](const CudaArrayInfo& info, auto*& array) {
    layout.Add(&array, info.max_size(limits));
  };
  ForEachBatchArray(add, *arrays);
  ForEachAttentionArray(add, *arrays);
  if (limits.source_stride > 0) {
    ForEachAttentionArray(add, arrays->cross_attention);
  }
  AddLogProbs(limits, &layout, &arrays->log_probs);
  NameBatchArrays(arrays);
  return layout.num_words();
}

// Copies in pieces, because tables of long contexts take hundreds of megabytes,
// which the host should not hold at once.
absl::Status FillTables(int* tables, int64_t num_words, int value) {
  const std::vector<int> piece(std::min<int64_t>(num_words, 1 << 18), value);
  for (int64_t done = 0; done < num_words; done += std::ssize(piece)) {
    const int64_t count = std::min<int64_t>(num_words - done, piece.size());
    RETURN_IF_CUDA_ERROR(cudaMemcpy(tables + done, piece.data(),
                                    count * sizeof(int),
                                    cudaMemcpyHostToDevice));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t CudaStepMemory::num_mask_bytes() const {
  return (limits_.num_masks() + limits_.first_list_mask()) *
         NumMaskWords(limits_.vocab_size) *
         static_cast<int64_t>(sizeof(uint32_t));
}

absl::StatusOr<CudaStepMemory> CudaStepMemory::Create(
    const CudaStepLimits& limits, PageId null_page, int page_size) {
  CudaStepMemory memory;
  memory.limits_ = limits;
  const int64_t num_words = LayOut(limits, page_size, nullptr, &memory.arrays_);
  if (num_words > std::numeric_limits<int>::max()) {
    return ResourceExhausted("a step of up to ", limits.max_rows, " rows of ",
                             limits.row_stride(), " pages, of ",
                             limits.num_pages, " in all, needs ", num_words * 4,
                             " bytes to keep track of");
  }
  ASSIGN_OR_RETURN(memory.words_,
                   TakeDeviceMemory<int>("the state of steps", num_words));
  LayOut(limits, page_size, memory.words_.data(), &memory.arrays_);
  memory.arrays_.state.table_stride = limits.row_stride();
  memory.arrays_.state.page_size = page_size;
  memory.arrays_.state.num_mask_words = NumMaskWords(limits.vocab_size);
  memory.arrays_.state.num_cached_masks = limits.num_cached_masks();
  memory.arrays_.state.num_places = limits.num_slots;
  // All but the tables is zero; they come first. Room for edits alone can be
  // 64 MB: the host does not send that.
  RETURN_IF_CUDA_ERROR(
      cudaMemset(memory.words_.data(), 0, memory.words_.size_bytes()));
  const CudaMaskCache masks;
  RETURN_IF_CUDA_ERROR(cudaMemcpy(memory.arrays_.state.masks, &masks,
                                  sizeof(masks), cudaMemcpyHostToDevice));
  memory.num_table_words_ = NumTables(limits) * limits.row_stride();
  RETURN_IF_ERROR(FillTables(memory.words_.data(), memory.num_table_words_,
                             null_page.value));
  // Other streams do not wait for such a copy by themselves.
  RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
  return memory;
}

}  // namespace espalier
