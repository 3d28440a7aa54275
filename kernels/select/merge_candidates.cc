#include "kernels/select/merge_candidates.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace espalier {
namespace {

// The merge's position in one row: the best of its remaining tokens.
struct Head {
  float cum_log_prob;
  int beam;
  size_t index;  // in the row
};

// The order of the heap: the best on top.
bool Worse(const Head& a, const Head& b) {
  if (a.cum_log_prob != b.cum_log_prob) return a.cum_log_prob < b.cum_log_prob;
  return a.beam > b.beam;
}

bool Better(const Candidate& a, const Candidate& b) {
  if (a.cum_log_prob != b.cum_log_prob) return a.cum_log_prob > b.cum_log_prob;
  if (a.beam != b.beam) return a.beam < b.beam;
  return a.token < b.token;
}

bool IsSorted(const std::vector<TokenScore>& row) {
  return std::adjacent_find(row.begin(), row.end(),
                            [](const TokenScore& a, const TokenScore& b) {
                              return !(a.log_prob >= b.log_prob);
                            }) == row.end();
}

// Rows are sorted, so a heap of one head per row merges their best:
// num_candidates * log(num_beams) instead of visiting every token.
class Merge {
 public:
  Merge(std::span<const std::vector<TokenScore>> rows,
        std::span<const float> cum_log_probs)
      : rows_(rows), cum_log_probs_(cum_log_probs) {
    for (int beam = 0; beam < std::ssize(rows); ++beam) {
      DCHECK(IsSorted(rows[beam])) << "the row of beam " << beam;
      Push(beam, 0);
    }
  }

  bool empty() const { return heap_.empty(); }
  const Head& top() const { return heap_.front(); }

  // Removes and returns the best remaining candidate. Within a beam, candidates
  // of equal sums come in the row's order.
  Candidate Pop() {
    std::pop_heap(heap_.begin(), heap_.end(), Worse);
    const Head head = heap_.back();
    heap_.pop_back();
    Push(head.beam, head.index + 1);
    return {head.beam, rows_[head.beam][head.index].token, head.cum_log_prob};
  }

 private:
  // Once a sum is -inf the rest of the row is too: log-probabilities fall, and
  // rounding keeps the order of sums. A NaN comes from the beam's own sum, so
  // the rest is NaN as well.
  void Push(int beam, size_t index) {
    if (index == rows_[beam].size()) return;
    const float cum = cum_log_probs_[beam] + rows_[beam][index].log_prob;
    if (!(cum > -std::numeric_limits<float>::infinity())) return;
    heap_.push_back({cum, beam, index});
    std::push_heap(heap_.begin(), heap_.end(), Worse);
  }

  std::span<const std::vector<TokenScore>> rows_;
  std::span<const float> cum_log_probs_;
  std::vector<Head> heap_;
};

bool Ties(const Head& head, const Candidate& candidate) {
  return head.cum_log_prob == candidate.cum_log_prob &&
         head.beam == candidate.beam;
}

}  // namespace

std::vector<Candidate> MergeCandidates(
    std::span<const std::vector<TokenScore>> rows,
    std::span<const float> cum_log_probs, int num_candidates) {
  CHECK_EQ(rows.size(), cum_log_probs.size());
  CHECK_GE(num_candidates, 1);
  const size_t limit = num_candidates;
  Merge merge(rows, cum_log_probs);
  std::vector<Candidate> candidates;
  // Rounding can make sums equal whose log-probabilities differ, so all tokens
  // of a beam that tie at the cut are taken before the list is pruned.
  while (!merge.empty() &&
         (candidates.size() < limit || Ties(merge.top(), candidates.back()))) {
    candidates.push_back(merge.Pop());
  }
  if (!std::is_sorted(candidates.begin(), candidates.end(), Better)) {
    std::sort(candidates.begin(), candidates.end(), Better);
  }
  if (candidates.size() > limit) candidates.resize(limit);
  return candidates;
}

}  // namespace espalier
