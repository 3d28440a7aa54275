#include "executor/cuda/batch/cuda_batch_logprobs.h"

#include <algorithm>

namespace espalier {

CudaLogprobPlace CudaBatchLogprobs::AskGroup(
    CudaLogprobGroup group, int num_logprobs,
    CudaBatchArrays<HostArray>* batch) {
  CudaLogprobCounts& counts = batch->logprob_counts[0];
  CudaLogprobPlace place;
  group.first_asked = place.first_asked = counts.num_logprob_queries;
  counts.num_logprob_queries += group.num_candidates;
  ++counts.num_asking_groups;
  batch->asking_groups.push_back(group);
  AddBest(group.first_row, group.num_rows, num_logprobs, batch, &place);
  return place;
}

CudaLogprobPlace CudaBatchLogprobs::AskKnown(
    int first_logits_row, std::span<const TokenId> next, int num_logprobs,
    int num_text_tokens, CudaBatchArrays<HostArray>* batch) {
  CudaLogprobCounts& counts = batch->logprob_counts[0];
  CudaLogprobPlace place = {.first_asked = counts.num_logprob_queries};
  for (size_t i = 0; i < next.size(); ++i) {
    known.push_back(
        {.row = first_logits_row + static_cast<int>(i),
         .token = next[i],
         .vocab_end = next[i] < num_text_tokens ? num_text_tokens : 0});
  }
  counts.num_logprob_queries += static_cast<int>(next.size());
  AddBest(first_logits_row, static_cast<int>(next.size()), num_logprobs, batch,
          &place);
  return place;
}

void CudaBatchLogprobs::AddBest(int first_logits_row, int num_logits_rows,
                                int num_logprobs,
                                CudaBatchArrays<HostArray>* batch,
                                CudaLogprobPlace* place) {
  CudaLogprobCounts& counts = batch->logprob_counts[0];
  place->num_best = std::min(num_logprobs, vocab_size);
  if (place->num_best == 0) return;
  place->first_best_group = counts.num_best_groups;
  place->first_best = counts.num_best;
  for (int i = 0; i < num_logits_rows; ++i) {
    batch->best_row_groups[first_logits_row + i] = counts.num_best_groups++;
    batch->best_groups.push_back({.first_row = first_logits_row + i,
                                  .num_rows = 1,
                                  .num_candidates = place->num_best,
                                  .first_candidate = counts.num_best,
                                  .domain = ScoreDomain::kLogits});
    counts.num_best += place->num_best;
  }
  max_best = std::max(max_best, place->num_best);
}

}  // namespace espalier
