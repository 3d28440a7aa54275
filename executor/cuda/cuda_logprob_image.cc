#include "executor/cuda/cuda_logprob_image.h"

#include <algorithm>

namespace espalier {

CudaLogProbPlace CudaLogProbImage::AskGroup(CudaAskingGroup group,
                                            int num_logprobs) {
  CudaLogProbPlace place;
  group.first_asked = place.first_asked = num_asked;
  num_asked += group.num_candidates;
  asking_groups.push_back(group);
  AddBest(group.first_row, group.num_rows, num_logprobs, &place);
  return place;
}

CudaLogProbPlace CudaLogProbImage::AskKnown(int first_line,
                                            std::span<const TokenId> next,
                                            int num_logprobs) {
  CudaLogProbPlace place = {.first_asked = num_asked};
  for (size_t i = 0; i < next.size(); ++i) {
    known.push_back({first_line + static_cast<int>(i), next[i]});
  }
  num_asked += static_cast<int>(next.size());
  AddBest(first_line, static_cast<int>(next.size()), num_logprobs, &place);
  return place;
}

void CudaLogProbImage::AddBest(int first_line, int num_lines, int num_logprobs,
                               CudaLogProbPlace* place) {
  place->num_best = std::min(num_logprobs, vocab_size);
  if (place->num_best == 0) return;
  place->first_best_group = static_cast<int>(best_groups.size());
  place->first_best = num_best;
  best_row_groups.resize(std::max<size_t>(best_row_groups.size(), first_line),
                         -1);
  for (int i = 0; i < num_lines; ++i) {
    best_row_groups.push_back(static_cast<int>(best_groups.size()));
    best_groups.push_back({.first_row = first_line + i,
                           .num_rows = 1,
                           .num_candidates = place->num_best,
                           .first_candidate = num_best,
                           .domain = ScoreDomain::kLogits});
    num_best += place->num_best;
  }
  max_best = std::max(max_best, place->num_best);
}

CudaLogProbCounts CudaLogProbImage::counts() const {
  return {.num_asking_groups = static_cast<int>(asking_groups.size()),
          .num_asked = num_asked,
          .num_best_groups = static_cast<int>(best_groups.size()),
          .num_best = num_best};
}

}  // namespace espalier
