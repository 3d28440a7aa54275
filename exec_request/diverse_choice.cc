#include "exec_request/diverse_choice.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

namespace espalier {
namespace {

// Orders a heap by rank: its top ranks first.
struct RanksLater {
  static auto Key(const Candidate& c) {
    return std::tuple(-c.cum_log_prob, c.beam, c.token);
  }
  bool operator()(const PenalisedCandidate& a,
                  const PenalisedCandidate& b) const {
    return Key(a.candidate) > Key(b.candidate);
  }
};

using Heap = std::priority_queue<PenalisedCandidate,
                                 std::vector<PenalisedCandidate>, RanksLater>;

PenalisedCandidate Pop(Heap* heap) {
  const PenalisedCandidate top = heap->top();
  heap->pop();
  return top;
}

}  // namespace

std::vector<PenalisedCandidate> BestPenalised(std::span<const Candidate> answer,
                                              const RowBlock& block,
                                              const TokenChoices& choices,
                                              double penalty) {
  Heap heads;    // best remaining candidate of each row, before the penalty
  Heap lowered;  // candidates taken from the rows, with the penalty
  const auto push_head = [&](size_t idx) {
    PenalisedCandidate head = {answer[idx], static_cast<int>(idx)};
    head.candidate.beam -= block.first_row;
    heads.push(head);
  };
  const int end_row = block.first_row + block.num_rows;
  for (size_t i = std::ranges::lower_bound(answer, block.first_row, {},
                                           &Candidate::beam) -
                  answer.begin();
       i < answer.size() && answer[i].beam < end_row; ++i) {
    if (i == 0 || answer[i - 1].beam != answer[i].beam) push_head(i);
  }
  std::vector<PenalisedCandidate> best;
  while (std::ssize(best) < block.count) {
    if (!lowered.empty() &&
        (heads.empty() || !RanksLater()(lowered.top(), heads.top()))) {
      best.push_back(Pop(&lowered));
      continue;
    }
    if (heads.empty()) break;
    PenalisedCandidate next = Pop(&heads);
    const size_t after = next.idx + 1;
    if (after < answer.size() && answer[after].beam == answer[next.idx].beam) {
      push_head(after);
    }
    const auto chosen = choices.find(next.candidate.token);
    if (chosen != choices.end()) {
      next.candidate.cum_log_prob -=
          static_cast<float>(penalty * chosen->second);
    }
    lowered.push(next);
  }
  return best;
}

std::vector<Candidate> KeepChoosable(const PlanSelection& selection,
                                     const KeepEachBlock& kept,
                                     std::vector<Candidate> answer) {
  std::vector<bool> is_ranked(answer.size());
  TokenChoices choices;
  for (const RowBlock& block : kept.blocks) {
    std::vector<TokenId> chosen;
    for (const auto& [candidate, idx] :
         BestPenalised(answer, block, choices, kept.penalty)) {
      is_ranked[idx] = true;
      if (std::ssize(chosen) < kept.num_chosen &&
          !std::ranges::binary_search(selection.eos_token_ids,
                                      candidate.token)) {
        chosen.push_back(candidate.token);
      }
    }
    for (const TokenId token : chosen) ++choices[token];
  }
  std::vector<Candidate> needed;
  for (size_t i = 0; i < answer.size(); ++i) {
    if (is_ranked[i]) needed.push_back(answer[i]);
  }
  return needed;
}

}  // namespace espalier
