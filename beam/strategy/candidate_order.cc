#include "beam/strategy/candidate_order.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/gumbel_topk/gumbel_topk.h"

namespace espalier {
namespace {

class TopKRanking : public CandidateOrder {
 public:
  bool is_best_first() const override { return true; }
  void Rank(std::span<const Candidate> answer, int, int,
            std::vector<RankedCandidate>* ranked) const override {
    RankAsGiven(answer, ranked);
  }
};

class GumbelTopKRanking : public CandidateOrder {
 public:
  explicit GumbelTopKRanking(uint64_t seed) : seed_(seed) {}

  bool is_best_first() const override { return false; }

  void Rank(std::span<const Candidate> answer, int num_generated,
            int num_candidates,
            std::vector<RankedCandidate>* ranked) const override {
    RankAsGiven(answer, ranked);
    std::vector<std::pair<double, RankedCandidate>> gumbel_top_k;
    for (const RankedCandidate& given : *ranked) {
      gumbel_top_k.push_back({AddNoise(given.candidate, num_generated), given});
    }
    // Stable: ties go to the lower beam, then the lower token.
    std::ranges::stable_sort(gumbel_top_k, std::greater(),
                             [](const auto& p) { return p.first; });
    ranked->clear();
    for (const auto& [score, drawn] : gumbel_top_k) {
      if (std::ssize(*ranked) == num_candidates) break;
      ranked->push_back(drawn);
    }
  }

 private:
  double AddNoise(const Candidate& candidate, int num_generated) const {
    const RandomKey key = GumbelKey(seed_, candidate.beam, num_generated);
    return candidate.cum_log_prob + Gumbel(key, candidate.token);
  }

  const uint64_t seed_;
};

}  // namespace

std::unique_ptr<const CandidateOrder> MakeCandidateOrder(
    const GenerationParams& params) {
  if (!params.do_sample) return std::make_unique<TopKRanking>();
  return std::make_unique<GumbelTopKRanking>(params.seed.value_or(0));
}

}  // namespace espalier
