#include "beam/strategy/finished_pool.h"

#include <algorithm>

namespace espalier {

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
