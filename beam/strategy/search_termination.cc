#include "beam/strategy/search_termination.h"

#include <algorithm>
#include <cmath>

#include "beam/strategy/selection_options.h"

namespace espalier {
namespace {

int NumNeeded(const GenerationParams& params, int num_beams) {
  if (params.early_stopping != EarlyStopping::kTrue) return num_beams;
  // Fits int64 for any patience.
  const double count = std::round(std::min(num_beams * params.patience, 1e15));
  return std::max(1, SaturateToInt(static_cast<int64_t>(count)));
}

int FullLength(const GenerationParams& params) {
  const bool at_full_length = params.early_stopping == EarlyStopping::kNever &&
                              LengthPenalty(params).favours_length();
  return at_full_length ? SaturateToInt(*params.max_new_tokens) : 0;
}

}  // namespace

SearchTermination::SearchTermination(const GenerationParams& params,
                                     int num_beams)
    : ends_when_filled_(params.early_stopping == EarlyStopping::kTrue),
      num_needed_(NumNeeded(params, num_beams)),
      pool_capacity_(std::max(num_needed_, num_beams)),
      length_penalty_(params),
      full_length_(FullLength(params)) {}

bool SearchTermination::Ends(const FinishedPool& pool, float best_cum_log_prob,
                             int length) const {
  if (pool.size() < num_needed_) return false;
  if (ends_when_filled_) return true;
  const float best = length_penalty_.Score(
      best_cum_log_prob, full_length_ > 0 ? full_length_ : length);
  return !(best > pool.worst_score());
}

}  // namespace espalier
