#include "executor/cuda/cuda_logprob_image.h"

#include <algorithm>

namespace espalier {

CudaLogProbPlace CudaLogProbImage::AskGroup(CudaLogprobGroup group,
                                            int num_logprobs,
                                            CudaBatchArrays<HostArray>* batch) {
  CudaLogProbCounts& counts = batch->log_prob_counts[0];
  CudaLogProbPlace place;
  group.first_asked = place.first_asked = counts.num_logprob_queries;
  counts.num_logprob_queries += group.num_candidates;
  ++counts.num_asking_groups;
  batch->asking_groups.push_back(group);
  AddBest(group.first_row, group.num_rows, num_logprobs, batch, &place);
  return place;
}

CudaLogProbPlace CudaLogProbImage::AskKnown(int first_line,
                                            std::span<const TokenId> next,
                                            int num_logprobs,
                                            CudaBatchArrays<HostArray>* batch) {
  CudaLogProbCounts& counts = batch->log_prob_counts[0];
  CudaLogProbPlace place = {.first_asked = counts.num_logprob_queries};
  for (size_t i = 0; i < next.size(); ++i) {
    known.push_back({first_line + static_cast<int>(i), next[i]});
  }
  counts.num_logprob_queries += static_cast<int>(next.size());
  AddBest(first_line, static_cast<int>(next.size()), num_logprobs, batch,
          &place);
  return place;
}

void CudaLogProbImage::AddBest(int first_line, int num_logits_rows,
                               int num_logprobs,
                               CudaBatchArrays<HostArray>* batch,
                               CudaLogProbPlace* place) {
  CudaLogProbCounts& counts = batch->log_prob_counts[0];
  place->num_best = std::min(num_logprobs, vocab_size);
  if (place->num_best == 0) return;
  place->first_best_group = counts.num_best_groups;
  place->first_best = counts.num_best;
  for (int i = 0; i < num_logits_rows; ++i) {
    batch->best_row_groups[first_line + i] = counts.num_best_groups++;
    batch->best_groups.push_back({.first_row = first_line + i,
                                  .num_rows = 1,
                                  .num_candidates = place->num_best,
                                  .first_candidate = counts.num_best,
                                  .domain = ScoreDomain::kLogits});
    counts.num_best += place->num_best;
  }
  max_best = std::max(max_best, place->num_best);
}

}  // namespace espalier
