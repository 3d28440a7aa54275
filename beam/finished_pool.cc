#include "beam/finished_pool.h"

#include <algorithm>
#include <cmath>

namespace espalier {

float LengthPenalizedScore(float cum_log_prob, int length,
                           double length_penalty) {
  const double power = std::pow(static_cast<double>(length), length_penalty);
  return cum_log_prob / static_cast<float>(power);
}

void FinishedPool::Add(const FinishedBeam& beam) {
  if (full()) {
    if (!(beam.score > worst_score())) return;
    beams_.pop_back();
  }
  const auto is_better = [](const FinishedBeam& a, const FinishedBeam& b) {
    return a.score > b.score;
  };
  beams_.insert(std::upper_bound(beams_.begin(), beams_.end(), beam, is_better),
                beam);
}

}  // namespace espalier
